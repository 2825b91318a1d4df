"""The programs: samples of torch's operator database, and modules of its module database."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import SkipTest

import torch
from torch.utils._pytree import tree_flatten, tree_map

if importlib.util.find_spec("expecttest") is None:  # torch.testing._internal imports it
    sys.path.append(str(Path(__file__).parent / "stand_ins"))

DTYPES = ("float32", "bfloat16", "float16", "float64", "complex64", "int64", "bool")
_MANY = 400  # samples of one operator that are looked at


@dataclass(frozen=True)
class Job:
    """All samples of one operator or module in one dtype."""

    kind: str  # op | module
    name: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}:{self.dtype}"


@dataclass
class Program:
    """One sample: `call` on copies of `inputs`, and what to differentiate."""

    call: Callable[..., Any]
    inputs: Any
    finish: Callable[[Any], Any]  # what is differentiated of its result
    backward: bool
    module: Any = None


def operators() -> dict[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return {f"{op.name}.{op.variant_test_name}".rstrip("."): op for op in op_db}


def modules() -> dict[str, Any]:
    from torch.testing._internal.common_modules import module_db

    return {info.name: info for info in module_db}


def jobs(device: str, dtypes: tuple[str, ...]) -> Iterator[Job]:
    """One dtype after the other, so that an early end has seen every operator."""
    for dtype in dtypes:
        as_torch = getattr(torch, dtype)
        for name, op in sorted(operators().items()):
            if as_torch in op.supported_dtypes(device):
                yield Job("op", name, dtype)
        for name, info in sorted(modules().items()):
            allowed = info.dtypesIfCUDA if device == "cuda" and hasattr(info, "dtypesIfCUDA") else info.dtypes
            if as_torch.is_floating_point and (as_torch in allowed or dtype in ("bfloat16", "float16")):
                yield Job("module", name, dtype)


def spread(count: int, wanted: int) -> list[int]:
    """The first, the last, and the rest evenly between them; a single one is the middle one."""
    if count <= wanted:
        return list(range(count))
    if wanted == 1:
        return [count // 2]  # the first is often the simplest of all
    return sorted({round(i * (count - 1) / (wanted - 1)) for i in range(wanted)})


def programs(job: Job, device: str, wanted: int, first: bool) -> Iterator[tuple[int, Program]]:
    """Those samples of a job that are tried, with their numbers: the same ones each time."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = list(itertools.islice(_all(job, device), wanted if first else _MANY))
        except SkipTest:
            return
    for index in spread(len(made), wanted):
        yield index, made[index]


def _all(job: Job, device: str) -> Iterator[Program]:
    dtype = getattr(torch, job.dtype)
    if job.kind == "op":
        yield from _of_operator(operators()[job.name], device, dtype)
    else:
        yield from _of_module(modules()[job.name], device, dtype)


def _of_operator(op: Any, device: str, dtype: torch.dtype) -> Iterator[Program]:
    backward = op.supports_autograd and dtype in op.supported_backward_dtypes(device)
    for sample in op.sample_inputs(device, dtype, requires_grad=backward):

        def call(input: Any, args: Any, kwargs: Any) -> Any:
            return op.op(input, *args, **kwargs)

        inputs = sample.input, tuple(sample.args), dict(sample.kwargs)
        yield Program(call, inputs, sample.output_process_fn_grad or (lambda result: result), backward)


def _of_module(info: Any, device: str, dtype: torch.dtype) -> Iterator[Program]:
    for training in (True, False):
        for sample in info.module_inputs_func(
            info, device=device, dtype=dtype, requires_grad=True, training=training
        ):
            if sample.forward_input is None:
                continue
            arguments = sample.constructor_input
            module = info.module_cls(*arguments.args, **arguments.kwargs).to(device).to(dtype)
            module.train(training)

            def call(module: Any, args: Any, kwargs: Any) -> Any:
                return module(*args, **kwargs)

            inputs = tuple(sample.forward_input.args), dict(sample.forward_input.kwargs)
            yield Program(call, inputs, lambda result: result, True, module)


def fresh(program: Program) -> tuple[Any, list[torch.Tensor]]:
    """Copies of a program's arguments with the same layout, and the leaves to differentiate by."""
    storages: dict[int, Any] = {}
    inputs = tree_map(lambda value: _copied(value, storages), program.inputs)
    if program.module is not None:
        module = copy.deepcopy(program.module)
        inputs = (module, *inputs)
        leaves = [*module.parameters()]
    else:
        leaves = []
    leaves += [value for value in tree_flatten(inputs)[0] if isinstance(value, torch.Tensor)]
    return inputs, [leaf for leaf in leaves if leaf.requires_grad]


def _copied(value: Any, storages: dict[int, Any]) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if (
        type(value) is not torch.Tensor
        or value.layout is not torch.strided
        or value.is_conj()
        or value.is_neg()
    ):
        return value.detach().clone().requires_grad_(value.requires_grad)
    storage = value.untyped_storage()
    if storage._cdata not in storages:
        storages[storage._cdata] = storage.clone()
    own = storages[storage._cdata]
    made = torch.empty(0, dtype=value.dtype, device=value.device)
    made.set_(own, value.storage_offset(), value.size(), value.stride())
    return made.requires_grad_(value.requires_grad)
