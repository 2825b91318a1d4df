"""Whether two executions did the same: results, inputs that were written to, layouts, shared memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from kernelscope.shadowing.checks.judge import judge
from kernelscope.shadowing.checks.measure import is_equal
from kernelscope.shadowing.checks.verdict_record import WRONG_SIGN, Verdict
from kernelscope.shadowing.draws.compiled_draws import Draws
from kernelscope.shadowing.reference.small_errors.rounding import eps_of, widen
from kernelscope.shadowing.reference.written_arguments import unwritten

from .copies import tensors_within
from .eager_run import Eager, EagerRun
from .modes.decomposed import Decomposed, is_same_in_double
from .modes.operator_modes import Notes
from .padding import is_padded
from .region import Difference
from .second_opinion import is_explained

Pick = Callable[[EagerRun], Any]  # one value of a run
_OPPOSITE = 1  # the number of the run in which what can be drawn otherwise is
_RUNS = 6  # with other random numbers, before something is called wrong


class References:
    """Eager runs of one thing on the same inputs: each is made when it is needed, and once."""

    def __init__(self, eager: Eager) -> None:
        self.eager = eager
        self._generator = torch.Generator().manual_seed(0)
        self._jittered: list[EagerRun] = []
        self._others: list[EagerRun] = []
        self._is_narrow = False

    @cached_property
    def same(self) -> EagerRun:
        return self.eager.same()

    def run(self) -> None:
        """Now, and not when it is needed first."""
        _ = self.same

    @property
    def is_unmatched(self) -> bool:
        """Whether eager draws random numbers of its own, so that what depends on them cannot be compared."""
        notes = self.same.mode
        return isinstance(notes, Notes) and notes.draws and not self.same.is_drawn

    def drawing(self, draws: Draws | None) -> References:
        """With the random numbers of compiled code, if there are any and each can be told which it is."""
        if draws is None or not draws.is_known or not self.is_unmatched:
            return self
        found = References(self.eager.drawing(draws))
        with suppress(Exception):  # an operator cannot be taken apart: eager keeps numbers of its own
            if not found.same.is_drawn and (unused := self.eager.unused_draws()):
                found = References(self.eager.drawing(replace(draws, unused=unused)))
            return found if found.same.is_drawn else self
        return self

    @cached_property
    def wide(self) -> EagerRun:
        """In float64; where that is impossible, as it is."""
        try:
            return self.eager.wide()
        except Exception:  # an operator, or a transform of torch.func, that insists on its dtypes
            self._is_narrow = True
            return self.same

    def _other(self, number: int) -> EagerRun | None:
        """With other random numbers, and other contents of memory that nothing was written to."""
        notes = self.same.mode
        assert isinstance(notes, Notes)
        if not (self.is_unmatched or (notes.is_uninitialised and number == 0)):
            return None
        while len(self._others) <= number:
            seed = 20_260_728 + len(self._others)
            with suppress(Exception):  # the opposite of what was drawn may not be possible
                if len(self._others) == _OPPOSITE:
                    self._others.append(self.eager.same(opposite=True))
                    continue
            self._others.append(self.eager.same(seed=seed, fill=12345.678))
        return self._others[number]

    @property
    def eps(self) -> float:
        return self.same.mode.eps or eps_of(torch.float32)  # type: ignore[union-attr]

    @property
    def _signed_zeros(self) -> bool:
        notes = self.same.mode
        return isinstance(notes, Notes) and notes.signed_zeros

    def jittered(self, number: int) -> EagerRun:
        _ = self.wide  # tells whether float64 is possible
        run = self.eager.noisy if self._is_narrow else self.eager.wide
        while len(self._jittered) <= number:
            self._jittered.append(run(self._generator))
        return self._jittered[number]

    def is_arbitrary(self, pick: Pick, runs: int = 2) -> bool:
        """Whether eager itself returns something else each time."""
        one = pick(self.same)
        for run in map(self._other, range(runs)):
            other = one if run is None else pick(run)
            if other is not one and not (isinstance(other, torch.Tensor) and _equal(one, other)):
                return True
        return False

    def judge(self, made: torch.Tensor, pick: Pick) -> Verdict:
        """One value that the compiled code made."""
        eager, made = _dense(pick(self.same)).detach(), _dense(made).detach()
        if eager.dtype != made.dtype or eager.shape != made.shape:
            return instead(_described(made), _described(eager))[1]
        numbers = itertools.count()

        def wide() -> torch.Tensor:
            return _widened(pick(self.wide))

        def moved(number: int) -> torch.Tensor:
            return _widened(pick(self.jittered(number)))

        def left() -> torch.Tensor | None:
            return unwritten(eager, lambda: _dense(pick(self.eager.same())).detach())

        verdict = judge(
            made, eager, wide, lambda: moved(next(numbers)), self.eps,
            signed_zeros=self._signed_zeros, unwritten=left,
        )  # fmt: skip
        if verdict.is_wrong and verdict.reason == WRONG_SIGN:
            return verdict
        if verdict.is_wrong and is_explained(made, wide(), moved, eager):
            return Verdict(False)
        if verdict.is_wrong and not self._is_narrow and self._is_other_rounding(made, eager, wide(), pick):
            return Verdict(False)
        return verdict

    def _is_other_rounding(
        self, made: torch.Tensor, eager: torch.Tensor, wide: torch.Tensor, pick: Pick
    ) -> bool:
        """Whether rounding explains it once each operator is computed as the compiler decomposes it."""

        def decomposed(generator: torch.Generator | None = None) -> torch.Tensor:
            return _widened(pick(self.eager.wide(generator, Decomposed)))

        try:
            if not is_same_in_double(wide, decomposed(), decomposed(self._generator)):
                return False
            verdict = judge(made, eager, lambda: wide, lambda: decomposed(self._generator), self.eps)
        except Exception:  # then the decompositions explain nothing
            return False
        return not verdict.is_wrong


def compare_values(
    made: Sequence[Any], references: References, picks: Sequence[Pick], whats: Sequence[str], kind: str
) -> tuple[list[Difference], int]:
    """Differences, and how many values eager itself returns differently each time."""
    found, arbitrary = list[Difference](), 0
    for index, (value, pick, what) in enumerate(zip(made, picks, whats, strict=True)):
        eager = pick(references.same)
        if isinstance(value, torch.Tensor) != isinstance(eager, torch.Tensor):
            found.append(Difference(what, *instead(_described(value), _described(eager)), index, kind))
            continue
        if not isinstance(value, torch.Tensor):
            if not _same_object(value, eager):
                found.append(Difference(what, *instead(f"{value!r:.60}", f"{eager!r:.60}"), index, kind))
            continue
        if (names := tensors_within(value)) and type(value) is type(eager):
            parts = [(lambda run, pick=pick, name=name: getattr(pick(run), name)) for name in names]
            inner = [f"{name} of {what}" for name in names]
            more, number = compare_values([getattr(value, n) for n in names], references, parts, inner, kind)
            found, arbitrary = [*found, *more], arbitrary + number
            continue
        if _equal(value, eager):
            continue
        is_one_kind = _kind(value) == _kind(eager)
        if is_one_kind and references.is_arbitrary(pick):
            arbitrary += 1
            continue
        verdict = references.judge(value, pick)
        if verdict.is_wrong and is_one_kind and references.is_arbitrary(pick, _RUNS):
            arbitrary += 1  # few values can be drawn, and the first runs drew the same
        elif verdict.is_wrong:
            found.append(Difference(what, verdict.reason, verdict, index, kind))
    return found, arbitrary


def compare_layouts(
    made: Sequence[Any],
    eager: Sequence[Any],
    whats: Sequence[str],
    note: Callable[[str], None] = lambda text: None,
    *,
    pads: bool = True,
) -> list[Difference]:
    """Strides, where they can be seen: of dimensions with more than one element.

    Padding is not wrong where Inductor pads on purpose.
    Of a result that is a view of something else, Inductor keeps only the order of the strides: that is noted.
    """
    found = []
    for index, (one, other, what) in enumerate(zip(made, eager, whats, strict=True)):
        if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
            continue
        if one.layout != torch.strided or other.layout != torch.strided or one.shape != other.shape:
            continue
        if _strides(one) != _strides(other) and not (pads and is_padded(one, other)):
            pair = f"strides {tuple(one.stride())}", f"strides {tuple(other.stride())}"
            reason = f"its strides are {tuple(one.stride())}, and in eager {tuple(other.stride())}"
            if other._base is not None and _same_order(_strides(one), _strides(other)):
                note(f"{what} is a view, and Inductor keeps only the order of its strides: {reason}.")
                continue
            found.append(Difference(what, *instead(*pair, reason), index, "layout"))
        elif one.requires_grad != other.requires_grad:
            words = ("requires a gradient", "does not")
            reason = "it {}, and in eager it {}".format(*(words if one.requires_grad else words[::-1]))
            found.append(Difference(what, reason, None, index, "layout"))
    return found


def compare_aliases(
    made: Sequence[Any], eager: Sequence[Any], whats: Sequence[str], results: int
) -> list[Difference]:
    """Which results (the first ones) share memory with which others, or with an input."""
    found = []
    mine, theirs = [_memory(v) for v in made], [_memory(v) for v in eager]
    for i in range(results):
        for j in range(i + 1, len(made)):
            known = mine[i] and mine[j] and theirs[i] and theirs[j]
            is_shared, should_be = mine[i] == mine[j], theirs[i] == theirs[j]
            if known and is_shared != should_be:
                words = ("shares memory with", "does not")
                first, second = words if is_shared else ("does not share memory with", "it does")
                reason = f"it {first} {whats[j]}, and in eager {second}"
                sides = f"memory shared with {whats[j]}", "memory of its own"
                difference = instead(*(sides if is_shared else sides[::-1]), reason)
                found.append(Difference(whats[i], *difference, i, "alias" if is_shared else "unshared"))
    return found


def _memory(value: Any) -> int:
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or not value.numel():
        return 0
    if tensors_within(value):  # they may lie in several places
        return 0
    return value.untyped_storage().data_ptr()


def _strides(value: torch.Tensor) -> list[int]:
    if value.numel() < 2:
        return []
    return [stride for size, stride in zip(value.shape, value.stride(), strict=True) if size > 1]


def _same_order(one: Sequence[int], other: Sequence[int]) -> bool:
    pairs = itertools.combinations(zip(one, other, strict=True), 2)
    return all((a - b) * (c - d) >= 0 for (a, c), (b, d) in pairs)


def _kind(value: torch.Tensor) -> tuple[Any, ...]:
    if value.is_nested:  # the size that varies has another name in each tensor
        return value.dim(), _dense(value).shape, value.dtype, value.device
    return value.shape, value.dtype, value.device


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if _kind(one) != _kind(other):
        return False
    if (names := tensors_within(one)) and type(one) is type(other):
        return all(_equal(getattr(one, name), getattr(other, name)) for name in names)
    return is_equal(_dense(one).detach(), _dense(other).detach())


def _dense(value: torch.Tensor) -> torch.Tensor:
    if value.is_nested:
        value = value.values() if value.layout == torch.jagged else value.to_padded_tensor(0)
    if value.layout != torch.strided:
        value = value.to_dense()
    return value.resolve_conj().resolve_neg()


def _widened(value: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = widen(_dense(value).detach())
    return found


def instead(made: str, eager: str, reason: str = "") -> tuple[str, Verdict]:
    """A reason, and a verdict of which both sides are words."""
    reason = reason or f"it is {made}, and in eager {eager}"
    return reason, Verdict(True, reason=reason, numbers={"compiled": made, "eager": eager})


def _described(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"{value!r:.60}"
    dtype = str(value.dtype).removeprefix("torch.")
    return f"a tensor of {dtype}{list(value.shape)} on {value.device}"


def _same_object(one: Any, other: Any) -> bool:
    if isinstance(one, int | float | complex | str | bytes | torch.dtype | torch.device | None):
        return one == other or (one != one and other != other)
    return type(one) is type(other)
