"""From launches to the calls of a run: `record()`, and what it does to each launch."""

from .api import record, step
from .recording import Recording, StopAtCall

__all__ = ["Recording", "StopAtCall", "record", "step"]
