"""Operators as launches: names and roles of their arguments, from the schema."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Sequence
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from kernelscope.events import Arg, Role, Site
from kernelscope.probes.distributed.collectives import (
    is_async_collective,
    is_in_place,
    is_over,
    is_wait,
    role_in_place,
)

from .describe import describe, flat_names, flatten, plain, returned_tensors
from .launch import Launch, LaunchPoint
from .makers.replaced_operators import sealed_with_replacement
from .makers.undeclared_writes import undeclared_writes


def overload_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpOverload | None:
    """The overload whose schema describes this call, where there is one."""
    if isinstance(func, OpOverload):
        return func
    if not isinstance(func, OpOverloadPacket):
        # Extern kernels are ATen's functions under another name (extern_kernels.addmm is torch.addmm).
        func = getattr(torch.ops.aten, str(getattr(func, "__name__", "")), None)
        if not isinstance(func, OpOverloadPacket):
            return None
    fits = [o for o in _overloads(func) if _fits(o, len(args), kwargs)]
    return fits[0] if fits else None


def _overloads(packet: Any) -> list[OpOverload]:
    return [getattr(packet, name) for name in packet.overloads()]


def _fits(overload: OpOverload, given: int, kwargs: dict[str, Any]) -> bool:
    arguments = overload._schema.arguments
    positional = [a for a in arguments if not a.kwarg_only]
    names = {a.name for a in arguments}
    missing = [a for a in arguments[given:] if not a.has_default_value() and a.name not in kwargs]
    return given <= len(positional) and kwargs.keys() <= names and not missing


def operator_name(func: Any) -> str:
    """ "aten.addmm.default", "mylib.scale.default", "higher_order.cond"."""
    if isinstance(func, OpOverload | OpOverloadPacket):
        return str(func)
    if isinstance(func, HigherOrderOperator):
        return f"higher_order.{func._name}"
    return str(getattr(func, "__name__", type(func).__name__))


def operator_args(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    constant: Callable[[int], bool] = lambda i: False,
    wrapper_names: Sequence[str] = (),
) -> tuple[list[Any], tuple[Arg, ...]]:
    """The flat argument values and their descriptions; where `constant(i)`, the value goes into the site."""
    overload = overload_of(func, args, kwargs)
    flat = flatten(args, kwargs)
    described: list[Arg] = []
    for name, role, value in _named(func, overload, args, kwargs):
        for flat_name, kind in flat_names(name, value):
            i = len(described)
            tensor = flat[i] if isinstance(flat[i], torch.Tensor) else None
            described.append(
                Arg(
                    name=flat_name,
                    role=role if tensor is not None else "scalar",
                    tensor=describe(tensor, kind) if tensor is not None else None,
                    wrapper_name=wrapper_names[i] if i < len(wrapper_names) else "",
                    value=plain(flat[i]) if tensor is None and constant(i) else None,
                    varies=tensor is None and not constant(i),
                )
            )
    return flat, tuple(described)


def _named(
    func: Any, overload: OpOverload | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[str, Role, Any]]:
    if overload is None:
        names = _signature_names(func, len(args))
        named: list[tuple[str, Role, Any]] = [(n, "in", v) for n, v in zip(names, args, strict=True)]
        return named + [(k, "out" if k == "out" else "in", v) for k, v in kwargs.items()]
    if is_wait(func):
        return [("tensor", "inout", args[0])]  # when a collective's result comes into being
    declared = {a.name: a for a in overload._schema.arguments}
    names = [a.name for a in overload._schema.arguments if not a.kwarg_only][: len(args)]
    in_place = is_in_place(overload)
    undeclared = undeclared_writes(overload, args, kwargs)
    return [
        (name, role_in_place(overload, name) if in_place else _schema_role(declared[name], undeclared), value)
        for name, value in [*zip(names, args, strict=True), *kwargs.items()]
    ]


def _schema_role(argument: Any, undeclared: Container[str]) -> Role:
    if argument.name in undeclared:
        return "inout"
    if argument.alias_info is None or not argument.alias_info.is_write:
        return "in"
    return "out" if argument.is_out else "inout"


def operator_point(site: Site, func: Any, **known: Any) -> LaunchPoint:
    """The launch point of an operator; `known` is what its probe knows of it."""
    return LaunchPoint(
        site,
        is_pending=is_async_collective(func),
        is_over=is_over if is_in_place(func) else None,
        returns=not is_in_place(func),
        return_names=return_names(func),
        uninitialised_returns=uninitialised_returns(func),
        seal=sealed_with_replacement(func),
        **known,
    )


def return_names(func: Any) -> tuple[str, ...]:
    """Names of what an operator returns, where its schema gives them."""
    if not isinstance(func, OpOverload):
        return ()
    names = [r.name for r in func._schema.returns]
    return tuple(n or f"result{i}" for i, n in enumerate(names)) if any(names) else ()


class _Everything:
    def __contains__(self, name: object) -> bool:
        return True


def uninitialised_returns(func: Any) -> Callable[[Launch], Container[str]] | None:
    """What it returns unwritten: a generator's state without dropout, a workspace, a collective's result."""
    if is_async_collective(func):
        return lambda launch: _Everything()
    if not isinstance(func, OpOverload):
        return None
    names = return_names(func)
    random = frozenset(names) & _RANDOM_STATE
    position = next((i for i, a in enumerate(func._schema.arguments) if a.name == "dropout_p"), None)
    is_random = bool(random) and position is not None
    if not is_random and (func.namespace != "aten" or len(func._schema.returns) < 2):
        return None

    def uninitialised(launch: Launch) -> Container[str]:
        found = _workspaces(launch.result, names)
        if not is_random or position is None:
            return found
        given = launch.args[position] if position < len(launch.args) else launch.kwargs.get("dropout_p", 0.0)
        return found if given else found | random

    return uninitialised


def _workspaces(result: Any, names: tuple[str, ...]) -> frozenset[str]:
    """Bytes beside numbers: what an operator keeps for its backward (`_cudnn_rnn`), written only in part."""
    tensors = list(returned_tensors(result, names))
    if not any(t.is_floating_point() for _, t in tensors):
        return frozenset()
    return frozenset(name for name, t in tensors if t.dtype is torch.uint8 and t.dim() == 1)


_RANDOM_STATE = frozenset({"philox_seed", "philox_offset", "rng_state", "unused", "debug_attn_mask"})


def _signature_names(func: Any, count: int) -> list[str]:
    try:
        parameters = list(inspect.signature(func).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    usable = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [usable[i] if i < len(usable) else f"arg{i}" for i in range(count)]


def is_view(func: Any) -> bool:
    """Pure views launch nothing."""
    if isinstance(func, OpOverloadPacket):
        return all(is_view(overload) for overload in _overloads(func))
    return isinstance(func, OpOverload) and (func.is_view or str(func) in _VIEWS_WITHOUT_ALIAS_INFO)


def is_birth(func: Any) -> bool:
    """Operators that only hand out memory."""
    return isinstance(func, OpOverload) and func.namespace == "aten" and func._opname in _BIRTHS


_VIEWS_WITHOUT_ALIAS_INFO = {
    "inductor._reinterpret_tensor.default",
    "_c10d_functional._wrap_tensor_autograd.default",
}
_BIRTHS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"}


def launches_nothing_itself(overload: OpOverload) -> bool:
    """A view, or composed of operators that the profiler lists too; of none in the case of unused dropout."""
    schema, key = overload._schema, torch._C.DispatchKey.CompositeImplicitAutograd
    name = f"{schema.name}.{schema.overload_name}".removesuffix(".")
    try:
        return overload.is_view or torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
    except RuntimeError:  # TorchScript alone has it
        return True
