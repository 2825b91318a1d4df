"""The first call at which several ranks together do not hold what one process holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from kernelscope.model.call import KernelCall

from .declared import Declared
from .followed import Rerun, from_what_was_read
from .mismatch import Mismatch
from .observed import HASHES, SAVED, STATISTICS, Observed
from .open_questions import OpenQuestions
from .pairing import Pairing
from .part import Part, inputs, outputs
from .split_embeddings import is_masked
from .tracing import Layouts
from .values.fits import Allowed, Fit, best, eps_of
from .values.layouts import Layout, Mesh, possible_layouts

_CANCELLED = 64.0  # roundings of each number that was added up
_UNSEEN_GAIN = 4.0  # of noise, by a call that was not compared

# Whether rounding explains the error of a result of the reference's call, given the noise of each of its
# inputs; None: not known.
SecondOpinion = Callable[[Part, KernelCall, int, float, Mapping[int, float]], bool | None]


class Search:
    """Goes through the reference's calls in order, up to the first mismatch."""

    def __init__(
        self, reference: Part, ranks: Sequence[Part], second_opinion: SecondOpinion, rerun: Rerun,
        is_elementwise: Callable[[KernelCall], bool],
    ) -> None:  # fmt: skip
        self.reference, self.ranks = reference, list(ranks)
        self.pairing = Pairing(reference, ranks)
        self._second_opinion, self._rerun, self._is_elementwise = second_opinion, rerun, is_elementwise
        self.world = Mesh((len(ranks),), tuple(part.rank for part in ranks))
        self.mesh = self._largest_mesh()
        self.layouts: Layouts = {}
        self._noise: dict[int, float] = {}  # by storage of the reference
        self.compared = self.declared = self.without_values = self.unpaired = 0
        self.by: dict[str, set[int]] = {SAVED: set(), STATISTICS: set(), HASHES: set()}  # calls, by means
        self.amplified: list[KernelCall] = []  # of the reference, whose errors only a second opinion explains
        self.undecided: list[KernelCall] = []
        self._alone: set[int] = set()  # calls of the reference without a counterpart
        self._open = OpenQuestions()
        self._counts_before: dict[int, tuple[int, int, int, int]] = {}  # by call of an open question

    def alone(self, until: int | None = None) -> tuple[int, int]:
        """Of the calls that lead to the gradients, how many have no counterpart, and how many there are."""
        leading = [
            call.index
            for call in self.reference.calls
            if call.phase != "optimizer" and (until is None or call.index < until)
        ]
        return sum(index in self._alone for index in leading), len(leading)

    def _largest_mesh(self) -> Mesh:
        known = [
            mesh
            for mesh in self.ranks[0].dtensors.meshes.values()
            if set(mesh.ranks) == set(self.world.ranks)
        ]
        return max(known, key=lambda mesh: len(mesh.shape), default=self.world)

    def first_mismatch(self) -> Mismatch | None:
        for call in self.reference.calls:
            found = self._look_at(call)
            if found is not None:
                return found
        unanswered, answered = self._open.answers()
        self._alone |= {each.reference.index for each in answered}
        self.unpaired += len(answered)
        if unanswered is not None:
            self._forget_after(unanswered)
        return unanswered

    def _forget_after(self, found: Mismatch) -> None:
        """What follows a difference was only compared to see whether it is one."""
        last = found.reference.index
        self.compared, self.declared, self.without_values, self.unpaired = self._counts_before[last]
        for calls in (self.amplified, self.undecided):
            calls[:] = [call for call in calls if call.index <= last]
        self.by = {means: {each for each in calls if each <= last} for means, calls in self.by.items()}
        self.layouts = {at: fit for at, fit in self.layouts.items() if at[0] <= found.calls[0].index}

    def _look_at(self, call: KernelCall) -> Mismatch | None:
        noise = max((self.noise_of(call, i) for i in inputs(call)), default=0.0)
        likely: list[Mismatch] = []
        has_values = False
        for candidate in self.pairing.candidates(call):
            calls = self.pairing.on_all_ranks(candidate)
            if calls is None:
                continue
            found = self._compared(call, calls, noise)
            if found is None:
                continue
            has_values = True
            if isinstance(found, Mismatch):
                likely.append(found)
                continue
            self.pairing.take(candidate)
            self._note(call, calls, found)
            return None
        self._carry(call, noise)
        partner = self.pairing.likely(call)
        mine = [each for each in likely if partner is not None and each.calls[0] is partner]
        if not mine:
            if partner is None or has_values:
                self.unpaired += 1
                self._alone.add(call.index)
                self._open.made_alone(call)
            self.without_values += partner is not None and not has_values
            return None
        found = self._confirmed(call, mine[0])
        if found is not None and self._reads_what_is_open(found):
            self._open.ask(found)
            counts = self.compared, self.declared, self.without_values, self.unpaired
            self._counts_before[call.index] = counts
            return None
        return found

    def _reads_what_is_open(self, found: Mismatch) -> bool:
        """Whether an input is not the reference's, and was made by calls that the ranks do not make alike."""
        call = found.reference
        read = [found.position] if found.moment == "before" else inputs(call)
        for i in read:
            if self._open.has(call, i) and i < len(found.calls[0].arguments):
                fits = self.fits(call, found.calls, i, "before", self.noise_of(call, i))
                if not any(each.is_good for each in fits):
                    return True
        return False

    def _confirmed(self, call: KernelCall, found: Mismatch) -> Mismatch | None:
        error = found.nearest.error if found.nearest is not None else math.inf
        if found.moment == "after" and math.isfinite(error):
            explained = self._is_explained(call, found, error)
            if explained is None and error <= _CANCELLED * self._cancelled(call, found.position):
                explained = True
            if explained:
                self.amplified.append(call)
                self.pairing.take(found.calls[0])
                for position in outputs(call):
                    if position in call.storages:
                        self._noise[call.storages[position][0]] = error
                return None
            if explained is None:
                self.undecided.append(call)
        return found

    def _is_explained(self, call: KernelCall, found: Mismatch, error: float) -> bool | None:
        """Whether rounding before it, and its own, explain the error of a result; None: not known."""
        again = from_what_was_read(self, self._rerun, call, found.calls, found.position)
        if again is not None and (again.is_good or self._is_elementwise(call)):
            return again.is_good
        return self._second_opinion(self.reference, call, found.position, error, found.noises)

    def _cancelled(self, call: KernelCall, position: int) -> float:
        """What rounding of the numbers that a call adds up may be, relative to their sum."""
        sizes = [self.reference.size(call, i, "before") for i in inputs(call)]
        size, spec = self.reference.size(call, position, "after"), call.arguments[position].tensor
        known = [each for each in sizes if each is not None]
        if not size or spec is None or len(known) < len(sizes):
            return 0.0
        return eps_of(spec) * max([*known, math.prod(known)]) * _reach(call, spec.numel) / size

    def _note(self, call: KernelCall, calls: list[KernelCall], fits: dict[int, Fit]) -> None:
        self.compared += 1
        self._open.agrees(call, fits)
        for position, each in fits.items():
            if position in calls[0].storages:
                self.layouts[calls[0].index, calls[0].storages[position][0]] = each
            if position in call.storages:
                least = self._cancelled(call, position) if call.index in self.by[STATISTICS] else 0.0
                self._noise[call.storages[position][0]] = max(each.error, least)

    def noise_of(self, call: KernelCall, position: int) -> float:
        """How far the ranks are from what an argument of the reference holds, relative to it."""
        place = call.storages.get(position)
        return self._noise.get(place[0], 0.0) if place else 0.0

    def _noises(self, call: KernelCall) -> dict[int, float]:
        return {i: self.noise_of(call, i) for i in inputs(call)}

    def _carry(self, call: KernelCall, noise: float) -> None:
        for position in outputs(call):
            if position in call.storages:
                least = self._cancelled(call, position)
                self._noise[call.storages[position][0]] = max(_UNSEEN_GAIN * noise, least)

    # -- one call ----------------------------------------------------------------------------------------

    def _compared(
        self, call: KernelCall, calls: list[KernelCall], noise: float
    ) -> dict[int, Fit] | Mismatch | None:
        """How each result is laid out; None where the runs have no values to compare."""
        mine, theirs = outputs(call), outputs(calls[0])
        if mine != theirs:
            return None
        found: dict[int, Fit] = {}
        wrong: Mismatch | None = None
        for position in mine:
            declared = self.declaration(calls[0], position, is_result=True)
            if declared is None and self._is_masked_on_a_part(calls[0], position):
                continue
            near = self.nearest(call, calls, position, "after", declared, noise)
            if near is not None and not near.is_good:
                wrong = Mismatch(call, calls, position, "after", declared, near, self._noises(call))
                break
            if near is not None:
                found[position] = near
        if wrong is None:
            wrong = self._unfounded(call, calls, found)
        if not found and wrong is None:
            return None
        claims = (self._misdeclared(call, calls, position) for position in inputs(call))
        return next((claim for claim in claims if claim is not None), wrong or found)

    def _is_masked_on_a_part(self, call: KernelCall, position: int) -> bool:
        """Whether rows were looked up within a part of the mesh: how the others hold them is not declared."""
        found = self.ranks[0].dtensors.of_argument(call, position, is_result=True)
        return found is not None and is_masked(found.layout)

    def _unfounded(
        self, call: KernelCall, calls: list[KernelCall], found: Mapping[int, Fit]
    ) -> Mismatch | None:
        """A result that only the noise of the inputs excuses, although it does not follow from them."""
        for position, fit in found.items():
            spec = call.arguments[position].tensor
            own = Allowed(eps_of(spec), 1.0, 0.0).limit(1.0)
            if fit.error <= own or not self._is_elementwise(call):
                continue
            again = from_what_was_read(self, self._rerun, call, calls, position)
            if again is not None and not again.is_good:
                declared = self.declaration(calls[0], position, is_result=True)
                noises = self._noises(call)
                return Mismatch(call, calls, position, "after", declared, again, noises, does_not_follow=True)
        return None

    def _misdeclared(self, call: KernelCall, calls: list[KernelCall], position: int) -> Mismatch | None:
        if position >= len(calls[0].arguments) or calls[0].arguments[position].tensor is None:
            return None
        declared = self.declaration(calls[0], position, is_result=False)
        if declared is None:
            return None
        self.declared += 1
        near = self.nearest(call, calls, position, "before", declared, self.noise_of(call, position))
        if near is None or near.is_good:
            return None
        return Mismatch(call, calls, position, "before", declared, near, self._noises(call))

    def declaration(self, call: KernelCall, position: int, *, is_result: bool) -> Declared | None:
        """Of the first rank; only where its mesh has all ranks."""
        found = self.ranks[0].dtensors.of_argument(call, position, is_result=is_result)
        return found if found is not None and set(found.mesh.ranks) == set(self.world.ranks) else None

    def nearest(
        self, call: KernelCall, calls: list[KernelCall], position: int, moment: str,
        declared: Declared | None, noise: float,
    ) -> Fit | None:  # fmt: skip
        """In the declared layout, or in whichever fits best; None without values."""
        if declared is not None:
            return best(self.fits(call, calls, position, moment, noise, (declared.mesh, declared)))
        return best(self.fits(call, calls, position, moment, noise), noise)

    def fits(
        self, call: KernelCall, calls: list[KernelCall], position: int, moment: str, noise: float,
        only: tuple[Mesh, Declared] | None = None, phase: str | None = None,
    ) -> Iterator[Fit]:  # fmt: skip
        """One after the other, in all layouts that the shapes allow."""
        seen = self.observed(call, calls, position, moment, noise)
        if seen is None:
            return
        self.by[seen.means].add(call.index)
        for mesh, layout in self.layouts_of(call, calls, position, only[1] if only else None, phase):
            found = seen.fit(mesh, layout, is_declared=only is not None)
            if found is not None:
                yield found

    def observed(
        self, call: KernelCall, calls: list[KernelCall], position: int, moment: str, noise: float
    ) -> Observed | None:
        """What was recorded of an argument or result; None where nothing was."""
        spec = call.arguments[position].tensor
        specs = [each.arguments[position].tensor for each in calls]
        if spec is None or any(each is None for each in specs):
            return None
        allowed = Allowed(eps_of(spec, *specs), _reach(call, spec.numel), noise)
        seen = Observed(self.reference, self.ranks, call, calls, position, moment, allowed)
        return seen if seen.means else None

    def _may_be_norms(self, call: KernelCall, on_rank: KernelCall, position: int) -> bool:
        """Whether each rank may hold the norm of its own part: a norm, or what is made of norms."""
        is_result = call.arguments[position].returned
        if is_result and "norm" in call.kernel_name:
            return True
        return any(self._holds_norms(on_rank, i) for i in (inputs(on_rank) if is_result else [position]))

    def _holds_norms(self, call: KernelCall, position: int) -> bool:
        writer, place = self.ranks[0].writer(call, position), call.storages.get(position)
        known = self.layouts.get((writer.index, place[0])) if writer is not None and place else None
        return known is not None and known.layout.is_of_norms

    def layouts_of(
        self, call: KernelCall, calls: list[KernelCall], position: int, declared: Declared | None,
        phase: str | None = None,
    ) -> Iterator[tuple[Mesh, Layout]]:  # fmt: skip
        """The declared one, or all that the shapes allow."""
        if declared is not None:
            yield declared.mesh, declared.layout
            return
        spec = call.arguments[position].tensor
        specs = {p.rank: each.arguments[position].tensor for p, each in zip(self.ranks, calls, strict=True)}
        shapes = {rank: each.shape for rank, each in specs.items() if each is not None}
        if spec is None or len(shapes) < len(specs):
            return
        is_norm = self._may_be_norms(call, calls[0], position)
        for mesh in dict.fromkeys((self.mesh, self.world)):
            for layout in possible_layouts(shapes, spec.shape, mesh, phase or call.phase, is_norm=is_norm):
                yield mesh, layout


def _reach(call: KernelCall, elements: int) -> float:
    largest = max((arg.tensor.numel for i in inputs(call) if (arg := call.arguments[i]).tensor), default=1)
    return largest / max(elements, 1) if elements < largest else 1.0
