"""Watches what launches leave behind, and stops where a condition first holds, with the inputs intact."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from kernelscope.events import Call
from kernelscope.fingerprint import Stats, why_not
from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch
from kernelscope.recording.sinks import DiskSink

from .argument_snapshots import AFTER, BEFORE, Seen, seen
from .conditions import CHANGED, Condition
from .files import ValueFiles
from .hits import Hit, Watches, hit_at
from .kernel_filter import KernelFilter

Predicate = Callable[[torch.Tensor], Any]
Tensors = dict[int, torch.Tensor]  # by argument
_INFINITE_AT_MOST = 10_000  # memories whose infinities are followed


class Watcher:
    """The observer; it reads the statistics that its recording takes, each version of a tensor once."""

    def __init__(
        self,
        conditions: Sequence[Condition],
        *,
        predicate: Predicate | None = None,
        wanted: KernelFilter,
        files: ValueFiles | None,
        run: DiskSink | None = None,
        on_hit: Callable[[Hit], None],
    ) -> None:
        """A hit's tensors go to `files`, and into `run`, from which a script of the call can be made."""
        self.watches = Watches(conditions, wanted)
        self._predicate = predicate
        self._files = files
        self._run = run
        self._on_hit = on_hit
        self._before: dict[int, Tensors] = {}  # by call: copies of what it may overwrite
        self._infinite: dict[int, tuple[int, str]] = {}  # by storage: the first call that made an infinity
        self.failure: Exception | None = None  # of the user's function

    def before(self, call: Call, launch: Launch) -> None:
        if self.watches.at(call.site):
            self._before[call.key] = _copies(call, launch)

    def after(self, call: Call, launch: Launch) -> None:
        copies = self._before.pop(call.key, {})
        if not self.watches.wants(call.site):
            return
        post = _stats(call, call.post)
        pre = _stats(call, call.pre)
        self.judge(call, launch, copies, pre, post)
        self._call_predicate(call, launch, copies)
        self._follow_infinities(call, launch, pre, post)

    def judge(
        self, call: Call, launch: Launch, copies: Tensors, pre: dict[int, Stats], post: dict[int, Stats]
    ) -> None:
        """Report what holds after this launch; `copies` are of what it has overwritten."""
        for condition in self.watches.at(call.site):
            for i in self._outputs(call, launch, condition):
                if found := _found(condition, i, call, pre, post):
                    inputs = _inputs(call, launch, copies)
                    dirty = None  # a change has no producer
                    if condition.measure != CHANGED:
                        dirty = [n for n, stats in sorted(pre.items()) if condition.holds(stats)]
                    self._hit(call, launch, inputs, condition.text, i, found, dirty, pre)
                    break

    def note_infinity(self, storage: int, call: Call) -> None:
        """This memory holds an infinity that the call made."""
        if len(self._infinite) > _INFINITE_AT_MOST:
            self._infinite.clear()
        self._infinite[storage] = call.index, call.site.kernel.name

    # -- what it looks at ------------------------------------------------------------------------------

    def _outputs(self, call: Call, launch: Launch, condition: Condition) -> Iterator[int]:
        args = call.site.args
        outputs = [i for i, arg in enumerate(args) if i in launch.point.written or arg.returned]
        if condition.measure == CHANGED:  # then of what it does not declare to write
            outputs += [i for i in range(len(args)) if i not in outputs]
        for i in outputs:
            arg = args[i]
            if arg.tensor is not None and condition.looks_at(arg.name, arg.wrapper_name):
                yield i

    def _call_predicate(self, call: Call, launch: Launch, copies: Tensors) -> None:
        """Of each output; where it holds, also of each input, to know whether this call produced it."""
        if self._predicate is None or self.failure is not None:
            return
        name = getattr(self._predicate, "__name__", "the function")
        for one, tensor in _left(call, launch):
            if self._holds(tensor):
                inputs = _inputs(call, launch, copies)
                dirty = [i for i, tensor in inputs.items() if self._holds(tensor)]
                self._hit(call, launch, inputs, name, one.position, f"{name} holds", dirty, {})
                return

    def _holds(self, tensor: torch.Tensor) -> bool:
        assert self._predicate is not None
        try:
            with BUS.mute(), quiet():
                return bool(self._predicate(tensor.detach()))
        except Exception as error:  # raised when the block ends; the program is not to blame
            self.failure = error
            return False

    # -- what it reports ---------------------------------------------------------------------------------

    def _hit(
        self,
        call: Call,
        launch: Launch,
        inputs: Tensors,
        condition: str,
        position: int,
        found: str,
        before: list[int] | None,  # the arguments for which it held before as well
        pre: dict[int, Stats],
    ) -> None:
        site = call.site
        if not self.watches.is_new(condition, site, position):
            return
        hit = hit_at(
            site,
            position,
            call=call.index,
            condition=condition,
            found=found,
            is_producer=all(_is_only_written(call, i) for i in before or ()),
            remarks=tuple(self._remarks(call, launch, before, pre)),
            files=self._saved(call, launch, inputs),
            run=self._kept(call, launch, inputs),
            inputs={site.args[i].name: tensor for i, tensor in inputs.items()},
        )
        self._on_hit(hit)

    def _remarks(
        self, call: Call, launch: Launch, before: list[int] | None, pre: dict[int, Stats]
    ) -> Iterator[str]:
        args = call.site.args
        dirty = [args[i].name for i in before or () if not _is_only_written(call, i)]
        if dirty:
            yield f"already in input {', '.join(dirty)}; not produced by a watched call"
        elif before:
            names = ", ".join(args[i].name for i in before)
            yield f"this call produced it, unless it leaves part of {names} unwritten: it was there before"
        elif before is not None:
            yield "not in its inputs: this call produced it"
        for i in call.uninitialised:
            if i not in launch.point.written:
                yield f"it reads {args[i].name}, which is uninitialised memory"
        for place, i in enumerate(launch.point.tensors):
            stats = pre.get(i)
            if stats is not None and stats.pos_inf + stats.neg_inf:
                made = self._infinite.get(launch.storage_ids[place])
                by = f", produced by call {made[0]}, {made[1]}" if made else ""
                yield f"its input {args[i].name} holds {stats.pos_inf} +inf and {stats.neg_inf} -inf{by}"

    def _saved(self, call: Call, launch: Launch, inputs: Tensors) -> tuple[Path, ...]:
        if self._files is None:
            return ()
        part, kernel = f"hit_{call.index}", call.site.kernel.name
        names = {one.position: one.name for one in seen(call, launch, BEFORE)}
        paths = [self._files.save(part, f"{BEFORE}_{kernel}_{names[i]}", t) for i, t in inputs.items()]
        for one, tensor in _left(call, launch):
            paths.append(self._files.save(part, f"{AFTER}_{kernel}_{one.name}", tensor))
        return tuple(path for path in paths if path is not None)

    def _kept(self, call: Call, launch: Launch, inputs: Tensors) -> Path | None:
        if self._run is None:
            return None
        saver = self._run.tensor_saver
        saver.keep(call, {i: t for i, t in inputs.items() if why_not(t) is None}, "before")
        saver.keep(call, {one.position: tensor for one, tensor in _left(call, launch)}, "after")
        return self._run.writer.folder

    def _follow_infinities(
        self, call: Call, launch: Launch, pre: dict[int, Stats], post: dict[int, Stats]
    ) -> None:
        """So that a NaN out of inf - inf can be reported with the call that produced the infinity."""
        if any(stats.pos_inf for stats in pre.values()):
            return
        for place, i in enumerate(_tensor_places(call, launch)):
            stats = post.get(i)
            if stats is not None and stats.pos_inf and place < len(launch.storages):
                self.note_infinity(launch.storages[place].id, call)


def _left(call: Call, launch: Launch) -> Iterator[tuple[Seen, torch.Tensor]]:
    """What the launch has written or returned."""
    for one in seen(call, launch, AFTER):
        if one.tensor is not None and (one.position in launch.point.written or one.arg.returned):
            yield one, one.tensor


def _found(condition: Condition, i: int, call: Call, pre: dict[int, Stats], post: dict[int, Stats]) -> str:
    if condition.measure == CHANGED:
        before, after = (call.pre or {}).get(i), (call.post or {}).get(i)
        if before is None or after is None or before == after:
            return ""
        return "changed" if call.fingerprinter.read(before) != call.fingerprinter.read(after) else ""
    stats = post.get(i)
    return condition.found(stats) if stats is not None and condition.holds(stats) else ""


def _stats(call: Call, slots: dict[int, int] | None) -> dict[int, Stats]:
    if call.fingerprinter is None or not slots:
        return {}
    read = {i: call.fingerprinter.stats(slot) for i, slot in slots.items()}
    return {i: stats for i, stats in read.items() if stats is not None}


def _tensor_places(call: Call, launch: Launch) -> list[int]:
    """Arguments in the order of the launch's storages: what it was given, then what it returned."""
    first = len(launch.point.site.args)
    made = [
        first + i
        for i, arg in enumerate(call.site.args[first:])
        if arg.tensor is not None and not arg.tensor.unread
    ]
    return [*launch.point.tensors, *made]


def _copies(call: Call, launch: Launch) -> Tensors:
    """What the launch finds in memory that it declares to write, or everything if its code is the user's."""
    point = launch.point
    touched = {launch.storage_ids[place] for _, place in point.outputs} if launch.is_tracked else set()
    with BUS.mute(), quiet():
        return {
            i: launch.flat[i].detach().clone()
            for place, i in enumerate(point.tensors)
            if i not in call.uninitialised
            and (point.is_opaque or i in point.written or launch.storage_ids[place] in touched)
        }


def _is_only_written(call: Call, position: int) -> bool:
    """By a kernel that the program launches itself: mostly into fresh memory, but that is not known."""
    return call.graph_call < 0 and call.site.args[position].role == "out"


def _inputs(call: Call, launch: Launch, copies: Tensors) -> Tensors:
    """As the launch found them."""
    return {i: copies.get(i, launch.flat[i]) for i in launch.point.tensors if i not in call.uninitialised}
