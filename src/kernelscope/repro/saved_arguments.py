"""What is known of the values around one call: its saved arguments, and those of its graph before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

from kernelscope.errors import RunError
from kernelscope.events import TensorSpec, item_size
from kernelscope.generated_code.wrapper import Wrapper
from kernelscope.model.call import KernelCall
from kernelscope.store.folder import TENSORS
from kernelscope.store.stored_run import StoredRun
from kernelscope.store.tensors import SavedTensor, read_tensor

_NEAR = 4096  # calls back in which the rest of a graph's execution is looked for


@dataclass(slots=True)
class Tensors:
    """The tensors that go into the file beside a script."""

    run: StoredRun
    names: dict[str, str] = field(default_factory=dict)  # file in the run -> name in ours
    held: dict[str, SavedTensor] = field(default_factory=dict)

    def add(self, file: str, name: str) -> str:
        """The name that a script calls it by; equal tensors are kept once."""
        if file not in self.names:
            self.held[name] = read_tensor(self.run.path / TENSORS / file)
            self.names[file] = name
        return self.names[file]


@dataclass(frozen=True, slots=True)
class Value:
    """One variable of the wrapper at one moment."""

    file: str
    spec: TensorSpec

    @property
    def count(self) -> int:
        return prod(self.spec.shape)


def values_before(run: StoredRun, call: KernelCall, wrapper: Wrapper) -> dict[str, Value]:
    """By variable: what the launches of this graph's execution before this one found and left."""
    found: dict[str, Value] = {}
    for each in calls_around(run, call):
        if each.index <= call.index:
            for name, value in values_of_call(run, each, "before", wrapper):
                if name not in found or value.count >= found[name].count:  # it may read a part of it
                    found[name] = value
        if each.index < call.index:
            found |= dict(values_of_call(run, each, "after", wrapper))
    return found


def values_at_first(run: StoredRun, call: KernelCall, wrapper: Wrapper) -> dict[str, Value]:
    """By variable: what it held in this execution before a launch wrote to it."""
    found: dict[str, Value] = {}
    written: set[str] = set()
    for each in calls_around(run, call):
        if each.index <= call.index:
            for name, value in values_of_call(run, each, "before", wrapper):
                if name not in written and (name not in found or value.count > found[name].count):
                    found[name] = value
            written |= _written_by(each, wrapper)
    return found


def value_of_variable(run: StoredRun, call: KernelCall, wrapper: Wrapper, name: str) -> Value | None:
    """What a variable of the wrapper held before this launch.

    What was kept for the backward graph has the same name in the forward graph, which may have read it.
    """
    found = values_before(run, call, wrapper).get(name)
    graph = call.graph
    if found is not None or graph is None or graph.direction != "backward":
        return found
    pair = graph.name.rpartition("_")[0]
    for each in run.select(first=max(0, call.index - _NEAR), limit=min(call.index, _NEAR)):
        of = each.graph
        if of is not None and of.direction == "forward" and of.name.rpartition("_")[0] == pair:
            found = dict(values_of_call(run, each, "before", Wrapper.of_any_text(of.source))).get(name, found)
    return found


def calls_around(run: StoredRun, call: KernelCall) -> list[KernelCall]:
    """All calls of the same execution of its graph."""
    if call.graph_call is None:
        return []
    near = run.select(first=max(0, call.index - _NEAR), limit=2 * _NEAR)
    return [each for each in near if each.graph_call == call.graph_call]


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
        name = targets.get(place_among(returned, i, arg.name), "") if arg.returned else arg.wrapper_name
        if name:
            yield name, Value(files[i, moment], arg.tensor)


def place_among(returned: list[int], i: int, name: str) -> int:
    """Where in a returned tuple a result is: `result2` may be the second, where another is None."""
    told = name.removeprefix("result")
    return int(told) if told.isdecimal() else returned.index(i)


def written_before(run: StoredRun, call: KernelCall, wrapper: Wrapper) -> set[str]:
    """The variables that launches of this execution have filled before this one."""
    earlier = [each for each in calls_around(run, call) if each.index < call.index]
    return {name for each in earlier for name in _written_by(each, wrapper)}


def written_after(run: StoredRun, call: KernelCall, wrapper: Wrapper) -> set[str]:
    later = [each for each in calls_around(run, call) if each.index > call.index]
    return {name for each in later for name in _written_by(each, wrapper)}


def _written_by(call: KernelCall, wrapper: Wrapper) -> set[str]:
    found = {a.wrapper_name for a in call.arguments if a.role in ("out", "inout") and a.wrapper_name}
    if any(a.returned for a in call.arguments):
        found |= set(wrapper.targets(call.wrapper_line[1]).values())
    return found


def about_value(value: Value, name: str, tensors: Tensors) -> dict[str, Any]:
    """How a script makes a tensor that was saved."""
    spec = value.spec
    made: dict[str, Any] = {"dtype": spec.dtype, "shape": spec.shape, "stride": spec.stride}
    made["saved"] = tensors.add(value.file, name)
    return made | ({"device": spec.device} if spec.device != "cpu" else {})


def about_argument(call: KernelCall, i: int, name: str, tensors: Tensors, notes: list[str]) -> dict[str, Any]:
    """How a script makes one tensor argument."""
    arg = call.arguments[i]
    spec = arg.tensor
    assert spec is not None
    if spec.unread:
        raise RunError(f"call {call.index}: {arg.name} is {spec.unread}, which cannot be written down")
    made: dict[str, Any] = {
        "role": call.roles[i], "dtype": spec.dtype, "shape": spec.shape, "stride": spec.stride,
    }  # fmt: skip
    if spec.device != "cpu":
        made["device"] = spec.device
    files = tensors.run.saved_tensors(call.index)
    if (i, "before") in files:
        made["saved"] = tensors.add(files[i, "before"], f"{name} before")
    elif i in call.uninitialised and call.roles[i] == "in" and 0 not in spec.shape:
        made["unwritten"] = True
    elif i not in call.uninitialised and call.roles[i] != "out":
        made |= _by_statistics(call, i, notes)
    return made


def _by_statistics(call: KernelCall, i: int, notes: list[str]) -> dict[str, Any]:
    arg, stats = call.arguments[i], call.pre_stats.get(i)
    if stats is None:
        raise RunError(
            f"call {call.index}, {call.kernel_name}, has no saved {arg.name}: record its inputs with\n"
            "  kernelscope run --values save --stages your_script.py"
        )
    if not stats.numel:
        return {}
    notes.append(f"{arg.name} is generated from its recorded statistics: its values were not saved")
    # None where no element is finite.
    finite = {k: getattr(stats, k) or 0.0 for k in ("min", "max", "mean", "std")}
    counts = {"0": stats.zeros, "nan": stats.nan, "inf": stats.pos_inf, "-inf": stats.neg_inf}
    special = {value: count for value, count in counts.items() if count}
    return finite | {"seed": i} | ({"special": special} if special else {})


def place_in_memory(call: KernelCall, given: dict[str, dict[str, Any]], names: dict[int, str]) -> None:
    """Arguments that share memory get it from one piece, each at its place."""
    by_storage: dict[int, list[int]] = {}
    for i, (storage, _, _) in call.storages.items():
        if i in names:
            by_storage.setdefault(storage, []).append(i)
    for members in by_storage.values():
        offsets = {i: call.storages[i][2] for i in members}
        sizes = {i: item_size(given[names[i]]["dtype"]) for i in members}
        # Where memory begins is aligned; what is far into a large buffer need not have the rest.
        start = min(offsets[i] * sizes[i] for i in members) // 64 * 64
        for i in members:
            about = given[names[i]]
            if offsets[i] * sizes[i] > start:
                about["offset"] = offsets[i] - start // sizes[i]
            if len(members) > 1:
                about["memory"] = names[members[0]]
