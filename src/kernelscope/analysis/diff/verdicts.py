"""Why a call with the same inputs has different outputs: its kernel, its settings, or a hidden input."""

from __future__ import annotations

from typing import Any

from kernelscope.analysis.alignment.calls_by_position import Reader
from kernelscope.analysis.alignment.identity import kernel_key
from kernelscope.analysis.random_operators import draws, leaves_memory_unwritten
from kernelscope.model.call import KernelCall

from .divergence_parts import (
    DIFFERENT_CONFIG,
    DIFFERENT_KERNEL,
    INPUTS_DIFFER,
    NONDETERMINISTIC,
    UNINITIALISED,
    Source,
)
from .pairs import scalars

_VECTOR = 16  # bytes that a kernel may load at once, if the address is a multiple of it

Verdict = tuple[str, str, Source | None]


def judge(a: KernelCall, b: KernelCall, of_a: Reader, of_b: Reader) -> Verdict:
    """Why two calls with equal arguments left different values."""
    if (other := other_kernel(a, b, of_a, of_b)) is not None:
        return DIFFERENT_KERNEL, other, None
    if (other := other_settings(a, b, of_a, of_b)) is not None:
        return DIFFERENT_CONFIG, other, None
    if leaves_memory_unwritten(a.kernel_name):
        return INPUTS_DIFFER, "it makes a tensor larger and does not write to the new elements", _MEMORY
    numbers = {a.arg_names[i]: value for i, value in scalars(a).items()}
    if draws(a.kernel_name, numbers):
        is_given = a.kernel_name.endswith("generator") or "generator" in a.arg_names
        drawn = "it draws random numbers, and the state of the generator differed"
        return INPUTS_DIFFER, drawn, _OWN_GENERATOR if is_given else _GENERATOR
    return (
        NONDETERMINISTIC,
        "the same kernel with the same inputs, scalars, settings and flags wrote different values",
        None,
    )


_MEMORY = Source(UNINITIALISED, "uninitialised memory; write to it before it is read, e.g. with zero_()")
_GENERATOR = Source("generator", "the state of the random number generator; seed it: torch.manual_seed(0)")
_OWN_GENERATOR = Source(
    "generator", "the state of the program's own generator; seed it: generator.manual_seed(0)"
)


def other_kernel(a: KernelCall, b: KernelCall, of_a: Reader, of_b: Reader) -> str | None:
    """How the code differed; a library's kernel is known by the version of the library."""
    other = other_code(a, b)
    if other is None and not a.source:
        versions_a, versions_b = of_a.run.info.versions, of_b.run.info.versions
        libraries = ("torch", "cuda")
        other = unlike({n: versions_a.get(n) for n in libraries}, {n: versions_b.get(n) for n in libraries})
    return other


def other_code(a: KernelCall, b: KernelCall) -> str | None:
    if kernel_key(a.site.kernel) == kernel_key(b.site.kernel):
        return None
    if a.kernel_name != b.kernel_name:
        return f"the runs have different kernels here: {a.kernel_name} and {b.kernel_name}"
    return f"the code of {a.kernel_name} differs"


def other_settings(a: KernelCall, b: KernelCall, of_a: Reader, of_b: Reader) -> str | None:
    """In which way the same code was launched differently."""
    flags_a, flags_b = of_a.switches(a), of_b.switches(b)
    known = flags_a.keys() & flags_b.keys()  # only flags recorded in both runs can be compared
    told_a = launch_settings(a) | _layouts(a) | {name: flags_a[name] for name in known}
    told_b = launch_settings(b) | _layouts(b) | {name: flags_b[name] for name in known}
    return unlike(told_a, told_b)


def settings_of(call: KernelCall, reader: Reader) -> dict[str, Any]:
    """What makes a call with the same inputs another one: code, library, launch, flags."""
    versions = {} if call.source else {n: reader.run.info.versions.get(n) for n in ("torch", "cuda")}
    code = {"code": kernel_key(call.site.kernel)}
    settings = launch_settings(call) | {"device": str(call.device).partition(":")[0]}  # each rank has its own
    return code | versions | settings | reader.switches(call)


def launch_settings(call: KernelCall) -> dict[str, Any]:
    return call.config | {"grid": call.grid, "device": call.device}


def unlike(a: dict[str, Any], b: dict[str, Any]) -> str | None:
    """The settings that differ, as text."""
    names = sorted(n for n in a.keys() | b.keys() if a.get(n) != b.get(n))
    return "; ".join(f"{n} is {a.get(n)} in the first and {b.get(n)} in the second" for n in names) or None


def _layouts(call: KernelCall) -> dict[str, Any]:
    """Strides and alignment: the same values, but maybe other instructions that load them."""
    tensors = [arg for arg in call.arguments if arg.tensor is not None]
    return {f"strides of {arg.name}": arg.tensor and arg.tensor.stride for arg in tensors} | alignments(call)


def alignments(call: KernelCall) -> dict[str, int]:
    storages = call.storages
    return {
        f"alignment of {arg.name}": storages[i][2] * arg.tensor.item_size % _VECTOR
        for i, arg in enumerate(call.arguments)
        if arg.tensor is not None and i in storages
    }
