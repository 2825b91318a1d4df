"""The reference on the other program's values: each call is judged by itself, then follows the other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch
from kernelscope.probes.listener import Listener

from .closeness import Closeness, noise_of
from .differing_inputs import Lost, effect_of
from .flow.calls_and_values import LEAF, Call, Flow, Read, Value, alias_of, memory_of, nearest, read_tensors
from .flow.kept_values import sketch_of
from .flow.other_numbers import OtherNumber, other_number
from .layouts import Layout
from .matching import Expected, Matching
from .replicas import Replicas
from .second_opinion import is_unwritten, may_run_again, with_inner_rounding

_SAME = 1e-12
_COUNTING = ("sum", "cumsum", "arange", "count_nonzero", "bincount")
_MOST_COUNTED = 2.0**53  # larger whole numbers count nothing: the least number of a dtype, as a mask


@dataclass(frozen=True, slots=True)
class Amplified:
    """A call that makes differences larger: of one rounding of its inputs, `gain` times that."""

    call: int
    gain: float
    share: float  # of the elements of an integer result: how many a rounding flips


class ReferenceRun(Listener):
    """Every operator also runs on replicas, whose distance from the program's own value is the noise."""

    def __init__(self, matching: Matching) -> None:
        self.flow = Flow()
        self.matching = matching
        self.replicas = Replicas()
        self.matched: dict[int, int] = {}  # by number of the value: of the other program's
        self.close: dict[int, Closeness] = {}
        self.unmatched: dict[int, Expected] = {}  # by number of the value
        self.lost_leaves: dict[int, Expected] = {}  # the same of what only the reference was given
        self.absorbed: dict[int, list[int]] = {}  # unmatched, and the other's in its place, by numbers
        self.harmless = set[tuple[int, int]]()  # unmatched values, and calls for which the difference is none
        self.rounded: list[tuple[Call, Value]] = []  # whole numbers that the other's dtype does not hold
        self.other_numbers: dict[int, OtherNumber] = {}  # by call
        self.amplified: list[Amplified] = []
        self.failures: list[str] = []
        self.draws_not_found: list[Call] = []
        self._noise: dict[int, float] = {}  # by number of the value
        self._eps: dict[int, float] = {}
        self._places: dict[int, torch.Tensor] = {}  # of unmatched values, by number: where they were made

    @property
    def wants_values(self) -> bool:
        return True

    def finding(self, finding: Any) -> None:
        self.failures.append(str(finding.message))

    def before(self, launch: Launch) -> Any:
        if launch.outer is not None:
            return None
        reads: list[Read] = []
        with BUS.mute(), torch.no_grad():
            for name, tensor in read_tensors(launch):
                if not self.flow.held.is_known(tensor):
                    self._leaf(tensor)
                reads.append((name, self.flow.held.of(tensor)))
            for i in launch.point.tensors:
                self.replicas.ensure(launch.flat[i])
        return reads

    def after(self, launch: Launch, reads: list[Read]) -> None:
        if launch.error is not None:
            return
        has_gradients = torch.is_grad_enabled()
        with BUS.mute(), torch.no_grad():
            has_run = False
            for call, written in self.flow.add_launch(launch, reads):
                if not has_run:
                    with torch.set_grad_enabled(has_gradients):  # some operators return less without it
                        self.replicas.run(launch, again=not call.is_draw and not launch.site.collective)
                elif call.operator == "native_dropout":
                    self.replicas.drop_out(launch)
                has_run = True
                size = max((self.flow.values[number].numel for number in call.reads), default=0)
                for name, tensor in written:
                    value = self.flow.add_value(call, name, tensor)
                    reach = size / max(tensor.numel(), 1)
                    before = self._lost_input(launch, call, tensor)
                    if self._judge(call, value, alias_of(tensor), reach):
                        self._note_absorbed(launch, call, value, tensor, before)
                        self._note_number(launch, call, value, tensor)
                    elif may_run_again(launch):
                        self._judge_again(launch, call, value, tensor)

    # -- values ------------------------------------------------------------------------------------------

    def _leaf(self, tensor: torch.Tensor) -> None:
        value, whole = self.flow.add_leaf(tensor)
        self.replicas.ensure(tensor)
        other = self.matching.leaf(whole)
        if other is not None:
            self._follow(value, other, whole)
        else:
            if value.eps:
                tensor = whole.clone()
                self.lost_leaves[value.number] = Expected(tensor, [tensor], 0.0, 0.0)
            self._keep(value, whole, self._coarsest(()))

    def _judge(self, call: Call, value: Value, tensor: torch.Tensor, reach: float) -> bool:
        """Whether the other program has it."""
        if call.is_draw:
            other = self.matching.draw(call, tensor)
            if other is None:
                self.draws_not_found.append(call)
            else:
                self._follow(value, other, tensor)
            return True
        self.matching.note_copy(self.flow, value)
        replicas = self.replicas.of(tensor)
        noise = noise_of(tensor, replicas)
        self._note_gain(call, value, noise)
        inputs = [self.matched[number] for number in nearest(self.flow, call.reads, self.matched)]
        reach = reach if reach > 1 else 0.0
        expected = Expected(tensor, replicas, reach, self._coarsest(call.reads))
        is_direct = all(number in self.matched for number in call.reads)
        found = self.matching.find(call, inputs, expected, noise, is_direct=is_direct)
        if found is None and (source := self._plain_source(call, value, tensor, inputs)) is not None:
            self._take_place(value, source)
            return True
        if found is None:
            self.unmatched[value.number] = replace(
                expected, tensor=tensor.clone(), replicas=[each.clone() for each in replicas]
            )
            self._keep(value, tensor, self._coarsest(call.reads))
            self._places[value.number] = tensor
            self._judge_whole(call, tensor)
            return False
        other, self.close[value.number] = found
        is_rounded = value.eps and sketch_of(tensor).is_whole and found[1].differing
        is_rounded = is_rounded and float(tensor.abs().max()) < _MOST_COUNTED
        is_rounded = is_rounded and (call.operator in _COUNTING or not _is_one_number(tensor))
        if is_rounded and all(self._is_exact(number) for number in call.reads):
            self.rounded.append((call, other))
        self._follow(value, other, tensor, found[1].layout)
        return True

    def _plain_source(
        self, call: Call, value: Value, tensor: torch.Tensor, inputs: list[int]
    ) -> Value | None:
        """The source of a copy that the other program does without, or has in an order of its own."""
        source = self.flow.values[call.reads[0]] if call.is_copy and len(call.reads) == 1 else None
        if source is None or (source.numel, source.dtype) != (value.numel, value.dtype):
            return None
        twin = self.matching.twin(call, inputs, value.numel, value.argument)
        if source.number not in self.matched or (twin is not None and not self._has_numbers_of(twin, tensor)):
            return None
        return source

    def _has_numbers_of(self, other: Value, tensor: torch.Tensor) -> bool:
        kept = self.matching.kept.tensors[other.number].to(tensor.device, tensor.dtype)
        return torch.equal(kept.flatten().sort().values, tensor.flatten().sort().values)

    def _take_place(self, value: Value, source: Value) -> None:
        """It stands for what its source does, and has the other program's numbers already."""
        self.matched[value.number] = self.matched[source.number]
        self._noise[value.number] = self._noise.get(source.number, 0.0)
        self._eps[value.number] = self._eps.get(source.number, 0.0)

    def _judge_again(self, launch: Launch, call: Call, value: Value, tensor: torch.Tensor) -> None:
        inputs = [self.matched[number] for number in nearest(self.flow, call.reads, self.matched)]
        other = self.matching.twin(call, inputs, value.numel, value.argument)
        if other is None:
            return
        expected = self.unmatched[value.number]
        if is_unwritten(launch, tensor, other.device):
            self.matched[value.number] = other.number
        else:
            replicas = [*expected.replicas, *with_inner_rounding(launch, tensor)]
            found = self.matching.compare(other, replace(expected, replicas=replicas), call.digits)
            if not found.within:
                return
            self.close[value.number] = found
            self._follow(value, other, alias_of(tensor), found.layout)
        self.matching.claim(other)
        del self.unmatched[value.number]

    def _lost_input(self, launch: Launch, call: Call, tensor: torch.Tensor) -> torch.Tensor | None:
        """The result as the reference has it, if one of its inputs, and only one, was not found."""
        lost = [number for number in call.reads if number in self.unmatched]
        is_one = len(lost) == 1 and lost[0] in self._places and may_run_again(launch)
        return tensor.clone() if is_one and tensor.is_floating_point() else None

    def _note_absorbed(
        self, launch: Launch, call: Call, value: Value, tensor: torch.Tensor, before: torch.Tensor | None
    ) -> None:
        if before is None or value.number not in self.close or self.close[value.number].layout is not None:
            return
        number = next(number for number in call.reads if number in self.unmatched)
        lost = Lost(number, self._places[number], self.unmatched[number])
        other = self.matching.flow.values[self.matched[value.number]]
        effect = effect_of(self.matching, launch, call, lost, before, tensor, other)
        if effect.wrong:
            self.absorbed[number] = effect.wrong
        if effect.is_harmless:
            self.harmless.add((number, call.index))

    def _note_number(self, launch: Launch, call: Call, value: Value, tensor: torch.Tensor) -> None:
        """The other program ran the same operator on the same values, perhaps with another number."""
        close = self.close.get(value.number)
        if close is None or not call.numbers or call.index in self.other_numbers:
            return
        made_by = self.matching.flow.values[self.matched[value.number]].call
        theirs = self.matching.flow.calls[made_by] if made_by != LEAF else None
        if theirs is None or theirs.operator != call.operator or theirs.numbers == call.numbers:
            return
        pairs = zip(call.reads, theirs.reads, strict=False)
        is_same = len(call.reads) == len(theirs.reads) and all(
            a in self.matched and self.matching.resolved(self.matched[a]) & self.matching.resolved(b)
            for a, b in pairs
        )
        if is_same and (found := other_number(launch, call, theirs, tensor, close.noise)) is not None:
            self.other_numbers[call.index] = found

    def _judge_whole(self, call: Call, part: torch.Tensor) -> None:
        """What was written part by part may be in the other program as a whole."""
        parts = self.flow.held.of_memory(part)
        if len(parts) < 2:
            return
        whole = memory_of(part)
        inputs = [self.matched[number] for number in nearest(self.flow, parts, self.matched)]
        replicas = self.replicas.of(whole)
        expected = Expected(whole, replicas, 0.0, self._coarsest(parts))
        found = self.matching.find(call, inputs, expected, noise_of(whole, replicas))
        if found is not None:
            value = self.flow.add_whole(call, whole)
            other, self.close[value.number] = found
            self._follow(value, other, whole, found[1].layout)

    def _is_exact(self, number: int) -> bool:
        return not self._noise.get(number)

    def _follow(self, value: Value, other: Value, tensor: torch.Tensor, layout: Layout | None = None) -> None:
        """From here on the reference has the other program's value."""
        self.matched[value.number] = other.number
        kept = self.matching.laid_out(other, layout).to(tensor.device).reshape(tensor.shape)
        # Large numbers are whole in a coarse dtype because they were rounded: those have its noise.
        is_whole = self.matching.kept.sketches[other.number].is_whole and sketch_of(tensor).is_whole
        eps = 0.0 if is_whole else max(self.matching.eps[other.number], value.eps)
        self.replicas.set(tensor, kept, eps, 0.0 if is_whole else other.tiny)
        tensor.copy_(kept)
        self._noise[value.number], self._eps[value.number] = eps / math.sqrt(12), eps

    def _keep(self, value: Value, tensor: torch.Tensor, eps: float) -> None:
        """The other program has no such value: it stays, with the uncertainty of one more rounding."""
        eps = max(eps, value.eps)
        if not sketch_of(tensor).is_whole:
            self.replicas.shake(tensor, eps)
        self._eps[value.number] = eps
        self._noise[value.number] = noise_of(tensor, self.replicas.of(tensor))

    def _coarsest(self, reads: Iterable[int]) -> float:
        return max((self._eps.get(number, 0.0) for number in reads), default=0.0)

    def _note_gain(self, call: Call, value: Value, noise: float) -> None:
        given = max((self._noise.get(number, 0.0) for number in call.reads), default=0.0)
        if given <= _SAME or not noise:
            return
        if value.eps:
            self.amplified.append(Amplified(call.index, noise / given, 0.0))
        else:
            self.amplified.append(Amplified(call.index, 0.0, noise))


def _is_one_number(tensor: torch.Tensor) -> bool:
    """And zeros: a constant, such as -10000 in a mask, and not positions."""
    others = tensor[tensor != 0]
    return not others.numel() or bool((others == others[0]).all())
