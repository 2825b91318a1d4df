"""What a function may change, put back before it runs again: tensors, modules, optimizers, generators."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any

import torch


class State:
    """The arguments, the modules and tensors that a function refers to, and the generators, now."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found = _Found()
        found.look(fn)
        found.look(args)
        found.look(kwargs)
        self._modules = [(m, m.training) for m in found.modules.values()]
        self._tensors = [_Tensor(tensor) for tensor in found.tensors.values()]
        # A fresh deep copy is needed each time: loading an optimizer's state does not copy its tensors.
        self._optimizers = [(o, copy.deepcopy(o.state_dict())) for o in found.optimizers.values()]
        self._generators = Generators()

    def put_back(self) -> None:
        for module, training in self._modules:
            module.training = training
        for tensor in self._tensors:
            tensor.put_back()
        for optimizer, state in self._optimizers:
            optimizer.load_state_dict(copy.deepcopy(state))
        self._generators.put_back()


class Generators:
    """Python's, numpy's and torch's random numbers."""

    def __init__(self) -> None:
        self._python = random.getstate()
        numpy: Any = sys.modules.get("numpy")
        self._numpy = numpy.random.get_state() if numpy is not None else None
        self._torch = torch.get_rng_state()
        cuda: Any = torch.cuda
        self._cuda = torch.cuda.get_rng_state_all() if cuda.is_initialized() else []

    def put_back(self) -> None:
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        torch.set_rng_state(self._torch)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)


class _Tensor:
    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self._contents = tensor.detach().clone()
        self._grad = None if tensor.grad is None else tensor.grad.detach().clone()

    def put_back(self) -> None:
        tensor = self._tensor
        with torch.no_grad():
            if not torch.equal(_bytes(tensor.detach()), _bytes(self._contents)):
                tensor.copy_(self._contents)
        tensor.grad = None if self._grad is None else self._grad.clone()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """NaN equals NaN when looked at as bytes."""
    return tensor.contiguous().view(torch.uint8) if tensor.dim() else tensor.reshape(1).view(torch.uint8)


class _Found:
    """What can be reached from a function and its arguments."""

    def __init__(self) -> None:
        self.modules: dict[int, torch.nn.Module] = {}
        self.tensors: dict[int, torch.Tensor] = {}
        self.optimizers: dict[int, torch.optim.Optimizer] = {}
        self._seen: set[int] = set()

    def look(self, value: Any) -> None:
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, torch.Tensor):
            if value.layout == torch.strided and not value.is_meta:
                self.tensors.setdefault(id(value), value)
        elif isinstance(value, torch.nn.Module):
            for module in value.modules():
                self.modules.setdefault(id(module), module)
            for tensor in (*value.parameters(), *value.buffers()):
                self.look(tensor)
            self.look(getattr(value, "_orig_mod", None))
        elif isinstance(value, torch.optim.Optimizer):
            self.optimizers.setdefault(id(value), value)
            self.look([group["params"] for group in value.param_groups])
        else:
            for inner in _inside(value):
                self.look(inner)


def _inside(value: Any) -> Iterator[Any]:
    """What a container holds, and what a function refers to."""
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    elif isinstance(value, MethodType):
        yield value.__self__
        yield value.__func__
    elif isinstance(value, FunctionType):
        yield from (cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell))
        yield from (value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__)
        yield from value.__defaults__ or ()
        yield from (value.__kwdefaults__ or {}).values()
        yield getattr(value, "_torchdynamo_orig_callable", None)
        yield getattr(value, "__wrapped__", None)


def _names(code: Any) -> Iterator[str]:
    """Of globals that a function uses, also in the functions inside of it."""
    yield from code.co_names
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            yield from _names(constant)


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
