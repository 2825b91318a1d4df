"""The values that the variables of a wrapper held during one graph call, where they were saved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from kernelscope.events import TensorSpec
from kernelscope.generated_code.wrapper import Wrapper
from kernelscope.model.call import KernelCall
from kernelscope.store.stored_run import StoredRun

_NEAR = 4096  # the rest of a graph call is searched among so many calls before and after


@dataclass(frozen=True, slots=True)
class Value:
    """One variable of the wrapper at one moment."""

    file: str
    spec: TensorSpec

    @property
    def count(self) -> int:
        return prod(self.spec.shape)


class VariableValues:
    """What each variable held before one call, and which variables launches wrote before and after it."""

    def __init__(self, run: StoredRun, call: KernelCall, wrapper: Wrapper) -> None:
        self._run, self._call, self._wrapper = run, call, wrapper
        self.calls: list[KernelCall] = []
        if call.graph_call is not None:
            near = run.select(first=max(0, call.index - _NEAR), limit=2 * _NEAR)
            self.calls = [each for each in near if each.graph_call == call.graph_call]
        self.before: dict[str, Value] = {}
        self.at_first: dict[str, Value] = {}  # before a launch wrote to it
        self.written_before: set[str] = set()
        self.written_after: set[str] = set()
        for each in self.calls:
            if each.index > call.index:
                self.written_after |= self._written_by(each)
                continue
            for name, value in values_of_call(run, each, "before", wrapper):
                # A launch may read a part of a variable: the largest part counts.
                if name not in self.before or value.count >= self.before[name].count:
                    self.before[name] = value
                is_larger = name not in self.at_first or value.count > self.at_first[name].count
                if is_larger and name not in self.written_before:
                    self.at_first[name] = value
            if each.index < call.index:
                self.before |= dict(values_of_call(run, each, "after", wrapper))
                self.written_before |= self._written_by(each)

    def value_before(self, name: str) -> Value | None:
        """What a variable held before the call.

        A value saved for the backward graph has the same name in the forward graph, which may have read it.
        """
        found, graph, index = self.before.get(name), self._call.graph, self._call.index
        if found is not None or graph is None or graph.direction != "backward":
            return found
        pair = graph.name.rpartition("_")[0]
        for each in self._run.select(first=max(0, index - _NEAR), limit=min(index, _NEAR)):
            of = each.graph
            if of is not None and of.direction == "forward" and of.name.rpartition("_")[0] == pair:
                wrapper = Wrapper.of_any_text(of.source)
                found = dict(values_of_call(self._run, each, "before", wrapper)).get(name, found)
        return found

    @cached_property
    def first_and_last(self) -> tuple[dict[str, Value], dict[str, Value]]:
        """What the variables held when they were first read, and when the graph call ended."""
        first: dict[str, Value] = {}
        last: dict[str, Value] = {}
        for call in self.calls:
            for name, value in values_of_call(self._run, call, "before", self._wrapper):
                first.setdefault(name, value)
                last.setdefault(name, value)
            last |= dict(values_of_call(self._run, call, "after", self._wrapper))
        return first, last

    def _written_by(self, call: KernelCall) -> set[str]:
        found = {a.wrapper_name for a in call.arguments if a.role in ("out", "inout") and a.wrapper_name}
        if any(a.returned for a in call.arguments):
            found |= set(self._wrapper.targets(call.wrapper_line[1]).values())
        return found


def values_of_call(
    run: StoredRun, call: KernelCall, moment: str, wrapper: Wrapper
) -> Iterator[tuple[str, Value]]:
    """By variable of the wrapper: what one launch found or left."""
    files = run.saved_tensors(call.index)
    returned = [i for i, arg in enumerate(call.arguments) if arg.returned]
    targets = wrapper.targets(call.wrapper_line[1]) if returned and moment == "after" else {}
    for i, arg in enumerate(call.arguments):
        if arg.tensor is None or (i, moment) not in files:
            continue
        name = targets.get(index_among(returned, i, arg.name), "") if arg.returned else arg.wrapper_name
        if name:
            yield name, Value(files[i, moment], arg.tensor)


def index_among(returned: Sequence[int], i: int, name: str) -> int:
    """The index of a result in a returned tuple: `result2` may be the second, where another is None."""
    number = name.removeprefix("result")
    return int(number) if number.isdecimal() else returned.index(i)
