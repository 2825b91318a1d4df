"""The run that is compared with the reference: what each of its calls left, as it was saved."""

from __future__ import annotations

import torch

from kernelscope.analysis.alignment.calls_by_position import Reader
from kernelscope.analysis.sharding.part import Part, inputs, outputs
from kernelscope.comparison.candidate import CandidateRun
from kernelscope.comparison.flow.calls_and_values import Call, Read, Written
from kernelscope.comparison.flow.numbers_of_calls import Number, numbers_of
from kernelscope.events import TensorSpec
from kernelscope.model.call import KernelCall
from kernelscope.probes.bus import BUS
from kernelscope.shadowing.reference.node_kinds import draws_from_generator

from .recorded_digits import digits_of, rounding_of_dtypes
from .recorded_operators import NotRunnable, named_arguments, operator_of
from .saved_memory import SavedMemory


def recorded_program(part: Part, flags: Reader) -> CandidateRun:
    """As if it had run just now."""
    found = CandidateRun()
    calls = [call for call in part.all_calls if call.parent is None and not call.error]
    memory = SavedMemory(part, calls)
    with BUS.mute(), torch.no_grad():
        for call in calls:
            _add(found, memory, call, flags)
            memory.is_over(call)
    return found


def _add(found: CandidateRun, memory: SavedMemory, call: KernelCall, flags: Reader) -> None:
    flow, reads = found.flow, list[Read]()
    for i in inputs(call):
        if i in call.storages:
            tensor = memory.tensor(call, i)
            if not flow.held.is_known(tensor):
                value, whole = flow.add_leaf(tensor)
                found.kept.add(value.number, whole)
            reads.append((call.arg_names[i], flow.held.of(tensor)))
    specs = float_specs(call)
    digits = digits_of(call.kernel_name, specs, flags.switches(call))
    made = Call(
        0, call.kernel_name, call.kind, call.phase, call.stack, (), max(rounding_of_dtypes(specs), digits),
        is_draw=_draws(call), digits=digits, number=call.index, numbers=_numbers(call),
    )  # fmt: skip
    writes: list[Written] = []
    for i in outputs(call):
        if i in call.storages:
            tensor = memory.write(call, i)
            if is_workspace(call, i):
                flow.forget(tensor)
            else:
                writes.append((call.arg_names[i], tensor))
    for part, written in flow.add_parts(made, reads, writes):
        for name, tensor in written:
            value = flow.add_value(part, name, tensor)
            found.kept.add(value.number, tensor)


def float_specs(call: KernelCall) -> list[TensorSpec]:
    specs = [arg.tensor for arg in call.arguments if arg.tensor is not None]
    dtypes = [(spec, getattr(torch, spec.dtype)) for spec in specs]
    return [spec for spec, dtype in dtypes if dtype.is_floating_point or dtype.is_complex]


def is_workspace(call: KernelCall, position: int) -> bool:
    """Bytes that an operator of torch leaves, beside its results, for its backward."""
    arg = call.arguments[position]
    if not call.kernel_name.startswith("aten.") or not arg.returned or arg.tensor is None:
        return False
    others = [each.tensor.dtype for each in call.arguments if each.returned and each.tensor is not None]
    return arg.tensor.dtype == "uint8" and any("float" in dtype for dtype in others)


def _numbers(call: KernelCall) -> tuple[tuple[str, Number], ...]:
    """Those of an operator of ATen."""
    try:
        schema = operator_of(call)._schema
    except NotRunnable:
        return ()
    pairs = zip(call.arguments, call.args, strict=True)
    return numbers_of(schema, {arg.name: given for arg, given in pairs if arg.tensor is None})


def _draws(call: KernelCall) -> bool:
    """Whether it takes random numbers from a generator."""
    try:
        operator = operator_of(call)
        named = named_arguments(operator, call, lambda _: None, torch.device)
    except NotRunnable:
        return False
    return draws_from_generator(operator, (), named)
