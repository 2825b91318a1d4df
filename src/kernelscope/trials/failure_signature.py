"""What identifies a failure, so that two failures can be compared. Needs no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelscope.shadowing.culprit import Culprit

_NODE_NUMBERS = re.compile(r"(_\d+|_default|_tensor|_scalar)+$", re.IGNORECASE)
_VARYING = re.compile(r"0x[0-9a-f]+|/\S+|\b[ps]\d+\b|\d+(\.\d+)?(e[+-]?\d+)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FailureSignature:
    """One way to fail."""

    kind: str  # kernel | stage | exception | check, or the kind of an outcome
    what: str  # the verdict, or the exception's type
    kernel_kind: str = ""  # cpp, triton, extern
    where: str = ""  # name of an extern kernel or a pass; an exception's message without numbers
    operators: frozenset[str] = frozenset()  # that the kernel computes
    text: str = ""  # for the user

    def is_same(self, other: FailureSignature) -> bool:
        """Whether the other, of a smaller graph, is this failure.

        A generated kernel's name changes with its operators: it is the same if it has no further ones.
        """
        if replace(self, operators=frozenset(), text="") != replace(other, operators=frozenset(), text=""):
            return False
        return not self.operators or other.operators <= self.operators

    def __str__(self) -> str:
        return self.text or f"{self.what} {self.where}".strip()

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"operators": sorted(self.operators)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FailureSignature:
        fields = {name: str(data[name]) for name in ("kind", "what", "kernel_kind", "where", "text")}
        return cls(**fields, operators=frozenset(map(str, data["operators"])))


def without_numbers(text: str) -> str:
    """A message without what varies from run to run: numbers, addresses, paths."""
    return _VARYING.sub("#", text)


def of_culprit(culprit: Culprit) -> FailureSignature:
    is_stage = culprit.is_step
    is_named = is_stage or culprit.kind not in ("cpp", "triton")
    return FailureSignature(
        kind="stage" if is_stage else "kernel",
        what=culprit.verdict,
        kernel_kind=culprit.kind,
        where=culprit.kernel_name if is_named else "",
        # add of add_3: names of nodes are their operators', numbered.
        operators=frozenset(_NODE_NUMBERS.sub("", name) for name in culprit.nodes),
        text=f"{culprit.verdict}: {culprit.kernel_name} {culprit.argument}: {culprit.reason}",
    )


def of_exception(error: BaseException) -> FailureSignature:
    inner = error
    while getattr(inner, "inner_exception", None) is not None:
        inner = inner.inner_exception  # type: ignore[attr-defined]
    message = next((line for line in str(inner).splitlines() if line.strip()), "")
    kind = type(inner).__name__
    text = f"{kind}: {message}" if message else kind
    return FailureSignature("exception", kind, where=without_numbers(message)[:200], text=text)
