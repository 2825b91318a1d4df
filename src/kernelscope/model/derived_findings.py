"""What the values of a run show: undeclared writes, and where NaN and infinities arose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from kernelscope.events import Finding

from .call import KernelCall
from .call_facts import same_hash


def findings_in(calls: Iterable[KernelCall]) -> Iterator[Finding]:
    seen = _Contents()
    wild = {"nan", "inf"}  # of which the first producer is still to be found
    for call in calls:
        yield from undeclared_writes(call)
        yield from missing_writes(call)
        yield from seen.follow(call)
        if wild:
            for finding in produced(call):
                if finding.kind in wild:
                    wild.remove(finding.kind)
                    yield finding


class _Contents:
    """What the versions of tensors held when they were last read, within one graph call.

    There every write is a recorded call: a version that then holds something else has an unrecorded writer.
    """

    def __init__(self) -> None:
        self._graph_call: int | None = None
        self._held: dict[tuple[Any, ...], tuple[Any, int]] = {}  # by version: its hash, and its reader

    def follow(self, call: KernelCall) -> Iterator[Finding]:
        if call.graph_call is None:
            return
        if call.graph_call != self._graph_call:
            self._graph_call, self._held = call.graph_call, {}
        pre, post, storages = call.pre_hashes, call.post_hashes, call.storages
        written = [i for i, a in enumerate(call.arguments) if a.role in ("out", "inout") and i in storages]
        writes = Counter(storages[i][0] for i in written)
        for i in sorted(pre.keys() & storages.keys()):
            version = self._version(call, i, 0)
            held, seen_by = self._held.setdefault(version, (pre[i], call.index))
            if not same_hash(held, pre[i]):
                self._held[version] = pre[i], call.index
                what = (
                    f"{call.arg_names[i]} of {call.kernel_name} changed since call {seen_by}, and no call "
                    "between declares to write to it; check your own code that ran there"
                )
                yield _finding("unowned-write", what, call, i)
        for i in sorted(post.keys() & storages.keys()):
            self._held[self._version(call, i, writes[storages[i][0]])] = post[i], call.index

    def _version(self, call: KernelCall, i: int, later: int) -> tuple[Any, ...]:
        storage, epoch, offset = call.storages[i]
        return storage, epoch + later, offset, call.arguments[i].tensor


def undeclared_writes(call: KernelCall) -> Iterator[Finding]:
    """Arguments that changed although nothing says that the kernel writes them."""
    storages = call.storages
    declared = {i for i, a in enumerate(call.arguments) if a.role in ("out", "inout")}
    written = {storages[i][0] for i in declared if i in storages}
    for i in sorted(call.changed_args - declared):
        # A declared output in the same memory explains the change: the argument is an alias of it.
        if i in storages and storages[i][0] in written:
            continue
        what = f"{call.kernel_name} changed {call.arg_names[i]}, which it declares as an input only"
        yield _finding("undeclared-write", what, call, i)


def missing_writes(call: KernelCall) -> Iterator[Finding]:
    """Declared outputs that still hold the sentinel they were filled with."""
    poison, post = call.poison_hashes, call.post_hashes
    for i in sorted(poison.keys() & post.keys()):
        if poison[i] == post[i]:
            what = f"{call.kernel_name} declares {call.arg_names[i]} as an output and wrote nothing to it"
            yield _finding("never-written", what, call, i)


def produced(call: KernelCall) -> Iterator[Finding]:
    """NaN in what a call wrote when nothing that it read had one, and infinities when all of it was finite.

    Needs level "stats". Later calls only pass them on, and what a program means to be infinite, such as a
    mask, is found once.
    """
    post = call.post_stats
    declared = {i for i, a in enumerate(call.arguments) if a.role in ("out", "inout")}
    outputs = {i: post[i] for i in sorted(declared & post.keys()) if post[i].finite < post[i].numel}
    if not outputs:
        return
    inputs = call.pre_stats.values()
    had_nan = any(stats.nan for stats in inputs)
    had_inf = any(stats.pos_inf + stats.neg_inf for stats in inputs)
    for i, stats in outputs.items():
        name, of = call.arg_names[i], f"of {stats.numel} element{'s' * (stats.numel != 1)}"
        if stats.nan and not had_nan:
            what = f"{stats.nan} NaN {of} of {name}, and none in its inputs"
        elif stats.pos_inf + stats.neg_inf and not had_inf and not had_nan:
            counts = {"+inf": stats.pos_inf, "-inf": stats.neg_inf}
            found = " and ".join(f"{count} {which}" for which, count in counts.items() if count)
            what = f"{found} {of} of {name}, out of finite inputs"
        else:
            continue
        yield _finding("nan" if stats.nan else "inf", f"{call.kernel_name} made {what}", call, i)


def _finding(kind: str, message: str, call: KernelCall, i: int) -> Finding:
    return Finding(kind, message, call.index, call.kernel_name, call.arg_names[i])
