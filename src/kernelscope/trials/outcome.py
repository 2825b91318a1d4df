"""How one trial ended. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .failure_signature import FailureSignature, without_numbers

PASSED, FAILED, RAISED, KILLED, TIMED_OUT = "passed", "failed", "raised", "killed", "timed out"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one trial ended."""

    kind: str  # passed | failed | raised | killed | timed out
    what: str = ""  # the exception, the verdict, the signal
    details: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)
    seconds: float = 0.0
    failure: FailureSignature | None = None  # where the trial determined it

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}" if self.what else self.kind

    @property
    def first_line(self) -> str:
        """Without what torch adds to an exception's message."""
        return str(self).partition("\n")[0]

    @property
    def signature(self) -> FailureSignature:
        return self.failure or FailureSignature(self.kind, without_numbers(self.what.partition("\n")[0]))

    def lasting(self, seconds: float) -> Outcome:
        return replace(self, seconds=seconds)

    def to_json(self) -> dict[str, Any]:
        failure = {} if self.failure is None else {"failure": self.failure.to_json()}
        return {
            "kind": self.kind, "what": self.what, "details": dict(self.details), "seconds": self.seconds,
        } | failure  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Outcome:
        failure = data.get("failure")
        return cls(
            str(data["kind"]),
            str(data["what"]),
            dict(data.get("details", {})),
            float(data.get("seconds", 0)),
            None if failure is None else FailureSignature.from_json(failure),
        )
