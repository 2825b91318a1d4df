"""From launches to the calls of a run: `record()`, and what it does to each launch."""

from .api import record, step
from .launch_recorder import StopAtCall
from .recording import Recording

__all__ = ["Recording", "StopAtCall", "record", "step"]
