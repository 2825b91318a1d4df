"""Why the ranks together do not hold the reference's value."""

from __future__ import annotations

from collections.abc import Iterator

from kernelscope.analysis.ranks.rank import communicates
from kernelscope.model.call import KernelCall

from .declared import Declared
from .mismatch import Mismatch
from .observed import HASHES
from .part import inputs
from .result import NOT_REDUCED, PLACEMENT, VALUES, CallPlace, ShardedDifference
from .search import Search
from .split_embeddings import is_masked, looking_elsewhere
from .tracing import Source, claims, first_term, source_of
from .values.fits import Fit
from .values.layouts import Layout
from .which_ranks import named, other_numbers

_A_TERM = "each rank has one term of a sum, and only the sum of all terms is the reference's value"
_NO_LAYOUT = "the ranks' values of {0} do not make up the reference's {0} in any layout"
_SAME_INPUTS = "the ranks have the same inputs as the reference"


def _of_unknown_source(name: str, through: tuple[KernelCall, ...]) -> str:
    said = _NO_LAYOUT.format(name)
    if not through:
        return f"{said}, and no recorded call computed {name}; were both given the same parameters and batch?"
    last = next((call for call in through if not communicates(call.site)), through[0])
    return (
        f"{said}; it was computed from values without a counterpart in the run of one process, up to call "
        f"{last.index}, {last.kernel_name}"
    )


def explained(search: Search, found: Mismatch) -> ShardedDifference:
    return _Explanation(search, found).difference()


class _Explanation:
    def __init__(self, search: Search, found: Mismatch) -> None:
        self._search, self._found = search, found
        self._part, self._call = search.ranks[0], found.calls[0]
        self._inputs = dict(self._held_inputs())

    def difference(self) -> ShardedDifference:
        found = self._found
        position, name = found.position, self._call.arguments[found.position].name
        held = self._held(position, found.moment)
        if found.declared is not None and found.reference.index in self._search.by[HASHES]:
            reason = (
                f"{name} is declared {found.declared.layout}, but the ranks have different values; hashes "
                "cannot show how they differ: record both runs with --values save"
            )
            return self._made(VALUES, name, reason)
        if found.does_not_follow:
            return self._other(name)
        if found.declared is not None and held is not None:
            return self._misdeclared(name, found.declared, held)
        if found.declared is not None and (ranks := self._looking_elsewhere(found.declared)):
            reason = (
                f"{named(ranks)} {'reads' if len(ranks) == 1 else 'read'} rows that differ from the "
                "reference's: the indices differ, or the number of the first row in a rank's part"
            )
            return self._made(VALUES, name, reason, ranks=ranks)
        terms = [i for i, each in self._inputs.items() if each is not None and each.layout.is_partial]
        if terms and found.moment == "after":
            some = self._apart(terms[0], "before")
            return self._of_some(terms[0], some) if some else self._not_reduced(terms[0])
        lost = [i for i, each in self._inputs.items() if each is None]
        if found.moment == "before":
            lost = [position]
        return self._lost(lost[0]) if lost else self._other(name)

    def _looking_elsewhere(self, declared: Declared) -> tuple[int, ...]:
        if not is_masked(declared.layout):
            return ()
        both = list(zip(self._search.ranks, self._found.calls, strict=True))
        reference, call = self._search.reference, self._found.reference
        return looking_elsewhere(reference, call, both, declared.mesh, declared.layout)

    def _misdeclared(self, name: str, declared: Declared, held: Fit) -> ShardedDifference:
        said = f"{name} is declared {declared.layout} of a tensor of shape {list(declared.shape)}"
        if held.layout.is_partial and not declared.layout.is_partial:
            return self._made(
                NOT_REDUCED, name, f"{said}, but {_A_TERM}; it was never reduced", held=held.layout
            )
        if held.layout.is_replicated and declared.layout.is_partial:
            reason = f"{said}, but each rank already has the whole sum: a reduction would add it again"
        else:
            reason = f"{said}, but its parts give the reference's value when put together as {held.layout}"
        return self._made(PLACEMENT, name, reason, held=held.layout)

    def _not_reduced(self, position: int) -> ShardedDifference:
        name = self._call.arguments[position].name
        fit = self._inputs[position]
        assert fit is not None
        since = first_term(self._part, self._search.layouts, self._call, position)
        claim = claims(self._part, since, self._call) if since is not None else None
        said = f"; a DTensor declares it {claim.layout}" if claim is not None else ""
        if fit.layout.placements == ("Partial(avg)",):
            reason = f"{name} is not reduced: only the mean over the ranks is the reference's value{said}"
        elif fit.layout.is_of_norms:
            reason = f"{name} is not reduced: each rank has the norm of its own part{said}"
        else:
            reason = f"{name} is not reduced: {_A_TERM}{said}"
        began = since[0] if since is not None else None
        return self._made(NOT_REDUCED, name, reason, held=fit.layout, since=began, claim=claim)

    def _lost(self, position: int) -> ShardedDifference:
        """An input that is in no layout what the reference reads."""
        name = self._call.arguments[position].name
        if some := self._apart(position, "before"):
            return self._of_some(position, some)
        source = source_of(self._part, self._search.layouts, self._call, position)
        if not isinstance(source, Source):
            return self._made(VALUES, name, _of_unknown_source(name, source))
        was = source.fit.layout
        if source.is_unreduced:
            claim = claims(self._part, (source.call, source.storage), self._call)
            said = f"; a DTensor declares it {claim.layout}" if claim is not None else ""
            reason = f"{name} was computed from terms of a sum that no collective added{said}"
            return self._made(NOT_REDUCED, name, reason, held=was, since=source.call, claim=claim)
        if source.collective is not None:
            reason = (
                f"{_NO_LAYOUT.format(name)}: their layout was {was}, and call {source.collective.index}, "
                f"{source.collective.kernel_name}, joined the parts in another way"
            )
            return self._made(PLACEMENT, name, reason, held=was, since=source.call)
        reason = f"{_NO_LAYOUT.format(name)}; the last layout in which they did was {was}"
        return self._made(VALUES, name, reason, held=was, since=source.call)

    def _of_some(self, position: int, ranks: tuple[int, ...]) -> ShardedDifference:
        """An input that only some ranks do not have as the reference has it."""
        name, first = self._call.arguments[position].name, self._search.world.ranks.index(ranks[0])
        calls = self._found.calls
        writer = self._search.ranks[first].writer(calls[first], position)
        reason = (
            f"{named(ranks)} {'reads' if len(ranks) == 1 else 'read'} a {name} that differs from the "
            "reference's; the other ranks read the right one"
        )
        return self._made(VALUES, name, reason, since=writer, ranks=ranks)

    def _other(self, name: str) -> ShardedDifference:
        ranks = self._search.world.ranks
        if others := list(other_numbers(self._found.reference, self._found.calls, ranks)):
            apart = tuple(rank for rank in ranks if any(rank in each.given for each in others))
            reason = f"{_SAME_INPUTS}, but {'; '.join(map(str, others))}"
            return self._made(VALUES, name, reason, ranks=apart)
        if self._found.does_not_follow:
            reason = "running the operator again on the ranks' inputs does not give the ranks' results"
            return self._made(VALUES, name, reason)
        kinds = {str(each.layout) for each in self._inputs.values() if each is not None}
        sharded = {each for each in kinds if "Shard" in each}
        if len(kinds) > 1 and sharded:
            reason = (
                f"the ranks' inputs are right ({self._listed()}), but the operator combined parts that do "
                "not belong together: an argument does not have the layout that the operator needs"
            )
            return self._made(PLACEMENT, name, reason)
        if apart := self._apart(self._found.position, self._found.moment):
            reason = f"{_SAME_INPUTS}, but the result of {named(apart)} differs from its result"
            return self._made(VALUES, name, reason, ranks=apart)
        reason = f"{_SAME_INPUTS}, but their results do not make up its result in any layout"
        return self._made(VALUES, name, reason)

    def _apart(self, position: int, moment: str) -> tuple[int, ...]:
        """The ranks whose part is not the reference's, if those of others are."""
        found = self._found
        if moment == "after":
            noise = max(found.noises.values(), default=0.0)
        else:
            noise = found.noises.get(position, 0.0)
        seen = self._search.observed(found.reference, found.calls, position, moment, noise)
        if seen is None:
            return ()
        declared = self._search.declaration(self._call, position, is_result=moment == "after")
        layouts = self._search.layouts_of(found.reference, found.calls, position, declared, "optimizer")
        fits = [seen.fit(mesh, layout, is_declared=declared is not None) for mesh, layout in layouts]
        near = min((each for each in fits if each is not None), key=lambda each: each.error, default=None)
        apart = seen.ranks_apart(near) if near is not None else ()
        return apart if len(apart) < len(found.calls) else ()

    def _listed(self) -> str:
        names = self._call.arguments
        return ", ".join(
            f"{names[i].name} {each.layout}" for i, each in self._inputs.items() if each is not None
        )

    def _held_inputs(self) -> Iterator[tuple[int, Fit | None]]:
        """How the ranks hold each input; None if in no layout."""
        reference = self._found.reference
        for i in inputs(reference):
            if i < len(self._call.arguments) and self._call.arguments[i].tensor is not None:
                all_fits = list(self._fits(i, "before"))
                if all_fits:
                    yield i, next((each for each in all_fits if each.is_good), None)

    def _held(self, position: int, moment: str) -> Fit | None:
        return next((each for each in self._fits(position, moment) if each.is_good), None)

    def _fits(self, position: int, moment: str) -> Iterator[Fit]:
        found = self._found
        noise = found.noises.get(position, 0.0)
        phase = "backward" if found.reference.phase == "optimizer" else None  # also sums, and scaled ones
        return self._search.fits(found.reference, found.calls, position, moment, noise, phase=phase)

    def _declared(self, argument: str) -> Declared | None:
        """How the DTensor is laid out that the answer is about."""
        if argument == self._call.arguments[self._found.position].name:
            return self._found.declared
        position = self._call.arg_names.index(argument)
        return self._search.declaration(self._call, position, is_result=False)

    def _made(
        self, kind: str, argument: str, reason: str, *, held: Layout | None = None,
        since: KernelCall | None = None, claim: Declared | None = None, ranks: tuple[int, ...] = (),
    ) -> ShardedDifference:  # fmt: skip
        found, declared = self._found, claim or self._declared(argument)
        near, all_ranks = found.nearest, self._search.world.ranks
        call = found.calls[all_ranks.index(ranks[0])] if ranks else self._call
        arguments = self._call.arguments
        shown = tuple(
            (
                arguments[i].name,
                str(each.layout) if each is not None else "not the reference's value in any layout",
            )
            for i, each in self._inputs.items()
        )
        return ShardedDifference(
            kind, ranks or all_ranks, CallPlace.of(call), CallPlace.of(found.reference), argument,
            found.moment if argument == arguments[found.position].name else "before",
            str(declared.layout) if declared is not None else None,
            str(held) if held is not None else None, shown,
            near.error if near is not None else float("inf"), near.limit if near is not None else 0.0, reason,
            CallPlace.of(since) if since is not None else None,
            declared.mesh.text() if declared is not None else "",
        )  # fmt: skip
