"""From the first call of a graph's execution, or of a step, to its last: known only once it is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelscope.model.call import KernelCall

Tell = Callable[[int, KernelCall, int, int], None]


@dataclass(slots=True)
class _Open:
    key: int | None
    first: KernelCall
    start: int
    end: int


class Spans:
    """Of each owner (a track) the spans that are open, an inner one above its outer one."""

    def __init__(self, tell: Tell, *, by_step: bool = False) -> None:
        self._tell = tell
        self._by_step = by_step
        self._open: dict[int, list[_Open]] = {}
        self._done: dict[int, int] = {}  # by owner: threads may overlap, slices of one track may not

    def see(self, owner: int, call: KernelCall, start: int, end: int) -> None:
        key = call.step if self._by_step else call.graph_call
        stack = self._open.setdefault(owner, [])
        if all(each.key != key for each in stack) and (call.parent is None or not stack):
            self._end(owner, 0)
        while stack and stack[-1].key != key and any(each.key == key for each in stack):
            self._end(owner, len(stack) - 1)
        if not stack or stack[-1].key != key:
            begin = max(start, self._done.get(owner, start), stack[-1].start if stack else start)
            end = max(begin + 1, end)
            stack.append(_Open(key, call, begin, end))
        for each in stack:  # what goes on inside is part of it
            each.end = max(each.end, end)

    def close(self) -> None:
        for owner in list(self._open):
            self._end(owner, 0)

    def _end(self, owner: int, keep: int) -> None:
        stack = self._open[owner]
        while len(stack) > keep:
            span = stack.pop()
            self._done[owner] = span.end
            self._tell(owner, span.first, span.start, span.end)
