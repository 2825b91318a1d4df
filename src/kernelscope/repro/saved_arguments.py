"""How a script makes each tensor: from a saved file, or from recorded statistics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kernelscope.errors import RunError
from kernelscope.events import TensorSpec, item_size
from kernelscope.model.call import KernelCall
from kernelscope.store.folder import TENSORS
from kernelscope.store.stored_run import StoredRun
from kernelscope.store.tensors import SavedTensor, read_tensor

from .script_parts import unreproducible
from .variable_values import Value

HOW_TO_RECORD = "kernelscope run --values save --stages your_script.py"


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


def entry(role: str, spec: TensorSpec, **more: Any) -> dict[str, Any]:
    """One tensor in the table of a script."""
    made = {"role": role, "dtype": spec.dtype, "shape": spec.shape, "stride": spec.stride}
    return made | ({"device": spec.device} if spec.device != "cpu" else {}) | more


def saved_entry(role: str, value: Value, name: str, tensors: Tensors) -> dict[str, Any]:
    return entry(role, value.spec, saved=tensors.add(value.file, name))


def argument_entry(call: KernelCall, i: int, name: str, tensors: Tensors, notes: list[str]) -> dict[str, Any]:
    """One tensor argument of a call."""
    arg, role = call.arguments[i], call.roles[i]
    spec = arg.tensor
    assert spec is not None
    if spec.unread:
        raise RunError(f"call {call.index}: a script cannot contain {arg.name}, which is {spec.unread}")
    files = tensors.run.saved_tensors(call.index)
    if (i, "before") in files:
        return entry(role, spec, saved=tensors.add(files[i, "before"], f"{name} before"))
    if i in call.uninitialised:
        return entry(role, spec, **({"uninitialised": True} if role == "in" and 0 not in spec.shape else {}))
    return entry(role, spec, **(_by_statistics(call, i, notes) if role != "out" else {}))


def _by_statistics(call: KernelCall, i: int, notes: list[str]) -> dict[str, Any]:
    arg, stats = call.arguments[i], call.pre_stats.get(i)
    if stats is None:
        raise unreproducible(call, f"{arg.name} was not saved; record the inputs with\n  {HOW_TO_RECORD}")
    if not stats.numel:
        return {}
    notes.append(f"{arg.name} is generated from its recorded statistics: its values were not saved")
    # None where no element is finite.
    finite = {k: getattr(stats, k) or 0.0 for k in ("min", "max", "mean", "std")}
    counts = {"0": stats.zeros, "nan": stats.nan, "inf": stats.pos_inf, "-inf": stats.neg_inf}
    special = {value: count for value, count in counts.items() if count}
    return finite | {"seed": i} | ({"special": special} if special else {})


def place_in_memory(call: KernelCall, given: dict[str, dict[str, Any]], names: dict[int, str]) -> None:
    """Arguments that share memory get it from one block, each at its offset."""
    by_storage: dict[int, list[int]] = {}
    for i, (storage, _, _) in call.storages.items():
        if i in names:
            by_storage.setdefault(storage, []).append(i)
    for members in by_storage.values():
        offsets = {i: call.storages[i][2] for i in members}
        sizes = {i: item_size(given[names[i]]["dtype"]) for i in members}
        # The block is aligned. What lies far into a large buffer does not need the memory before it.
        start = min(offsets[i] * sizes[i] for i in members) // 64 * 64
        for i in members:
            about = given[names[i]]
            if offsets[i] * sizes[i] > start:
                about["offset"] = offsets[i] - start // sizes[i]
            if len(members) > 1:
                about["memory"] = names[members[0]]
