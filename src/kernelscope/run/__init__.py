"""A run: what was recorded, and how to look at it. Needs no torch."""

from .call import KernelCall as KernelCall
from .run import Run as Run
