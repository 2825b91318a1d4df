"""Eager draws the random numbers that the compiled code drew, so that random results can be compared.

Inductor makes one seed for each operator that draws, for each device as the program names it, in the order
of the traced graph, and a number depends on its seed and position alone. In eager each operator is taken
apart as far as the compiler does, and the n-th draw on a device then gets the numbers of its n-th seed. An
operator that Inductor leaves to ATen gets what it drew in the compiled code, if eager may draw that. A call
has no seed if nothing depends on what it draws: the compiler leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from kernelscope.probes.compiler_steps.decompositions import (
    decomposition_of,
    functional_arguments,
    functional_of,
)
from kernelscope.probes.thread_mode import ThreadMode
from kernelscope.shadowing.draws.compiled_draws import Drawn, Draws
from kernelscope.shadowing.draws.distributions import described, improbable
from kernelscope.shadowing.draws.unused_draws import DrawingCalls, may_draw
from kernelscope.shadowing.generator_state import seeded, untouched_random_numbers
from kernelscope.shadowing.reference.node_kinds import aten, draws_from_generator
from kernelscope.shadowing.reference.random_numbers import inductor_randint, inductor_random
from kernelscope.shadowing.reference.small_errors.rounding import eps_of
from kernelscope.shadowing.regions.copies import consist_of_others
from kernelscope.shadowing.steps.draws import kind_of_draw


class CompiledDraws(DrawingCalls):  # type: ignore[no-untyped-call]
    """Goes on top of the mode that computes: operators that draw get the compiled numbers."""

    supports_higher_order_operators = True

    def __init__(self, draws: Draws, *, judges: bool = False) -> None:
        """With `judges`, what operators of ATen drew is compared with what eager may draw."""
        super().__init__(draws.unused)
        self._seeds = {device: list(seeds) for device, seeds in draws.seeds.items()}
        self._drawn_by: dict[Any, list[list[Drawn]]] = {}
        for place in sorted({each.place for each in draws.drawn}):
            parts = [each for each in draws.drawn if each.place == place]
            self._drawn_by.setdefault(parts[0].operator, []).append(parts)
        self._is_known = True
        self._judges = judges
        self._judged: set[tuple[Any, str]] = set()
        self.wrong: dict[str, str] = {}  # by operator: why eager would not draw what it drew

    @property
    def is_complete(self) -> bool:
        """Whether each draw had a seed or numbers of its own, and the other way round."""
        return self._is_known and not any(self._seeds.values()) and not any(self._drawn_by.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if consist_of_others(types):
            return NotImplemented
        if not may_draw(func) or self.is_unused():
            return func(*args, **kwargs)
        if func is aten.rrelu_with_noise.default:
            made, noise = self._drawn(aten.rrelu_with_noise_functional.default, args, kwargs)
            eager = func(args[0], args[1].clone(), *args[2:], **kwargs) if self._judges else made
            args[1].copy_(noise)
            return _in_layout_of(eager, made)
        plain = functional_of(func)
        if plain is None:
            self._is_known = False
            return func(*args, **kwargs)
        args = functional_arguments(func, plain, args, kwargs)
        made = self._drawn(plain, args, kwargs)
        return made if plain is func else args[0].copy_(made)

    def _drawn(self, plain: Any, args: Any, kwargs: Any) -> Any:
        if waiting := self._drawn_by.get(plain):
            return self._given(plain, waiting.pop(0), args, kwargs)
        with self.taking_apart():
            if plain is aten.native_dropout.default:
                return _dropout(*args, **kwargs)
            decomposition = decomposition_of(plain)
            made = decomposition(*args, **kwargs) if decomposition is not None else NotImplemented
        if made is not NotImplemented:
            return self._as_eager_has_it(plain, made, args, kwargs) if self._judges else made
        made = plain(*args, **kwargs)  # by the mode below, which notes its dtype
        if not draws_from_generator(plain, args, kwargs):
            return made  # attention without dropout
        numbers = self._numbers(plain, made, args, kwargs)
        if numbers is None:
            self._is_known = False
        else:
            with _disable_current_modes():
                made.copy_(numbers)
        return made

    def _as_eager_has_it(self, plain: Any, made: Any, args: Any, kwargs: Any) -> Any:
        """The compiler's numbers with eager's dtype and strides, which a decomposition may get wrong."""
        with untouched_random_numbers():
            eager = plain(*args, **kwargs)
        return _in_layout_of(eager, made)

    def _given(self, plain: Any, parts: Sequence[Drawn], args: Any, kwargs: Any) -> Any:
        made = plain(*args, **kwargs)  # by the mode below, which notes its dtype
        by_part = {each.part: each.value for each in parts}
        results = {None: made} if isinstance(made, torch.Tensor) else dict(enumerate(made))
        wanted = {part: value for part, value in results.items() if isinstance(value, torch.Tensor)}
        shapes = {part: value.shape for part, value in by_part.items()}
        if shapes != {part: value.shape for part, value in wanted.items()}:
            self._is_known = False
            return made
        with _disable_current_modes():
            if self._judges and isinstance(made, torch.Tensor) and self._is_new(plain, args, kwargs):
                self.wrong |= _wrong_draw(plain, by_part[None], args, kwargs)
            for part, value in wanted.items():
                value.copy_(by_part[part])
        return made

    def _is_new(self, plain: Any, args: Any, kwargs: Any) -> bool:
        """Of draws that are alike, the first one is judged: each takes half a second."""
        key = plain, str(tree_map(described, (args, kwargs)))
        is_new = key not in self._judged
        self._judged.add(key)
        return is_new

    def _numbers(self, plain: Any, made: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
        kind, seeds = kind_of_draw(plain), self._seeds_for(kwargs.get("device") or made.device)
        if kind == "" or not seeds or kwargs.get("generator") is not None:
            return None
        size, seed, triton = list(made.shape), seeds.pop(0), made.device.type != "cpu"
        if kind != "integers":
            return inductor_random(size, seed, kind, 0, triton=triton)
        if "randperm" in str(plain):
            return None
        bounds = [part for part in args if isinstance(part, int)]
        low, high = bounds[:2] if "low" in str(plain) else (0, bounds[0])
        return inductor_randint(low, high, size, seed, 0, triton=triton)

    def _seeds_for(self, device: torch.device) -> list[int] | None:
        """Those of a device of this name; if there is none, the only ones of its type."""
        if (found := self._seeds.get(str(device))) is not None:
            return found
        alike = [seeds for name, seeds in self._seeds.items() if torch.device(name).type == device.type]
        return alike[0] if len(alike) == 1 else None


def _in_layout_of(eager: Any, made: Any) -> Any:
    """The numbers of one in the tensors of the other, if their sizes are the same."""
    pairs = [*zip(tree_leaves(eager), tree_leaves(made), strict=False)]
    if not all(isinstance(e, torch.Tensor) and e.shape == getattr(m, "shape", None) for e, m in pairs):
        return made
    for one, other in pairs:
        one.copy_(other)
    return eager


def _wrong_draw(plain: Any, made: torch.Tensor, args: Any, kwargs: Any) -> dict[str, str]:
    """By operator: why eager would not draw this, if it would not."""

    def draw(number: int) -> torch.Tensor:
        with seeded(number):
            found: torch.Tensor = plain(*args, **kwargs)
            return found

    reason = improbable(draw, made, max(eps_of(made.dtype), eps_of(torch.float32)))
    return {str(plain): reason} if reason else {}


@contextmanager
def drawing(mode: ThreadMode) -> Iterator[None]:
    """Also in operators that torch takes apart before a mode sees them: `dropout`."""
    with enable_python_dispatcher(), mode:
        yield


def _dropout(x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """By its definition, rather than by the compiler's decomposition of it."""
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    kept = torch.rand_like(x) > p
    return kept * x * float(1 / (1 - p)), kept
