"""Whether a trial shows the same failure as the unchanged program."""

from __future__ import annotations

import re

from .settings import FAILED, KILLED, RAISED, TIMED_OUT, Outcome

_VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+(\.\d+)?(e[+-]?\d+)?|/\S+")


def signature(outcome: Outcome) -> str:
    """What stays the same of an exception: its type and the first line, without numbers and paths."""
    return f"{outcome.kind}: {_VARYING.sub('#', outcome.what.partition(chr(10))[0])}"


class Failure:
    """The failure that is looked for."""

    def __init__(self, condition: str, message: str = "") -> None:
        self._condition = condition
        self._message = message  # part of the exception's text
        self._signature = ""

    def is_met_by(self, outcome: Outcome) -> bool:
        """The first that is met decides what counts as the same."""
        if self._condition != "exception":
            return outcome.kind == FAILED
        if outcome.kind not in (RAISED, KILLED, TIMED_OUT) or self._message not in outcome.what:
            return False
        if not self._signature:
            self._signature = "" if self._message else signature(outcome)
        return not self._signature or signature(outcome) == self._signature
