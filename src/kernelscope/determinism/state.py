"""What a function may change, put back before it runs again."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from .reachable import Reachable

_PLAIN = (int, float, complex, str, bytes, tuple, type(None))
_ABSENT = object()


class State:
    """The arguments, and what a function refers to: tensors, modules, optimizers, objects, generators."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found = Reachable()
        for start in (fn, args, kwargs):
            found.look(start)
        self._modules = [(m, _plain_attributes(m)) for m in found.modules.values()]
        self._tensors = [_Tensor(tensor) for tensor in found.tensors.values()]
        self._arrays = [(array, array.copy()) for array in found.arrays.values()]
        self._containers = [(c, copy.copy(c)) for c in found.containers.values()]
        self._objects = [(o, dict(vars(o))) for o in found.objects.values()]
        self._cells = [(cell, cell.cell_contents) for cell in found.cells.values()]
        self._globals = [(space, name, space.get(name, _ABSENT)) for space, name in found.globals.values()]
        # A fresh deep copy is needed each time: loading an optimizer's state does not copy its tensors.
        self._stateful = [(o, copy.deepcopy(o.state_dict())) for o in found.stateful.values()]
        self._generators = Generators([*found.generators.values()])

    def put_back(self) -> None:
        for container, contents in self._containers:
            _refill(container, contents)
        for owner, attributes in self._objects:
            vars(owner).clear()
            vars(owner).update(attributes)
        for cell, value in self._cells:
            cell.cell_contents = value
        for space, name, value in self._globals:
            if value is _ABSENT:
                space.pop(name, None)
            else:
                space[name] = value
        for module, attributes in self._modules:
            vars(module).update(attributes)
        for tensor in self._tensors:
            tensor.put_back()
        for array, contents in self._arrays:
            array[...] = contents
        for owner, state in self._stateful:
            owner.load_state_dict(copy.deepcopy(state))
        self._generators.put_back()


def _plain_attributes(module: torch.nn.Module) -> dict[str, Any]:
    """Counters and switches that a module keeps beside its tensors."""
    return {name: value for name, value in vars(module).items() if isinstance(value, _PLAIN)}


def _refill(container: Any, contents: Any) -> None:
    if isinstance(container, list):
        container[:] = contents
    else:
        container.clear()
        container.update(contents)


class Generators:
    """Python's, numpy's and torch's random numbers, and generators of the program's own."""

    def __init__(self, own: list[torch.Generator] | None = None) -> None:
        self._python = random.getstate()
        numpy: Any = sys.modules.get("numpy")
        self._numpy = numpy.random.get_state() if numpy is not None else None
        self._torch = [(each, each.get_state()) for each in [*torch_generators(), *(own or ())]]

    def put_back(self) -> None:
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        for generator, state in self._torch:
            generator.set_state(state)


def torch_generators() -> list[torch.Generator]:
    """The CPU's, and every GPU's if the program uses CUDA already."""
    cuda: Any = torch.cuda
    if not cuda.is_initialized() or cuda.is_current_stream_capturing():  # a capture forbids reading them
        return [torch.default_generator]
    return [torch.default_generator, *cuda.default_generators]


class _Tensor:
    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self._contents = tensor.detach().clone()
        self._grad = None if tensor.grad is None else tensor.grad.detach().clone()

    def put_back(self) -> None:
        tensor = self._tensor
        with torch.inference_mode() if tensor.is_inference() else nullcontext(), torch.no_grad():
            if tensor.shape != self._contents.shape:
                tensor.resize_(self._contents.shape)
            if not torch.equal(_bytes(tensor.detach()), _bytes(self._contents)):
                tensor.copy_(self._contents)
        if tensor.is_leaf:
            tensor.grad = None if self._grad is None else self._grad.clone()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """NaN equals NaN when looked at as bytes."""
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    return plain.view(torch.uint8) if plain.dim() else plain.reshape(1).view(torch.uint8)
