"""What all runs together say of each kernel: invariant, variant or not followed, and what makes it so."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from .flow import Code, Flow, Kernel, Outcome

ATOMIC = re.compile(r"\batomic_\w+(<[^>]*>)?\(")  # a call: metadata of every kernel have the word
SPLIT = re.compile(r"_arr\[|\bmax_threads\b|\bRSPLIT|\bXBLOCK_SPLIT")  # not what metadata say of the device
_LIBRARIES = ("extern_kernels", "aten", "torch")  # what names of calls begin with
_UNKNOWN = "with other rows there is no result that corresponds to it"
_ANY_ORDER = "its rows may be in a different order, and no result of the program depends on that order"
_ORDER = {"size": 0, "position": 1, "contents": 2, "repeat": 3}


@dataclass(frozen=True, slots=True)
class KernelVerdict:
    """One launch of the whole batch, and what the other runs showed of it."""

    index: int  # of the launch, in the run of the whole batch
    kernel_name: str
    kind: str
    verdict: str  # invariant | variant | not-followed
    reason: str  # why it is not followed
    phase: str
    graph: str
    origin: tuple[Any, ...]  # the program's lines, innermost first
    wrapper: str
    nodes: tuple[str, ...]  # FX nodes that it computes
    depends_on: tuple[str, ...] = ()  # size, position, contents, repeat
    cause: str = ""
    explanation: str = ""
    run: str = ""  # where the difference is largest
    argument: str = ""
    differing: int = 0
    elements: int = 0
    max_abs: float | None = None
    max_ulp: int | None = None
    other_kernel: str = ""  # that ran in its place
    joined: tuple[str, ...] = ()  # other kernels that may be to blame as well
    reaches: str = ""  # the kernel through which it changes rows

    @property
    def line(self) -> str:
        """Of the program; of the generated code where it has none, as of a compiled module of torch."""
        if not self.origin and self.graph and self.wrapper:
            return f"{self.wrapper} (generated code)"
        return str(self.origin[0]) if self.origin else "an unknown line"

    def to_dict(self) -> dict[str, Any]:
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        is_number = self.max_abs is not None and self.max_abs < math.inf  # JSON has no NaN and no infinity
        return plain | {"max_abs": self.max_abs if is_number else None}


def verdicts(flow: Flow, runs: Sequence[str]) -> list[KernelVerdict]:
    """Of every launch, in order."""
    covered = {run: _covered(flow, run) for run in runs}
    return [_verdict(kernel, runs, covered) for kernel in flow.kernels]


def with_suspect(found: list[KernelVerdict], flow: Flow, run: str) -> list[KernelVerdict]:
    """Where a result differs and no kernel was seen to make it so: the first that could not be compared."""
    for kernel in flow.kernels:
        statuses = {o.status for o in kernel.outcomes if o.run == run}
        if found[kernel.index].verdict == "not-followed" and statuses <= {"unfollowed", "same"}:
            why = "a result differs, and this is the first kernel whose own result could not be compared"
            more = {"depends_on": ("size",), "cause": "not-compared", "explanation": why, "run": run}
            reason = found[kernel.index].reason
            found[kernel.index] = _plain(kernel, "variant", reason, **more)
            break
    return found


def excuse_orders(flow: Flow) -> None:
    """Where all results are the same: after indices of rows, only an order differs by more than rounding."""
    after = set[int]()
    for kernel in flow.kernels:
        if kernel.numbers_rows or not after.isdisjoint(kernel.reads):
            after.add(kernel.index)
            kernel.outcomes = [_excused(each) for each in kernel.outcomes]


def _excused(outcome: Outcome) -> Outcome:
    is_order = outcome.moves or (outcome.difference is not None and outcome.difference.is_gross)
    if outcome.status not in ("variant", "handed") or outcome.tests == "repeat" or not is_order:
        return outcome
    return replace(outcome, status="unfollowed", reason=_ANY_ORDER)


def _covered(flow: Flow, run: str) -> set[int]:
    """Kernels without a counterpart in this run, all of whose readers have the same results in it."""
    readers, settled = flow.readers(), set[int]()
    for kernel in reversed(flow.kernels):
        own = [outcome.status for outcome in kernel.outcomes if outcome.run == run]
        if (own and all(status == "same" for status in own)) or (
            not own and readers[kernel.index] and readers[kernel.index] <= settled
        ):
            settled.add(kernel.index)
    return settled


def _verdict(kernel: Kernel, runs: Sequence[str], covered: dict[str, set[int]]) -> KernelVerdict:
    variant = [outcome for outcome in kernel.outcomes if outcome.status == "variant"]
    if variant:
        return _variant(kernel, variant)
    others = [outcome for outcome in kernel.outcomes if outcome.status != "same"]
    if others:
        first = others[0]
        reason = first.reason or "it was given results that depend on other rows"
        return _plain(kernel, "not-followed", f"{reason} ({first.run})")
    missing = [run for run in runs if kernel.index not in covered[run]]
    if missing:
        return _plain(kernel, "not-followed", f"{_UNKNOWN} ({missing[0]})")
    return _plain(kernel, "invariant", "")


def _plain(kernel: Kernel, verdict: str, reason: str, **more: Any) -> KernelVerdict:
    code = kernel.code
    return KernelVerdict(
        kernel.index, code.name, code.kind, verdict, reason, code.phase, code.graph, code.origin,
        code.wrapper, code.nodes, **more,
    )  # fmt: skip


def _variant(kernel: Kernel, variant: list[Outcome]) -> KernelVerdict:
    worst = max(variant, key=lambda outcome: (bool(outcome.argument), _amount(outcome)))
    found, other = worst.difference if worst.argument else None, worst.other
    tests = tuple(sorted({outcome.tests for outcome in variant}, key=_ORDER.__getitem__))
    cause, explanation = _cause(kernel.code, variant, tests)
    is_other = other is not None and other.name != kernel.code.name and other.kind != "result"
    return _plain(
        kernel, "variant", "", depends_on=tests, cause=cause, explanation=explanation, run=worst.run,
        argument=worst.argument, differing=found.differing if found else 0,
        elements=found.elements if found else 0, max_abs=found.max_abs if found else None,
        max_ulp=found.max_ulp if found else None, other_kernel=other.name if is_other and other else "",
        joined=worst.joined, reaches=next((o.reaches for o in variant if o.reaches), ""),
    )  # fmt: skip


def _amount(outcome: Outcome) -> float:
    found = outcome.difference
    return found.relative if found is not None else 0.0


def _cause(code: Code, variant: list[Outcome], tests: tuple[str, ...]) -> tuple[str, str]:
    """A word, and a sentence."""
    others = [outcome.other for outcome in variant if outcome.other is not None]
    if "repeat" in tests:
        return "varies", "it gives varying results for the very same rows; see kernelscope determinism"
    if any(outcome.moves for outcome in variant):
        why = "the place of a row in it depends on the other rows, which changes the rows of a later result"
        return "mixes-rows", why
    if any(outcome.reaches for outcome in variant):
        return "mixes-rows", "it combines all rows into one value, which changes the rows of a later result"
    factors = [o.difference.factor for o in variant if o.difference is not None]
    if tests == ("size",) and any(f and abs(f - 1) > 0.01 for f in factors):
        return "divides-by-rows", "all elements differ by one factor: it divides by the number of rows"
    if "contents" in tests:
        return "mixes-rows", "its result for a row changes with the contents of the other rows"
    if any(o.tests == "position" and o.difference is not None and o.difference.is_gross for o in variant):
        return "position", "its result for a row depends on the place of the row in the batch"
    if any(o.difference is not None and o.difference.is_gross for o in variant):
        why = "more than rounding explains: it computes something different with other or fewer rows"
        return "mixes-rows", f"its result for a row differs by {why}"
    is_other = [c for c in others if c.source_hash != code.source_hash and c.kind != "result"]
    sources = [code.source, *(c.source for c in others)]
    if any(ATOMIC.search(source) for source in sources):
        return "atomic", "it adds with atomic operations, in no fixed order"
    if code.kind in ("extern", "op") or any(c.kind in ("extern", "op") for c in others):
        return _call_cause(code, others, tests)
    joined = [name for outcome in variant for name in outcome.joined]
    if any(name.split(".")[0] in _LIBRARIES for name in joined):
        why = "computes a row differently when the number of rows changes"
        return "library-call", f"it reads the result of a library call, and it or that call {why}"
    is_split = any(_splits_reduction(source) for source in sources) or bool(joined)
    if is_split:
        return "split-reduction", "it splits a reduction, and the number of rows decides how"
    if is_other:
        return "other-kernel", "a different kernel was compiled for another number of rows"
    if any(c.config != code.config for c in others):
        return "other-config", "a different configuration was chosen for another number of rows"
    if "position" in tests:
        return "position", "the place of a row decides by which loop of the kernel it is computed"
    return "size", "the same code computes a row differently when the number of rows changes"


def _call_cause(code: Code, others: list[Code], tests: tuple[str, ...]) -> tuple[str, str]:
    if any(c.kind not in ("extern", "op") for c in [code, *others]):
        return (
            "other-kernel",
            "a library call takes the place of a compiled kernel when the number of rows changes",
        )
    what = "the number of rows" if "size" in tests else "the place of a row"
    own = code.name.split(".")[0] not in _LIBRARIES and "aten" not in code.name
    if own:
        return (
            "operator",
            f"an operator that is not torch's own computes a row differently when {what} changes",
        )
    return "library-call", f"a library call, which chooses its algorithm by {what}"


def _splits_reduction(source: str) -> bool:
    """Of generated C++ and Triton: parts of a sum for each thread or block."""
    return SPLIT.search(source) is not None
