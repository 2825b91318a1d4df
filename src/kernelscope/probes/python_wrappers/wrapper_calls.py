"""Which calls in a generated wrapper launch a kernel or allocate memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from kernelscope.generated_code.kernels import GeneratedKernel
from kernelscope.probes import operators

# Methods of a local tensor that launch a kernel; the wrapper calls them without going through a global.
LOCAL_LAUNCHES = {".zero_", ".copy_", ".fill_"}


def lookup(path: str, namespace: dict[str, Any]) -> Any:
    """What a dotted path means in a module, or None."""
    root, *rest = path.split(".")
    found = namespace.get(root)
    for name in rest:
        found = getattr(found, name, None)
    return found


def is_birth(path: str, target: Any) -> bool:
    name = path.rpartition(".")[2]
    return name.startswith("empty_strided") or name == "alloc_from_pool" or operators.is_birth(target)


def is_launch(path: str, namespace: dict[str, Any], kernels: Mapping[str, GeneratedKernel]) -> bool:
    """Whether a call in a wrapper launches a kernel or hands out memory, and so is to be hooked."""
    if path.startswith("."):
        return path in LOCAL_LAUNCHES
    root = path.split(".")[0]
    target = lookup(path, namespace)
    if root in kernels or root == "extern_kernels" or is_birth(path, target):
        return target is not None
    if isinstance(target, OpOverload | OpOverloadPacket):
        return not operators.is_view(target)
    return isinstance(target, HigherOrderOperator)
