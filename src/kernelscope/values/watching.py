"""Watches what launches leave behind, and stops where a condition first holds, with the inputs intact."""

from __future__ import annotations

import bdb
import pdb
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kernelscope.events import Call, Finding
from kernelscope.fingerprint import Stats
from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch

from .argument_snapshots import AFTER, BEFORE, seen
from .conditions import CHANGED, Condition
from .files import ValueFiles
from .kernel_filter import KernelFilter

Predicate = Callable[[torch.Tensor], Any]
Tensors = dict[int, torch.Tensor]  # by argument


@dataclass(frozen=True, slots=True)
class Hit:
    """Where a condition held: in which argument of which call, and whether that call made it."""

    call: int
    kernel: str
    kind: str
    arg: str  # the kernel's name for it
    wrapper_name: str
    condition: str
    found: str  # in words
    is_producer: bool  # none of the inputs was like that
    origin: str = ""
    remarks: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()  # the inputs, and what the launch left
    inputs: dict[str, torch.Tensor] = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        name = self.arg + (f" ({self.wrapper_name})" if self.wrapper_name not in ("", self.arg) else "")
        where = f", from {self.origin}" if self.origin else ""
        lines = [f"call {self.call}, {self.kernel} [{self.kind}]{where}: {self.found} in {name}"]
        lines += [f"  {remark}" for remark in self.remarks]
        if self.files:
            lines.append(f"  what it found and left is in {self.files[0].parent}")
        return "\n".join(lines)


class WatchHit(BaseException):
    """A watched condition holds. No Exception: a program that goes on after errors shall stop here too."""

    def __init__(self, hit: Hit) -> None:
        super().__init__(str(hit))
        self.hit = hit


class Watcher:
    """The observer; it reads the statistics that its recording takes, each version of a tensor once."""

    def __init__(
        self,
        conditions: Sequence[Condition],
        *,
        predicate: Predicate | None = None,
        wanted: KernelFilter | None = None,
        files: ValueFiles | None = None,
        on_hit: Callable[[Hit], None],
    ) -> None:
        self._watches = [(each, KernelFilter([each.kernel])) for each in conditions]
        self._predicate = predicate
        self._wanted = wanted or KernelFilter()
        self._files = files
        self._on_hit = on_hit
        self._before: dict[int, Tensors] = {}  # by call: copies of what it may overwrite
        self._told: set[tuple[str, str, str]] = set()
        self._infinite: dict[int, tuple[int, str]] = {}  # by storage: who first made an infinity there
        self.failure: Exception | None = None  # of the user's function

    def before(self, call: Call, launch: Launch) -> None:
        kernel = call.site.kernel
        if self._wanted.wants(kernel, call.site.device) and self._watching(call):
            self._before[call.key] = _copies(call, launch)

    def after(self, call: Call, launch: Launch) -> None:
        copies = self._before.pop(call.key, {})
        if not self._wanted.wants(call.site.kernel, call.site.device):
            return
        post = _stats(call, call.post)
        pre = _stats(call, call.pre)
        for condition in self._watching(call):
            for i in self._outputs(call, launch, condition):
                if found := _found(condition, i, call, pre, post):
                    inputs = _inputs(call, launch, copies)
                    dirty = None  # of a change there is nothing to be said
                    if condition.measure != CHANGED:
                        dirty = [n for n, stats in sorted(pre.items()) if condition.holds(stats)]
                    self._hit(call, launch, inputs, condition.text, i, found, dirty, pre)
                    break
        self._ask(call, launch, copies)
        self._follow_infinities(call, launch, pre, post)

    def complaints(self) -> list[str]:
        said = [line for _, globs in self._watches if globs.globs != ("*",) for line in globs.complaints()]
        return said + self._wanted.complaints()

    # -- what it looks at ------------------------------------------------------------------------------

    def _watching(self, call: Call) -> list[Condition]:
        kernel, device = call.site.kernel, call.site.device
        return [condition for condition, globs in self._watches if globs.wants(kernel, device)]

    def _outputs(self, call: Call, launch: Launch, condition: Condition) -> Iterator[int]:
        args = call.site.args
        outputs = [i for i, arg in enumerate(args) if i in launch.point.written or arg.returned]
        if condition.measure == CHANGED:  # then of what it does not own up to
            outputs += [i for i in range(len(args)) if i not in outputs]
        for i in outputs:
            arg = args[i]
            if arg.tensor is not None and condition.looks_at(arg.name, arg.wrapper_name):
                yield i

    def _ask(self, call: Call, launch: Launch, copies: Tensors) -> None:
        """The user's own function, of each output; then of each input, to tell who made it so."""
        if self._predicate is None or self.failure is not None:
            return
        name = getattr(self._predicate, "__name__", "the function")
        for one in seen(call, launch, AFTER):
            written = one.position in launch.point.written or one.arg.returned
            if one.tensor is not None and written and self._holds(one.tensor):
                inputs = _inputs(call, launch, copies)
                dirty = [i for i, tensor in inputs.items() if self._holds(tensor)]
                self._hit(call, launch, inputs, name, one.position, f"{name} holds", dirty, {})
                return

    def _holds(self, tensor: torch.Tensor) -> bool:
        assert self._predicate is not None
        try:
            with BUS.mute(), quiet():
                return bool(self._predicate(tensor.detach()))
        except Exception as error:  # said when the block ends; the program is not to blame
            self.failure = error
            return False

    # -- what it tells ---------------------------------------------------------------------------------

    def _hit(
        self,
        call: Call,
        launch: Launch,
        inputs: Tensors,
        condition: str,
        position: int,
        found: str,
        before: list[int] | None,  # of which it held before as well
        pre: dict[int, Stats],
    ) -> None:
        site = call.site
        arg = site.args[position]
        key = (condition, site.kernel.name, arg.name)
        if key in self._told:  # a loop would tell it again and again
            return
        self._told.add(key)
        self._on_hit(
            Hit(
                call.index,
                site.kernel.name,
                site.kernel.kind,
                arg.name,
                arg.wrapper_name,
                condition,
                found,
                is_producer=all(_is_only_written(call, i) for i in before or ()),
                origin=str(site.origin[0]) if site.origin else "",
                remarks=tuple(self._remarks(call, launch, before, pre)),
                files=self._saved(call, launch, inputs),
                inputs={site.args[i].name: tensor for i, tensor in inputs.items()},
            )
        )

    def _remarks(
        self, call: Call, launch: Launch, before: list[int] | None, pre: dict[int, Stats]
    ) -> Iterator[str]:
        args = call.site.args
        dirty = [args[i].name for i in before or () if not _is_only_written(call, i)]
        if dirty:
            yield f"it came in with {', '.join(dirty)}: no call that is watched made it"
        elif before:
            names = ", ".join(args[i].name for i in before)
            yield f"this call made it, unless it leaves parts of {names}: that memory was like that before"
        elif before is not None:
            yield "none of its inputs is like that: this call made it"
        for i in call.uninitialised:
            if i not in launch.point.written:
                yield f"it reads {args[i].name}, which nothing has written yet: uninitialised memory"
        for place, i in enumerate(launch.point.tensors):
            stats = pre.get(i)
            if stats is not None and stats.pos_inf + stats.neg_inf:
                made = self._infinite.get(launch.storage_ids[place])
                by = f", made by call {made[0]}, {made[1]}" if made else ""
                yield f"its input {args[i].name} holds {stats.pos_inf} +inf and {stats.neg_inf} -inf{by}"

    def _saved(self, call: Call, launch: Launch, inputs: Tensors) -> tuple[Path, ...]:
        if self._files is None:
            return ()
        part, kernel = f"hit_{call.index}", call.site.kernel.name
        names = {one.position: one.name for one in seen(call, launch, BEFORE)}
        paths = [self._files.save(part, f"{BEFORE}_{kernel}_{names[i]}", t) for i, t in inputs.items()]
        for one in seen(call, launch, AFTER):
            if one.tensor is not None and (one.position in launch.point.written or one.arg.returned):
                paths.append(self._files.save(part, f"{AFTER}_{kernel}_{one.name}", one.tensor))
        return tuple(path for path in paths if path is not None)

    def _follow_infinities(
        self, call: Call, launch: Launch, pre: dict[int, Stats], post: dict[int, Stats]
    ) -> None:
        """So that a NaN out of inf - inf can be told together with who made the infinity."""
        if any(stats.pos_inf for stats in pre.values()):
            return
        if len(self._infinite) > 10_000:
            self._infinite.clear()
        for place, i in enumerate(_tensor_places(call, launch)):
            stats = post.get(i)
            if stats is not None and stats.pos_inf and place < len(launch.storages):
                self._infinite[launch.storages[place].id] = call.index, call.site.kernel.name


def stop_in_python(hit: Hit) -> None:
    raise WatchHit(hit)


def enter_debugger(hit: Hit) -> None:
    """With `hit` at hand, and the program's own frames above."""
    print(f"kernelscope: {hit}", file=sys.stderr)
    try:
        with BUS.mute():
            pdb.Pdb(nosigint=True).set_trace()
            _ = hit  # it stops here; `up` leads to the program, `continue` goes on, `quit` ends the block
    except bdb.BdbQuit:
        raise WatchHit(hit) from None


def as_finding(hit: Hit) -> Finding:
    told = str(hit).removeprefix(f"call {hit.call}, ")  # a finding says it itself
    return Finding("watch", told, call=hit.call, kernel=hit.kernel, arg=hit.arg)


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
