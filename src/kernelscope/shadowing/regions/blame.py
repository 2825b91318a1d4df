"""Which step of the compiler made the compiled function compute something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node

from kernelscope.events import Frame
from kernelscope.probes.compiler_steps.decompositions import decomposition_of, functional_of
from kernelscope.probes.thread_mode import ThreadMode
from kernelscope.shadowing.generator_state import untouched_random_numbers
from kernelscope.shadowing.steps.blame import EachOperator
from kernelscope.shadowing.steps.functionalized import differ, first_difference
from kernelscope.shadowing.steps.lines import Located, frames_of

from .eager_run import alone, parts_of
from .modes.other_layout import BelievedLayout
from .region import VALUES, Difference, Region

_LAYOUTS_TRIED = 8


class Suspect(NamedTuple):
    """The step, empty where it is not known, and the user's line."""

    step: str = ""
    line: tuple[Frame, ...] = ()


def blame(region: Region, difference: Difference) -> Suspect:
    """The step between Dynamo's graph and the compiled code.

    Each step is compared on its own before: here none of those that could be compared was wrong.
    """
    if difference.kind == "unshared":  # no backend returns a view: AOTAutograd makes it of what was returned
        return Suspect("AOTAutograd")
    if region.eager is None:
        return Suspect()
    found = None
    if difference.kind in VALUES:
        found = _functionalization(region) or _decomposition(region)
    if found is None and difference.kind in ("result", "layout"):
        found = _believed_layout(region, difference)
    return found or Suspect()


def _functionalization(region: Region) -> Suspect | None:
    """Whether the traced graph computes something else once its writes are functional, in eager."""
    try:
        one, other = _run(region, None, False), _run(region, None, True)
    except Exception:  # it cannot be functionalized in this way
        return None
    if not any(differ(a, b) for a, b in zip(one, other, strict=True)):
        return None
    node = first_difference(region.module, lambda kept, is_on: _run(region, kept, is_on))
    return Suspect("functionalization", frames_of(node))


def _run(
    region: Region, interpreter: Callable[[GraphModule], Any] | None, is_functional: bool
) -> Sequence[Any]:
    """What it returns; without an interpreter, also its inputs as they are afterwards."""
    assert region.eager is not None
    values = region.eager.inputs.fresh(differentiates=False).values

    def call(*given: Any) -> Any:
        return parts_of(region.run(given, interpreter))

    with alone(), torch.no_grad(), untouched_random_numbers():
        made = (torch.func.functionalize(call) if is_functional else call)(*values)
    return [*made, *values] if interpreter is None else made


def _decomposition(region: Region) -> Suspect | None:
    assert region.eager is not None
    operators = EachOperator()
    values = region.eager.inputs.fresh(differentiates=False).values
    try:
        with torch.no_grad(), untouched_random_numbers(), operators:
            region.run(values, lambda graph: Located(graph, operators.tell))
    except Exception:  # it ran without the mode
        return None
    return Suspect(f"decomposition of {operators.wrong[0]}", operators.line) if operators.wrong else None


def _believed_layout(region: Region, difference: Difference) -> Suspect | None:
    """The first operator whose result, with the layout that the compiler expects, makes this one another."""
    assert region.eager is not None
    usual, number = _layout_with(region, None, difference.index), 0
    while usual is not None and number < _LAYOUTS_TRIED:
        mode, number = BelievedLayout(number), number + 1
        made = _layout_with(region, mode, difference.index)
        if not mode.step:
            return None
        if made is not None and made != usual:
            return Suspect(mode.step, frames_of(mode.node))
    return None


def _layout_with(region: Region, mode: BelievedLayout | None, index: int) -> tuple[Any, ...] | None:
    """Of one result in eager; None: it has none, or cannot be had."""
    assert region.eager is not None
    values = region.eager.inputs.fresh(differentiates=False).values
    try:
        with torch.no_grad(), untouched_random_numbers(), mode or nullcontext():
            tell = mode.tell if mode is not None else lambda node: None
            made = parts_of(region.run(values, lambda graph: Located(graph, tell)))
    except Exception:
        return None
    one = made[index] if index < len(made) else None
    if not isinstance(one, torch.Tensor) or one.layout != torch.strided:
        return None
    return one.dtype, one.stride()


def refusal(region: Region, error: Exception) -> str:
    """Why its graph cannot be run uncompiled: also which operator refuses what compiled code computes."""
    first = str(error).partition("\n")[0][:200].removesuffix(".")
    words = f"its graph cannot be run uncompiled: {type(error).__name__}: {first}"
    assert region.eager is not None
    operators = Refusing()
    try:
        values = region.eager.inputs.fresh(differentiates=False).values
        with torch.no_grad(), untouched_random_numbers(), operators:
            region.run(values, lambda graph: Located(graph, operators.tell))
    except Exception:  # the same, unless it is not an operator that refuses
        line = frames_of(operators.node)
        at = f" at {line[0]}" if line else ""
        does = ", and its decomposition does not raise" if operators.is_decomposed else ""
        return f"{words} ({operators.refused}{at}{does})" if operators.refused else words
    return words


class Refusing(ThreadMode):
    """Notes the operator that raises, and whether what the compiler puts in its place does not."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.refused, self.is_decomposed = "", False
        self.node: Node | None = None

    def tell(self, node: Node | None) -> None:
        """Which node is running."""
        self.node = node if node is not None or not self.refused else self.node

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except Exception:
            if not self.refused:
                self.refused = str(func)
                self.is_decomposed = _is_decomposed(func, args, kwargs or {})
            raise


def _is_decomposed(operator: Any, args: Any, kwargs: Any) -> bool:
    decomposition = decomposition_of(functional_of(operator))
    try:
        return decomposition is not None and decomposition(*args, **kwargs) is not NotImplemented
    except Exception:
        return False
