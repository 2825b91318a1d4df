"""A recorded operator, run again on inputs that are off by rounding, or on those that the ranks held."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from kernelscope.analysis.random_operators import is_random
from kernelscope.analysis.sharding.part import Part, inputs
from kernelscope.analysis.sharding.values.fits import eps_of, relative_error
from kernelscope.model.call import KernelCall

_REPLICAS = 4
_NOT_ELEMENTWISE = ("norm", "max", "sum", "rms")  # in the names of operators on lists of tensors
_TIMES = 16.0  # the measured noise
_ITEM = re.compile(r"(.*?)[\[_.](\d+)\]?")
_TORCH_NAME = re.compile(r"torch\.(\w+)")


def rounding_explains(
    part: Part, call: KernelCall, position: int, error: float, noises: Mapping[int, float]
) -> bool | None:
    """Whether the operator makes so large an error of inputs that are off by so much; None: cannot be run."""
    if is_random(call.kernel_name) or not _may_run(call):
        return None
    try:
        expected = _run(part, call, {}, 0)[position]
        moved = [_run(part, call, noises, seed)[position] for seed in range(1, 1 + _REPLICAS)]
    except Exception:  # an operator of the program's own, or one whose arguments were not saved
        return None
    return error <= _TIMES * max(relative_error(each, expected) for each in moved)


def results_of(part: Part, call: KernelCall, given: Mapping[int, Any]) -> dict[int, Any] | None:
    """What the operator leaves of other tensors, with the recorded numbers; None if it cannot be run."""
    if is_random(call.kernel_name) or not _may_run(call):
        return None
    try:
        return _run(part, call, {}, 0, given)
    except Exception:  # an operator of the program's own, or one whose arguments were not saved
        return None


def is_elementwise(call: KernelCall) -> bool:
    """Whether each element of the result is made of one element of each argument."""
    space, name, overload = (*call.kernel_name.split("."), "", "")[:3]
    if space != "aten":
        return False
    if name.startswith(("_foreach_", "_fused_")):
        return not any(word in name for word in _NOT_ELEMENTWISE)
    operator = getattr(getattr(torch.ops.aten, name, None), overload, None)
    return torch.Tag.pointwise in getattr(operator, "tags", ())


def _may_run(call: KernelCall) -> bool:
    """A run names the operator, and may come from elsewhere: only ATen, and without texts such as paths.

    Complex numbers are saved as pairs, which an operator would not take for what they are.
    """
    if any(arg.tensor is not None and "complex" in arg.tensor.dtype for arg in call.arguments):
        return False
    texts = [_plain(value) for value in call.args if isinstance(value, str)]
    return call.kernel_name.startswith("aten.") and not any(isinstance(text, str) for text in texts)


def _run(
    part: Part, call: KernelCall, noises: Mapping[int, float], seed: int,
    instead: Mapping[int, Any] | None = None,
) -> dict[int, Any]:  # fmt: skip
    """What it leaves, by argument; its inputs are perturbed unless the seed is 0."""
    space, name, overload = call.kernel_name.split(".")
    operator = getattr(getattr(getattr(torch.ops, space), name), overload)
    generator = np.random.default_rng(seed)
    values: list[Any] = []
    readable = set(inputs(call))
    for i, (arg, given) in enumerate(zip(call.arguments, call.args, strict=True)):
        if arg.returned:
            break
        if arg.tensor is None:
            values.append(_plain(given))
            continue
        if instead is not None and i in instead:
            held = instead[i]
        else:
            held = part.value(call, i, "before") if i in readable else np.zeros(arg.tensor.shape)
        if held is None:
            raise ValueError(f"{arg.name} was not saved")
        eps = eps_of(arg.tensor)
        if seed and eps:
            held = held * (1 + max(eps, noises.get(i, 0.0)) * generator.choice((-1.0, 1.0), held.shape))
        values.append(torch.from_numpy(np.array(held)).to(getattr(torch, arg.tensor.dtype)))
    with torch.no_grad():
        result = operator(**_by_name(operator, call, values))
    returned = list(result) if isinstance(result, tuple | list) else [result]
    found = dict(enumerate(values))
    found |= {len(values) + i: each for i, each in enumerate(returned)}
    return {i: each.double().numpy() for i, each in found.items() if isinstance(each, torch.Tensor)}


def _by_name(operator: Any, call: KernelCall, values: list[Any]) -> dict[str, Any]:
    """The recorded arguments, with lists of tensors put together again."""
    schema = {arg.name: str(arg.type) for arg in operator._schema.arguments}
    found: dict[str, Any] = {}
    for arg, value in zip(call.arguments, values, strict=False):
        item = _ITEM.fullmatch(arg.name) if arg.name not in schema else None
        if item is not None:
            found.setdefault(item[1], []).append(value)
        else:
            found[arg.name] = value
    return found


def _plain(value: Any) -> Any:
    """Numbers and lists as they are; the name of a dtype, layout or memory format as that."""
    if isinstance(value, str):
        named = _TORCH_NAME.fullmatch(value)
        found = getattr(torch, named[1], None) if named else None
        return found if isinstance(found, torch.dtype | torch.layout | torch.memory_format) else value
    return list(value) if isinstance(value, tuple) else value
