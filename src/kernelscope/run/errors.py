"""What can be wrong with a run on disk, said in one sentence."""

from __future__ import annotations


class RunError(Exception):
    """A run that cannot be read or written. The message says what, where, and what to do."""
