"""Why the first ATen graph computes something else: which operator's decomposition, or functionalization.

Only asked once something is wrong. Each operator of the traced graph, forward and backward, and its
decomposition run on the same inputs; and the traced graph runs functionalized, in eager.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node
from torch.utils._pytree import tree_leaves, tree_map

from kernelscope.events import Frame
from kernelscope.probes.compiler_steps.decompositions import decomposition_of, functional_of
from kernelscope.probes.thread_mode import ThreadMode
from kernelscope.shadowing.checks.judge import judge
from kernelscope.shadowing.checks.verdict_record import Verdict
from kernelscope.shadowing.reference.evaluate import CannotEvaluate
from kernelscope.shadowing.reference.small_errors.rounding import eps_of, rounding_of, widen
from kernelscope.shadowing.regions.modes.wide_mode import Wide

from .lines import Located, frames_of, frames_of_operator

if TYPE_CHECKING:
    from .first_aten import FirstAten


@dataclass(frozen=True, slots=True)
class Blame:
    """The step, and what in it is wrong: a pass, a partitioner, an operator."""

    step: str
    by: str = ""
    pattern: str = ""  # of a pass; of an operator, the arguments that are not tensors
    origin: tuple[Frame, ...] = ()  # the user's line

    @property
    def words(self) -> str:
        if not self.by:
            return ""
        if self.step == "partition":
            return f" (by {self.by})"
        if self.step == "decomposition":
            arguments = f" with {self.pattern}" if self.pattern else ""
            return f", where {self.by}{arguments} was decomposed,"
        return f" (pass {self.by}" + (f", pattern {self.pattern})" if self.pattern else ")")


def blame_first_aten(start: FirstAten) -> Blame:
    operators = EachOperator()
    try:
        start.run_all(operators, lambda graph: Located(graph, operators.tell))
    except CannotEvaluate:
        return Blame("tracing")
    if operators.wrong:
        line = operators.line or frames_of_operator(start.aten, operators.wrong[0])
        return Blame("decomposition", *operators.wrong, line)
    if start.differs_functionalized():
        return Blame("functionalization", origin=frames_of(start.first_written_otherwise()))
    return Blame("tracing")


class EachOperator(ThreadMode):
    """Runs everything as it is, and beside each operator its decomposition, until one of them is wrong."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.wrong: tuple[str, str] | None = None  # the operator, and its arguments that are not tensors
        self.line: tuple[Frame, ...] = ()  # from which the wrong one comes, where a node was told
        self._node: Node | None = None

    def tell(self, node: Node | None) -> None:
        """Which node is running."""
        self._node = node

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.wrong is not None or not isinstance(func, torch._ops.OpOverload):
            return func(*args, **kwargs)
        plain = functional_of(func)
        decomposition = decomposition_of(plain) if plain is not None else None
        if decomposition is None or torch.Tag.nondeterministic_seeded in plain.tags:
            return func(*args, **kwargs)
        copies = tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, (args, kwargs))
        result = func(*args, **kwargs)
        try:
            is_wrong = _differs(plain, decomposition, *copies)
        except Exception:  # not meant for these arguments: the compiler then keeps the operator
            is_wrong = False
        if is_wrong:
            self.wrong = str(plain), arguments_in_words(plain, args, kwargs)
            self.line = frames_of(self._node)
        return result


def _differs(plain: Any, decomposition: Any, args: Any, kwargs: Any) -> bool:
    made = decomposition(*args, **kwargs)
    if made is NotImplemented:
        return False
    eager, generator = plain(*args, **kwargs), torch.Generator().manual_seed(0)
    ours, theirs = _tensors(eager), _tensors(made)
    if len(ours) != len(theirs):
        return True

    def wide(index: int, generator: torch.Generator | None) -> torch.Tensor:
        mode = Wide(generator)
        wides = widen(args), widen(kwargs)
        for value, narrow in zip(_tensors(wides), _tensors((args, kwargs)), strict=True):
            mode.learn(value, narrow.dtype)
        with mode:
            return _tensors(plain(*wides[0], **wides[1]))[index]

    tensors = (*ours, *_tensors((args, kwargs)))
    inner = max((rounding_of(plain, t.dtype, t.device) for t in tensors), default=0.0)
    for i, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return True
        verdict: Verdict = judge(
            other,
            one,
            lambda i=i: wide(i, None),  # type: ignore[misc]
            lambda i=i: wide(i, generator),  # type: ignore[misc]
            inner or eps_of(torch.float32),
        )
        if verdict.is_wrong:
            return True
    return False


def _tensors(value: Any) -> list[torch.Tensor]:
    return [part for part in tree_leaves(value) if isinstance(part, torch.Tensor)]


def arguments_in_words(operator: Any, args: Any, kwargs: Any) -> str:
    names = [argument.name for argument in operator._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    plain = {k: v for k, v in given.items() if isinstance(v, int | float | bool | str | torch.dtype)}
    return ", ".join(f"{name}={value}" for name, value in plain.items())
