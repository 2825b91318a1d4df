"""The verdicts of shadowing: one row each, from which texts, order and next steps follow."""

from __future__ import annotations

from dataclasses import dataclass

from kernelscope.text.operator_names import is_custom, misdescribed_operator


@dataclass(frozen=True, slots=True)
class VerdictKind:
    """One kind of thing that may be wrong."""

    name: str
    sentence: str  # what it does, after its name
    rank: int  # of several culprits, those of the lowest rank come first: the earlier cause
    subject: str = "kernel"  # what is named; of a kernel, its launch is numbered too
    tools: tuple[str, ...] = ("bisect", "reduce")  # what to do next

    @property
    def is_step(self) -> bool:
        """A step of the compiler rather than a launch."""
        return self.subject != "kernel" and self.rank == 0


# A new verdict is a row here. Rank 0: a step of the compiler before any kernel; 1: a launch; 2: neither.
VERDICTS = {
    kind.name: kind
    for kind in (
        VerdictKind("wrong-stage", "changes what the program computes", 0, "stage"),
        VerdictKind("wrong-kernel", "is wrong", 1),
        VerdictKind("foreign-write", "writes to a buffer that is not its output", 1),
        VerdictKind("early-write", "overwrites what a later kernel needs", 1),
        VerdictKind("uninitialised-read", "reads uninitialised memory", 1),
        VerdictKind("wrong-function", "does not compute what the uncompiled function does", 2, "function"),
        VerdictKind("wrong-result", "does not return what the kernels computed", 1, "wrapper"),
    )
}


def kind_of(verdict: str) -> VerdictKind:
    return VERDICTS.get(verdict) or VerdictKind(verdict, "is wrong", 2, "part")


@dataclass(frozen=True, slots=True)
class OwnOperator:
    """An operator of the program's own that does something else than its registration says."""

    name: str  # as Python has it: torch.ops.mine.norm.default
    fault: str  # a sentence
    remedy: str

    @property
    def check(self) -> str:
        return f"torch.library.opcheck({self.name}, args) checks it"


def own_operator(verdict: str, kind: str, kernel_name: str, reason: str) -> OwnOperator | None:
    """Of a culprit with these: the operator that is to be mended instead of the compiler."""
    if verdict == "foreign-write" and is_custom(kind, kernel_name):
        name = f"torch.ops.{kernel_name.removeprefix('torch.ops.')}"
        return OwnOperator(
            name,
            "it writes to an argument that its registration does not name",
            "name what it writes to in mutates_args (in a schema: Tensor(a!)), or let it write to a copy",
        )
    if name := misdescribed_operator(reason):
        return OwnOperator(
            name,
            "the sizes or strides of its result differ from those of its fake implementation (register_fake)",
            "let register_fake return the sizes and strides that the operator really returns",
        )
    return None
