"""Back from an argument of a rank's call: where a sum began that was never made, or parts came from."""

from __future__ import annotations

from dataclasses import dataclass

from kernelscope.analysis.ranks.rank import communicates
from kernelscope.model.call import KernelCall

from .declared import Declared
from .part import Part, inputs
from .values.fits import Fit

_FAR = 200  # calls that are looked at

Layouts = dict[tuple[int, int], Fit]  # by call of the first rank and storage: how the ranks hold its result
_Written = tuple[KernelCall, int]  # a call, and the storage that it wrote to


@dataclass(frozen=True, slots=True)
class Source:
    """The last call before an argument whose result was as in the reference."""

    call: KernelCall
    fit: Fit
    storage: int  # that it wrote to
    through: tuple[KernelCall, ...]  # what stands between, the last one first

    @property
    def collective(self) -> KernelCall | None:
        return next((call for call in self.through if communicates(call.site) and not _waits(call)), None)

    @property
    def is_unreduced(self) -> bool:
        """Whether the ranks held terms of a sum there, and no collective since then has added them up."""
        return self.fit.layout.is_partial and not any(
            communicates(call.site) and "reduce" in call.kernel_name for call in self.through
        )


def first_term(part: Part, layouts: Layouts, call: KernelCall, position: int) -> _Written | None:
    """The call from which on the ranks hold terms of a sum; None if that is not recorded."""
    found: _Written | None = None
    waiting, seen = [_writer(part, call, position)], set[int]()
    while waiting and len(seen) < _FAR:
        written = waiting.pop(0)
        if written is None or written[0].index in seen or communicates(written[0].site):
            continue
        writer = written[0]
        seen.add(writer.index)
        known = layouts.get((writer.index, written[1]))
        if known is not None and not known.layout.is_partial:
            continue
        if known is not None and (found is None or writer.index < found[0].index):
            found = written
        waiting += [_writer(part, writer, i) for i in _read(writer)]
    return found


def source_of(
    part: Part, layouts: Layouts, call: KernelCall, position: int
) -> Source | tuple[KernelCall, ...]:
    """Back through collectives and calls that only the ranks have, to one that was compared.

    Without one, what was passed, the last one first.
    """
    through: list[KernelCall] = []
    written = _writer(part, call, position)
    while written is not None and len(through) < _FAR:
        if (known := layouts.get((written[0].index, written[1]))) is not None:
            return Source(written[0], known, written[1], tuple(through))
        through.append(written[0])
        before = [found for i in _read(written[0]) if (found := _writer(part, written[0], i)) is not None]
        written = max(before, key=lambda each: each[0].index, default=None)
    return tuple(through)


def _read(call: KernelCall) -> list[int]:
    """Also what a wait is for: the memory counts as unwritten until then."""
    if not communicates(call.site):
        return inputs(call)
    args = enumerate(call.arguments)
    return [i for i, arg in args if arg.tensor is not None and not arg.returned and arg.role != "out"]


def _writer(part: Part, call: KernelCall, position: int) -> _Written | None:
    writer, place = part.writer(call, position), call.storages.get(position)
    return (writer, place[0]) if writer is not None and place is not None else None


def claims(part: Part, made: _Written, until: KernelCall) -> Declared | None:
    """A DTensor that holds what a call made, and says that it is not a sum to be made."""
    for operator in part.dtensors.operators:
        if made[0].index < operator.end <= until.index + 1:
            for declared in operator.arguments:
                if declared.storage == made[1] and not declared.layout.is_partial:
                    return declared
    return None


def _waits(call: KernelCall) -> bool:
    return "wait_tensor" in call.kernel_name or "_wrap_tensor" in call.kernel_name
