"""Collectives: what they write, which the schemas of those in place do not say, and when it is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from kernelscope.events import Role
from kernelscope.probes.launch import Launch

_FUNCTIONAL = ("_c10d_functional", "c10d_functional")


def is_async_collective(func: Any) -> bool:
    """A functional collective only begins: its result is there after `wait_tensor`."""
    return getattr(func, "namespace", "") in _FUNCTIONAL and not is_wait(func)


def is_wait(func: Any) -> bool:
    return getattr(func, "namespace", "") in _FUNCTIONAL and "wait_tensor" in str(func)


def is_in_place(func: Any) -> bool:
    """Of `torch.distributed`: it writes to its arguments, and returns the work that does so."""
    return (
        isinstance(func, OpOverload)
        and func.namespace == "c10d"
        and any("c10d.Work" in str(returned.type) for returned in func._schema.returns)
    )


def gathers_into_one(func: Any) -> bool:
    """An all-gather whose result is one tensor, with a piece of the same size from each rank."""
    name = getattr(func, "_opname", "")
    if getattr(func, "namespace", "") in _FUNCTIONAL:
        return name.startswith("all_gather_into_tensor")
    return is_in_place(func) and name in ("_allgather_base_", "allgather_into_tensor_coalesced_")


def group_of(func: Any, flat: Sequence[Any]) -> str:
    """The name of the process group that an operator communicates in; "" for other operators."""
    namespace = getattr(func, "namespace", "")
    if namespace in _FUNCTIONAL and not is_wait(func):
        names = [a.name for a in func._schema.arguments]
        at = names.index("group_name") if "group_name" in names else -1
        return str(flat[at - len(names)]) if at >= 0 and isinstance(flat[at - len(names)], str) else ""
    if namespace != "c10d":
        return ""
    boxed = (value for value in flat if isinstance(value, torch.ScriptObject))
    return next((name for value in boxed if (name := boxed_group(value))), "")


def boxed_group(value: Any) -> str:
    """The name of a process group inside of a script object; "" for other objects."""
    if str(value._type()).rpartition(".")[2] != "ProcessGroup":
        return ""
    return str(torch.distributed.ProcessGroup.unbox(value).group_name)


def role_in_place(func: OpOverload, name: str) -> Role:
    """What a collective in place does with an argument."""
    operator = func._opname
    if name.startswith("output"):
        return "out"
    if name != "tensors" or not operator.endswith("_"):
        return "in"  # send, barrier, and what the others read
    return "out" if operator.startswith("recv") else "inout"


def is_over(launch: Launch) -> bool:
    """Whether the work that a collective in place returned has ended; on a GPU, also for the host."""
    work = work_of(launch)
    return work is None or bool(work.is_completed())


def work_of(launch: Launch) -> Any:
    """The work that a collective in place returned; None where it is on the program's own stream."""
    result = launch.result[-1] if isinstance(launch.result, tuple | list) else launch.result
    return torch.distributed.Work.unbox(result)
