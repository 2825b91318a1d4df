"""Tensors as plain data, and arguments as a flat list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from kernelscope.events import TensorSpec
from kernelscope.fingerprint.fingerprinter import why_not

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_WHOLE = frozenset({*_PLAIN, int, float, bool, str, type(None), torch.dtype, torch.device})


_REDUCTIONS = ("sum", "average", "product", "min", "max", "band", "bor", "bxor", "premul_sum")
_SPECS: dict[TensorSpec, TensorSpec] = {}


def describe(tensor: torch.Tensor, type_name: str = "Tensor", unread: str = "") -> TensorSpec:
    if torch._C._len_torch_function_stack() or type(tensor) not in _PLAIN:
        with torch._C.DisableTorchFunction():  # nobody but us asked
            return _described(tensor, type_name, unread)
    return _described(tensor, type_name, unread)


def _described(tensor: torch.Tensor, type_name: str, unread: str) -> TensorSpec:
    unread = unread or why_not(tensor) or ""
    shape, stride = geometry(tensor)
    if tensor.is_conj():  # the same memory has other values then
        type_name = f"conj({type_name})"
    if tensor.is_neg():
        type_name = f"neg({type_name})"
    spec = TensorSpec(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(_number(n) for n in shape),
        stride=tuple(_number(n) for n in stride),
        device=str(tensor.device),
        type=type_name,
        unread=unread,
    )
    return interned(spec)


def interned(spec: TensorSpec) -> TensorSpec:
    """Equal ones are one object, to be compared by identity."""
    return _SPECS.setdefault(spec, spec)


def geometry(tensor: torch.Tensor) -> tuple[Sequence[int], Sequence[int]]:
    """Shape and strides, as far as a tensor of this kind has them."""
    if tensor.is_nested and type(tensor) in _PLAIN:
        return (-1,) * tensor.dim(), ()
    return tensor.shape, tensor.stride() if tensor.layout is torch.strided else ()


def _number(n: Any) -> int:
    # A symbolic size has no number that could be asked for without adding a guard.
    return int(n) if isinstance(n, int) and not isinstance(n, torch.SymInt) else -1


def tensor_in(value: Any) -> Any:
    """The tensor behind a descriptor or a reinterpreted pointer of Triton's; anything else as it is."""
    if type(value) in _WHOLE or isinstance(value, torch.Tensor):
        return value
    base = getattr(value, "base", None)
    return base if isinstance(base, torch.Tensor) else value


def is_subclass(tensor: torch.Tensor) -> bool:
    return type(tensor) not in _PLAIN and is_traceable_wrapper_subclass(tensor)


def parts(tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """The plain tensors inside a wrapper subclass such as a DTensor, with their attribute paths."""
    names, _ = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
    for name in names:
        inner = getattr(tensor, name)
        if not isinstance(inner, torch.Tensor):
            continue  # a DTensor also names its mesh
        if is_subclass(inner):
            yield from ((f"{name}.{path}", part) for path, part in parts(inner))
        else:
            yield name, inner


def flatten(args: Iterable[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Argument values with lists and subclasses opened; `flat_names` gives the names in the same order."""
    flat: list[Any] = []
    for value in (*args, *kwargs.values()):
        if type(value) in _WHOLE:
            flat.append(value)
        else:
            _flatten_into(flat, value)
    return flat


def _flatten_into(flat: list[Any], value: Any) -> None:
    if type(value) in _PLAIN:
        flat.append(value)
    elif isinstance(value, torch.Tensor):
        if is_subclass(value):
            flat.extend(part for _, part in parts(value))
        else:
            flat.append(value)
    elif isinstance(value, list | tuple) and _holds_tensors(value):
        for item in value:
            _flatten_into(flat, item)
    else:
        flat.append(value)


def _holds_tensors(values: list[Any] | tuple[Any, ...]) -> bool:
    """Also in lists within: what each rank sends is one."""
    return any(
        isinstance(v, torch.Tensor) or (isinstance(v, list | tuple) and _holds_tensors(v)) for v in values
    )


def flat_names(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Names, and the subclass a part belongs to, of what `flatten` makes of one argument."""
    if isinstance(value, torch.Tensor):
        if is_subclass(value):
            kind = type(value).__name__
            yield from ((f"{name}.{path}", kind) for path, _ in parts(value))
        else:
            yield name, "Tensor" if type(value) in _PLAIN else type(value).__name__
    elif isinstance(value, list | tuple) and _holds_tensors(value):
        for i, item in enumerate(value):
            yield from flat_names(f"{name}[{i}]", item)
    else:
        yield name, ""


def returned_tensors(result: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[str, torch.Tensor]]:
    """What an operator returned, named by its schema where that has names."""
    if isinstance(result, tuple) and len(result) > 1:
        for i, item in enumerate(result):
            yield from _named_tensors(names[i] if i < len(names) else f"result{i}", item)
    else:
        yield from _named_tensors(names[0] if names else "result", result)


def _named_tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        if is_subclass(value):
            yield from ((f"{name}.{path}", part) for path, part in parts(value))
        else:
            yield name, value
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _named_tensors(f"{name}[{i}]", item)


def plain(value: Any) -> Any:
    """A non-tensor argument as something that can be stored: a number, a string, or its description."""
    if value is None or isinstance(value, bool | int | float | complex | str):
        return value
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return str(value)
    if isinstance(value, list | tuple):
        return tuple(plain(v) for v in value)
    if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return str(value)
    if isinstance(value, torch.ScriptObject):
        return script_object_text(value)
    return (
        f"<{type(value).__name__}>"
        if not callable(value)
        else f"<{getattr(value, '__name__', type(value).__name__)}>"
    )


def script_object_text(value: Any) -> str:
    """A process group, the same on each of its ranks; the name of a reduction; otherwise the class."""
    kind = str(value._type()).rpartition(".")[2]
    if kind == "ProcessGroup":
        group = torch.distributed.ProcessGroup.unbox(value)
        return f"group {group.group_name} of {group.size()} ranks"
    if kind == "ReduceOp" and value._has_method("op"):
        number = int(value._get_method("op")())
        return _REDUCTIONS[number] if number < len(_REDUCTIONS) else f"reduction {number}"
    return f"<{kind}>"
