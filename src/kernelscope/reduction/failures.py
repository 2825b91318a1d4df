"""What went wrong, in a form that tells whether two failures are the same. Needs no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelscope.shadowing.culprit import Culprit

_NUMBERING = re.compile(r"(_\d+|_default|_tensor|_scalar)+$", re.IGNORECASE)
_CHANGING = re.compile(r"0x[0-9a-f]+|/[\w./-]+|\d+|\b[ps]\d+\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Failure:
    """One way to fail."""

    kind: str  # kernel | stage | exception | check
    what: str  # the verdict, or the exception's type
    kernel_kind: str = ""  # cpp, triton, extern
    where: str = ""  # of an extern kernel or a pass its name; of an exception its message, without numbers
    operators: frozenset[str] = frozenset()  # that the kernel computes
    told: str = ""

    def is_same(self, other: Failure) -> bool:
        """Whether the other, of a smaller graph, is this failure.

        A generated kernel's name changes with what it computes: it is the same if it does nothing else.
        """
        if (self.kind, self.what, self.kernel_kind, self.where) != (
            other.kind, other.what, other.kernel_kind, other.where,
        ):  # fmt: skip
            return False
        return not self.operators or other.operators <= self.operators

    def __str__(self) -> str:
        return self.told or f"{self.what} {self.where}".strip()


def of_culprit(culprit: Culprit) -> Failure:
    named = culprit.kind not in ("cpp", "triton") or culprit.verdict == "wrong-stage"
    return Failure(
        kind="stage" if culprit.verdict == "wrong-stage" else "kernel",
        what=culprit.verdict,
        kernel_kind=culprit.kind,
        where=culprit.kernel_name if named else "",
        operators=frozenset(_operator(name) for name in culprit.nodes),
        told=f"{culprit.verdict}: {culprit.kernel_name} {culprit.argument}: {culprit.reason}",
    )


def of_exception(error: BaseException) -> Failure:
    inner = error
    while getattr(inner, "inner_exception", None) is not None:
        inner = inner.inner_exception  # type: ignore[attr-defined]
    said = next((line for line in str(inner).splitlines() if line.strip()), "")
    kind = type(inner).__name__
    return Failure("exception", kind, where=_CHANGING.sub("#", said)[:200], told=f"{kind}: {said}")


def _operator(node: str) -> str:
    """add of add_3: names of nodes are their operators', numbered."""
    return _NUMBERING.sub("", node)
