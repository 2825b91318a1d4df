"""A run: what was recorded, and how to look at it. Needs no torch."""

from .call import KernelCall as KernelCall
from .errors import RunError as RunError
from .kinds import OperatorCall as OperatorCall
from .kinds import TritonKernelCall as TritonKernelCall
from .run import Run as Run
from .stored import StoredRun as StoredRun
from .stored import load as load
