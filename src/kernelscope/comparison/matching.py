"""Which value of the other program is this one of the reference: by value, and by its place in the flow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import torch

from kernelscope.shadowing.reference.small_errors.rounding import eps_of

from .closeness import Closeness, closeness
from .flow.accumulation import PartsOfSums, is_same_turn, join_passes
from .flow.calls_and_values import LEAF, Call, Flow, Value, nearest
from .flow.coarse_values import coarsest_behind
from .flow.kept_values import KeptValues, Sketch, sketch_of
from .flow.lines import parts_alone
from .flow.multiples import is_multiple
from .flow.quick_looks import is_as_large, is_far, is_same_leaf
from .layouts import Layout, Layouts
from .rows_of_scores import MASKED
from .series import SeriesIndex

_MOST_TRIED = 24
_MOST_NEARER = 12
_MOST_SERIES = 96
_COARSE = 1e-4  # a coarser rounding is that of half precision
_FEW = 16  # elements: so few say little about which value it is
_DRAWS = {
    "bernoulli": "mask", "native_dropout": "mask", "uniform": "uniform", "rand": "uniform",
    "rand_like": "uniform", "normal": "normal", "randn": "normal", "randn_like": "normal",
    "normal_functional": "normal", "random": "integers", "randint": "integers", "randint_like": "integers",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Expected:
    """A value of the reference, and how far rounding moves it."""

    tensor: torch.Tensor
    replicas: Sequence[torch.Tensor]
    reach: float  # how many numbers went into one element
    coarse: float  # one rounding of its inputs


class Matching:
    """The values of the other program, and which of them stand for values of the reference."""

    def __init__(self, flow: Flow, kept: KeptValues) -> None:
        self.flow, self.kept = flow, kept
        self.claimed: set[int] = set()
        self.in_part: set[int] = set()  # scores of which the other program has a part: those in a window
        self._by_size: dict[int, list[Value]] = defaultdict(list)
        for value in flow.values:
            self._by_size[value.numel].append(value)
        self._origins = [self._origins_of(value) for value in flow.values]
        self.eps = [self._rounding_of(value) for value in flow.values]
        join_passes(flow)
        self.series = SeriesIndex(flow, kept)
        self.sums = PartsOfSums(flow)
        self.layouts = Layouts()
        for value in flow.values:
            self.note_copy(flow, value)
        self._last = 0  # the call of the last match

    def _origins_of(self, value: Value) -> frozenset[int]:
        """Itself, and what it is a copy of."""
        found, todo = {value.number}, list(value.sources)
        while todo:
            number = todo.pop()
            if number not in found:
                found.add(number)
                todo += self.flow.values[number].sources
        return frozenset(found)

    def note_copy(self, flow: Flow, value: Value) -> None:
        if len(value.sources) == 1:
            self.layouts.note_copy(flow.values[value.sources[0]].shape, value.shape)

    def _rounding_of(self, value: Value) -> float:
        """The coarsest rounding that it meets: of its own dtype, and of the calls that read it."""
        if not value.eps:
            return 0.0
        return max([value.eps, *(self.flow.calls[call].eps for call in value.readers)])

    # -- leaves and draws --------------------------------------------------------------------------------

    def leaf(self, tensor: torch.Tensor) -> Value | None:
        """What both programs were given; it may have been rounded."""
        found = [v for v in self._by_size[tensor.numel()] if v.call == LEAF]
        for value in sorted(found, key=lambda v: v.number in self.claimed):
            kept = self.kept.tensors[value.number]
            eps = 2 * max(value.eps, torch.finfo(tensor.dtype).eps if tensor.is_floating_point() else 0.0)
            if tuple(value.shape) == tuple(tensor.shape) and is_same_leaf(kept, tensor, eps):
                self.claimed.add(value.number)
                return value
        return None

    def draw(self, call: Call, tensor: torch.Tensor) -> Value | None:
        """The next random numbers of this kind and size; of dropout's, the next mask of zeros and ones."""
        wanted = _DRAWS.get(call.operator, call.operator)
        for value in self._by_size[tensor.numel()]:
            if value.number in self.claimed or value.call == LEAF:
                continue
            made_by = self.flow.calls[value.call]
            kind = _DRAWS.get(made_by.operator, made_by.operator)
            if made_by.is_draw and kind == wanted and (kind != "mask" or self._is_mask(value)):
                self.claimed.add(value.number)
                return value
        if wanted == "mask":
            return next((v for v in self._by_size[tensor.numel()] if self._is_new_mask(v)), None)
        return None

    def _is_mask(self, value: Value) -> bool:
        kept = self.kept.tensors[value.number]
        return self.kept.sketches[value.number].is_whole and bool(((kept == 0) | (kept == 1)).all())

    def _is_new_mask(self, value: Value) -> bool:
        if value.number in self.claimed or value.dtype != "bool" or value.call == LEAF:
            return False
        self.claimed.add(value.number)
        return True

    # -- values ------------------------------------------------------------------------------------------

    def find(
        self, call: Call, reads: Iterable[int], expected: Expected, noise: float, *, is_direct: bool = True
    ) -> tuple[Value, Closeness] | None:
        """The first that is as close as rounding explains, those in the same place of the flow first.

        `is_direct`: the call itself reads what these values stand for, and not something computed from it.
        """
        reads = list(reads)
        inputs = {n for number in reads for n in self._origins[number]}
        candidates = self._candidates(call, inputs, expected.tensor, noise)
        wholes = inputs.difference(
            *(parts_alone(self.flow, number) for number in reads)
        )  # a call that reads a part of what this one reads is no twin
        if is_direct and self._has_twin(call, wholes, expected.tensor.numel()):
            twins = [(v, shared) for v, shared in candidates if self._is_twin(call, v, shared)]
            numbers = {value.number for value, _ in twins}
            candidates = twins + [(v, 1) for v, _ in candidates if is_multiple(self.flow, v, numbers)]
        for place, (value, shared) in enumerate(candidates):
            found = self.compare(value, expected, call.digits)
            if found.within and (shared or self._is_near(call, value, inputs)):
                rest = [v for v, alike in candidates[place + 1 :] if alike == shared]
                best = self._nearest((value, found), rest, expected, call.digits)
                self.claim(best[0])
                return best
        return self._find_series(call, inputs, expected, noise) or self._find_sum(call, inputs, expected)

    def _nearest(
        self, first: tuple[Value, Closeness], rest: list[Value], expected: Expected, digits: float
    ) -> tuple[Value, Closeness]:
        """In float32 a value before an epsilon is added to it fits, too, and is not the same."""
        best, shape = first, first[0].shape
        if max(best[1].difference, best[1].relative) <= first[0].eps or first[0].eps > _COARSE:
            return best
        for value in rest[:_MOST_NEARER]:
            if value.number not in self.claimed and value.shape == shape:
                found = self.compare(value, expected, digits)
                best = (value, found) if _is_nearer(found, best[1]) else best
        return best

    def twin(self, call: Call, reads: Iterable[int], numel: int, argument: str) -> Value | None:
        """What the same operator made of the same inputs, and nothing stands for."""
        inputs = {n for number in reads for n in self._origins[number]}
        for value in self._by_size[numel]:
            if value.number in self.claimed or value.call == LEAF or value.argument != argument:
                continue
            if self._is_twin(call, value, self._shared(self.flow.calls[value.call], inputs)):
                return value
        return None

    def claim(self, value: Value) -> None:
        self.claimed.add(value.number)
        self._last = max(self._last, value.call)

    def _find_series(
        self, call: Call, inputs: set[int], expected: Expected, noise: float
    ) -> tuple[Value, Closeness] | None:
        """What the other program makes step by step."""
        tensor, sketch = expected.tensor, sketch_of(expected.tensor)

        def may_be(part: Value, rms: float) -> bool:
            return not part.eps or is_as_large(Sketch(rms, False), sketch, part, noise)

        found_series = self.series.fitting(call.operator, tensor, self._order, may_be)
        near = (
            each for each in found_series if not is_far(each[1], tensor, noise, each[0][0], expected.reach)
        )
        for parts, whole in islice(near, _MOST_SERIES):
            if any(not is_same_turn(call, self.flow.calls[part.call]) for part in parts):
                continue
            found = self.compare_tensor(whole, parts, expected)
            if found.within and any(self._is_near(call, part, inputs) for part in parts):
                return self._add_series(parts, whole), found
        return None

    def _find_sum(self, call: Call, inputs: set[int], expected: Expected) -> tuple[Value, Closeness] | None:
        """What the other program makes of each part of a batch: a sum or a mean of these."""
        fitting, is_loss = [self.sums.fitting(call, expected.tensor)], call.phase != "backward"
        if is_loss:  # it may be computed by other steps
            fitting.append(self.sums.fitting(call, expected.tensor, any_operator=True))
        for parts in chain(*fitting):
            if any(part.number in self.claimed for part in parts):
                continue
            kept = [self.kept.tensors[part.number].to(expected.tensor.device) for part in parts]
            total = torch.stack([each.to(expected.tensor.dtype) for each in kept]).sum(0)
            for whole in (total, total / len(parts)) if is_loss else (total,):
                found = self.compare_tensor(whole, parts, expected)
                if found.within and any(self._is_near(call, part, inputs) for part in parts):
                    return self._add_series(parts, whole), found
        return None

    def _order(self, value: Value) -> tuple[bool, int]:
        """What nothing stands for first, and then what was made near the last match."""
        return value.number in self.claimed, abs(value.call - self._last)

    def _add_series(self, parts: list[Value], whole: torch.Tensor) -> Value:
        value = self.flow.add_series(parts, whole)
        self.kept.add(value.number, whole)
        self._origins.append(self._origins_of(value))
        self.eps.append(max(self.eps[part.number] for part in parts))
        self.claimed.update((value.number, *(part.number for part in parts)))
        rest = value.numel - sum(part.numel for part in parts)
        is_masked = int(((whole <= MASKED) | (whole == 0)).sum()) >= rest
        if rest and not is_masked and parts[-1].shape[-1] < value.shape[-1]:
            self.in_part.update(part.number for part in parts)
        return value

    def compare(self, value: Value, expected: Expected, digits: float = 0.0) -> Closeness:
        """`digits`: one rounding that a library may do inside the reference's own call."""
        eps = max(self.flow.calls[value.call].eps if value.call != LEAF else value.eps, value.eps, digits)
        shape = expected.tensor.shape
        kept = self.kept.tensors[value.number].to(expected.tensor.device)
        best = close_to(expected, kept, eps, value.tiny)
        if not best.within and (behind := coarsest_behind(self.flow, value, self.claimed)) > eps:
            eps = behind
            best = close_to(expected, kept, eps, value.tiny)
        for layout in () if best.within else self.layouts.between(value.shape, tuple(shape)):
            found = close_to(expected, layout.of(kept).reshape(shape), eps, value.tiny)
            if found.excess < best.excess:
                best = replace(found, layout=layout)
        return best

    def compare_tensor(self, whole: torch.Tensor, parts: list[Value], expected: Expected) -> Closeness:
        """What was put together of parts."""
        eps = max(max(self.flow.calls[part.call].eps, part.eps) for part in parts)
        return close_to(expected, whole, eps, parts[0].tiny)

    def laid_out(self, value: Value, layout: Layout | None) -> torch.Tensor:
        kept = self.kept.tensors[value.number]
        return kept if layout is None else layout.of(kept)

    def compare_unmasked(self, value: Value, expected: Expected) -> Closeness:
        """But for elements that are a mask's in both, of which a softmax makes zeros."""
        kept, tensor = self.kept.tensors[value.number].to(expected.tensor.device), expected.tensor
        if value.eps and tensor.is_floating_point():
            masked = (tensor <= MASKED) & (kept.reshape(tensor.shape) <= MASKED)
            if masked.any():
                other = kept.reshape(tensor.shape).masked_fill(masked, 0.0)
                replicas = [each.masked_fill(masked, 0.0) for each in expected.replicas]
                own = replace(expected, tensor=tensor.masked_fill(masked, 0.0), replicas=replicas)
                return close_to(own, other, value.eps, value.tiny)
        return self.compare(value, expected)

    def _candidates(
        self, call: Call, inputs: set[int], tensor: torch.Tensor, noise: float
    ) -> list[tuple[Value, int]]:
        sketch, found = sketch_of(tensor), []
        is_float = tensor.is_floating_point() or tensor.is_complex()
        for value in self._by_size[tensor.numel()]:
            if value.call == LEAF or bool(value.eps) != is_float:
                continue
            made_by = self.flow.calls[value.call]
            if not is_same_turn(call, made_by):
                continue
            shared = self._shared(made_by, inputs)
            other = self.kept.sketches[value.number]
            is_large = not is_float or is_as_large(other, sketch, value, noise)
            if is_large or self._is_twin(call, value, shared):
                found.append((value, shared, made_by))
        found.sort(
            key=lambda each: (
                each[0].number in self.claimed, each[0].shape != tuple(tensor.shape), -each[1],
                each[2].turn != call.turn, each[2].operator != call.operator, abs(each[2].index - self._last),
            )
        )  # fmt: skip
        return [(value, shared) for value, shared, _ in found[:_MOST_TRIED]]

    def resolved(self, number: int) -> frozenset[int]:
        """A value, and those that it is a copy of, perhaps in another dtype."""
        return self._origins[number]

    def _shared(self, call: Call, inputs: set[int]) -> int:
        """How many of its inputs are these values, or copies of them."""
        return sum(bool(self._origins[number] & inputs) for number in call.reads)

    def _has_twin(self, call: Call, inputs: set[int], numel: int) -> bool:
        """Whether the same operator made something of the same inputs: then it is that, or nothing."""
        return any(
            value.number not in self.claimed
            and value.call != LEAF
            and self._is_twin(call, value, self._shared(self.flow.calls[value.call], inputs))
            for value in self._by_size[numel]
        )

    def _is_twin(self, call: Call, value: Value, shared: int) -> bool:
        made_by = self.flow.calls[value.call]
        alike = (made_by.operator, made_by.kind) == (call.operator, call.kind) and is_same_turn(call, made_by)
        return alike and bool(call.reads) and shared == len(call.reads) == len(made_by.reads)

    def _is_near(self, call: Call, value: Value, inputs: set[int]) -> bool:
        """Computed from the same values in a few steps; or from none, by the same operator."""
        made_by = self.flow.calls[value.call]
        found = nearest(self.flow, made_by.reads, self.claimed)
        if made_by.is_fused:  # which may leave both what it computes on the way and what it makes of that
            found |= self.claimed.intersection(made_by.writes)
        if not inputs and not found:
            return made_by.operator == call.operator or self.says_much(value.number)
        return any(self._origins[number] & inputs for number in found)

    def says_much(self, number: int) -> bool:
        """A few numbers, or one number many times, are found everywhere."""
        kept = self.kept.tensors[number]
        return kept.numel() >= _FEW and bool((kept != kept.reshape(-1)[0]).any())


def _is_nearer(found: Closeness, best: Closeness) -> bool:
    if found.difference < best.difference / 2:
        return True
    return found.difference <= best.difference and found.relative < best.relative / 2


def close_to(expected: Expected, other: torch.Tensor, eps: float, tiny: float) -> Closeness:
    """The coarser of the two dtypes decides, which may be the reference's."""
    eps = max(eps, eps_of(expected.tensor.dtype))
    return closeness(other, expected.tensor, expected.replicas, eps, expected.reach, tiny, expected.coarse)
