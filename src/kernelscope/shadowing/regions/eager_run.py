"""Running a traced graph or a function uncompiled, on copies of what it was called with.

In its own dtypes, in float64, and in float64 with small errors; with the gradients of each.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelscope.determinism.state import torch_generators
from kernelscope.probes.bus import BUS
from kernelscope.shadowing.draws.compiled_draws import Draws
from kernelscope.shadowing.draws.eager_draws import CompiledDraws, drawing
from kernelscope.shadowing.draws.unused_draws import UnusedDraws
from kernelscope.shadowing.generator_state import untouched_random_numbers
from kernelscope.shadowing.program_state import own_autograd_state
from kernelscope.shadowing.reference.small_errors.rounding import eps_of

from .copies import Copied, Snapshot
from .modes.operator_modes import Noisy, Notes
from .modes.wide_mode import Wide

Call = Callable[[list[Any]], Any]
Mode = Notes | Wide
RandomStates = list[tuple[torch.Generator, torch.Tensor]]


@dataclass(slots=True)
class EagerRun:
    """One execution, with its autograd graph."""

    results: list[Any]  # leaves of what was returned
    inputs: list[Any]  # as they are afterwards
    leaves: list[torch.Tensor | None]
    mode: Mode
    is_drawn: bool = False  # with the random numbers of the compiled code
    wrong_draws: dict[str, str] = field(default_factory=dict)  # by operator: why eager would not draw them

    def gradients(
        self, outputs: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor]
    ) -> list[torch.Tensor | None]:
        """By input; `outputs` are results, or inputs that were written to."""
        found: list[torch.Tensor | None] = [None] * len(self.leaves)
        wanted = [(i, leaf) for i, leaf in enumerate(self.leaves) if leaf is not None]
        pairs = []
        for output, tangent in zip(outputs, tangents, strict=True):
            if _depends(output):
                pairs.append((output, tangent.to(output.dtype)))
                if isinstance(self.mode, Wide):  # else what follows from it has float64's roundings
                    self.mode.learn(pairs[-1][1], tangent.dtype)
        if not wanted or not pairs:
            return found
        with alone(), one_thread(), untouched_random_numbers(), self.mode:  # a backward may draw
            made = torch.autograd.grad(
                [o for o, _ in pairs], [leaf for _, leaf in wanted], [t for _, t in pairs],
                allow_unused=True, retain_graph=True,
            )  # fmt: skip
        for (index, _), gradient in zip(wanted, made, strict=True):
            found[index] = gradient
        return found


def parts_of(value: Any) -> list[Any]:
    """What a returned value consists of, in an order that depends on its structure alone."""
    parts: list[Any] = []
    for leaf in tree_leaves(value, is_leaf=lambda part: part is None):
        if is_dataclass(leaf) and not isinstance(leaf, type):
            parts += [part for each in fields(leaf) for part in parts_of(getattr(leaf, each.name, None))]
        else:
            parts.append(leaf)
    return parts


class Eager:
    """Runs `call` on fresh copies each time."""

    def __init__(self, call: Call, inputs: Snapshot, random: RandomStates, *, differentiates: bool) -> None:
        """`call` gets a list of values, and may return anything that `parts_of` can take apart."""
        self.call, self.inputs, self.random = call, inputs, random
        self.differentiates = differentiates
        self.draws: Draws | None = None  # of the compiled code
        self._autocast = [
            (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
            for kind in ("cpu", "cuda")
        ]

    def drawing(self, draws: Draws) -> Eager:
        """With the random numbers that compiled code drew."""
        found = copy.copy(self)
        found.draws = draws
        return found

    def same(self, *, seed: int | None = None, fill: float | None = None, opposite: bool = False) -> EagerRun:
        """As eager computes it; with a seed, with other random numbers than the program had."""
        return self._run(self.inputs.fresh(), Notes(fill, opposite=opposite), seed)

    def wide(self, generator: torch.Generator | None = None, kind: type[Wide] = Wide) -> EagerRun:
        """In float64; with a generator, with an error of one rounding after each operator."""
        mode, copied = kind(generator), self.inputs.fresh(wide=True)
        asked = [eps_of(dtype) for _, dtype, is_enabled in self._autocast if is_enabled]
        mode.autocast = max(asked, default=0.0)
        for value, dtype in copied.dtypes:
            mode.learn(value, dtype)
        return self._run(copied, mode, None)

    def noisy(self, generator: torch.Generator) -> EagerRun:
        """In its own dtypes, with an error of one rounding after each operator."""
        return self._run(self.inputs.fresh(), Noisy(generator), None)

    def unused_draws(self) -> frozenset[int]:
        """Calls that draw numbers which nothing depends on, by number."""
        follows, copied = UnusedDraws(), self.inputs.fresh()
        run = Eager._run(self, copied, Notes(), None, follows)
        return follows.unused((run.results, run.inputs))

    def _run(
        self, copied: Copied, mode: Mode, seed: int | None, follows: UnusedDraws | None = None
    ) -> EagerRun:
        with ExitStack() as stack:
            stack.enter_context(alone())
            stack.enter_context(torch.set_grad_enabled(self.differentiates))
            stack.enter_context(random_numbers(self.random, seed))
            for kind, dtype, is_enabled in self._autocast:  # gradients are computed later, outside of it
                if is_enabled != torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, dtype, enabled=is_enabled))
            stack.enter_context(mode)
            judges = isinstance(mode, Notes) and not isinstance(mode, Noisy)
            draws = CompiledDraws(self.draws, judges=judges) if self.draws is not None else None
            if (above := follows or draws) is not None:
                stack.enter_context(drawing(above))
            returned = self.call(list(copied.values))
        run = EagerRun(parts_of(returned), copied.values, copied.leaves, mode)
        if draws is not None:
            run.is_drawn, run.wrong_draws = draws.is_complete, draws.wrong
        return run


class Differentiated(Eager):
    """Runs whose results are gradients, by input; zeros for inputs that do not matter."""

    def __init__(self, eager: Eager, tangents: Sequence[torch.Tensor | None]) -> None:
        """`tangents`: by result, then by input that may have been written to."""
        super().__init__(eager.call, eager.inputs, eager.random, differentiates=True)
        self._autocast, self.draws = eager._autocast, eager.draws
        self._given = [(i, t.detach()) for i, t in enumerate(tangents) if t is not None]

    def _run(
        self, copied: Copied, mode: Mode, seed: int | None, follows: UnusedDraws | None = None
    ) -> EagerRun:
        run = super()._run(copied, mode, seed, follows)
        outputs = [*run.results, *run.inputs]
        made = run.gradients([outputs[i] for i, _ in self._given], [t for _, t in self._given])
        run.results = [
            torch.zeros_like(value) if gradient is None and isinstance(value, torch.Tensor) else gradient
            for gradient, value in zip(made, run.inputs, strict=True)
        ]
        return run


def random_states() -> RandomStates:
    return [(generator, generator.get_state()) for generator in torch_generators()]


@contextmanager
def random_numbers(states: RandomStates, seed: int | None = None) -> Iterator[None]:
    """Those that the program had at that time, or other ones; and afterwards its own again."""
    with untouched_random_numbers():
        for generator, state in states:
            generator.set_state(state)
            if seed is not None:
                generator.manual_seed(seed)
        yield


@contextmanager
def alone() -> Iterator[None]:
    """Not recorded, and without modes and hooks of the program; autocast and gradients as they are."""
    with (
        BUS.mute(),
        own_autograd_state(),
        torch.utils._python_dispatch._disable_current_modes(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def one_thread() -> AbstractContextManager[Any]:
    """Gradients are computed in this thread, in which our modes are."""
    found = getattr(torch.autograd, "set_multithreading_enabled", None)
    return found(False) if found is not None else nullcontext()


def _depends(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
