"""An operator of a recorded call, ready to run again. A run names it, and may come from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from kernelscope.model.call import KernelCall

_ITEM = re.compile(r"(.*?)\[(\d+)\]")
_TORCH_NAME = re.compile(r"torch\.(\w+)")
_DEVICE = re.compile(r"(cpu|cuda)(:\d+)?")
# Texts that choose how to compute. Others may be paths, and are refused.
_CHOICES = ("approximate", "rounding_mode", "reduce", "side", "ord", "mode", "padding_mode", "UPLO")


class NotRunnable(Exception):
    """It is not an operator of torch, or its arguments are not in the run."""


def operator_of(call: KernelCall) -> Any:
    """Of ATen only."""
    parts = call.kernel_name.split(".")
    if len(parts) != 3 or parts[0] != "aten":
        raise NotRunnable(f"{call.kernel_name} is not an operator of ATen")
    found = getattr(getattr(torch.ops.aten, parts[1], None), parts[2], None)
    if found is None:
        raise NotRunnable(f"this torch does not have {call.kernel_name}")
    return found


def named_arguments(
    operator: Any, call: KernelCall, tensor: Callable[[int], Any], device: Callable[[str], torch.device]
) -> dict[str, Any]:
    """By name, with lists of tensors put together again; `tensor` gives the argument in a position."""
    types = {arg.name: str(arg.type) for arg in operator._schema.arguments}
    found: dict[str, Any] = {}
    for i, (arg, given) in enumerate(zip(call.arguments, call.args, strict=True)):
        if arg.returned:
            break
        item = _ITEM.fullmatch(arg.name) if arg.name not in types else None
        name = item[1] if item is not None else arg.name
        if name not in types:
            raise NotRunnable(f"{arg.name} is not an argument of {call.kernel_name} in this torch")
        value = tensor(i) if arg.tensor is not None else _value(given, name, types[name], device)
        if item is not None:
            found.setdefault(name, []).append(value)
        else:
            found[name] = value
    return found


def _value(given: Any, name: str, kind: str, device: Callable[[str], torch.device]) -> Any:
    """Numbers and lists as they are; the name of a dtype, layout, memory format or device as that."""
    if isinstance(given, tuple):
        return [_value(each, name, kind, device) for each in given]
    if not isinstance(given, str):
        return given
    if "Generator" in kind:
        return None
    if _DEVICE.fullmatch(given):
        return device(given)
    if named := _TORCH_NAME.fullmatch(given):
        found = getattr(torch, named[1], None)
        if isinstance(found, torch.dtype | torch.layout | torch.memory_format):
            return found
    if name in _CHOICES and given.isidentifier():
        return given
    raise NotRunnable(f"{name} is text, {given!r:.40}")
