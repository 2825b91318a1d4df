"""Runs a function from the same state again and again, and collects what it returns and its gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelscope.determinism.state import State
from kernelscope.probes.bus import BUS
from kernelscope.shadowing.run_once import leaves_of

Outputs = dict[str, torch.Tensor]


class ProgramRuns:
    """The function with its arguments, as often as it is needed."""

    def __init__(
        self, fn: Callable[..., Any], target: Callable[..., Any], args: tuple[Any, ...],
        kwargs: dict[str, Any], wanted: Sequence[str],
    ) -> None:  # fmt: skip
        """`fn` is what the state is taken from, `target` what is called; `wanted` has globs of outputs."""
        self._target, self._args, self._kwargs = target, args, kwargs
        self._wanted = [glob.lower() for glob in wanted]
        self._state = State(fn, args, kwargs)
        self._names = _names_of_leaves(fn, args, kwargs)
        self.count = 0
        self.known: list[str] = []  # all outputs of the last run, wanted or not
        self.notes: list[str] = []

    def once(self) -> Outputs:
        """What the function returns and the gradients of it, as copies in float64; integers as they are."""
        with BUS.mute():
            self._state.put_back()
        self.count += 1
        returned = self._target(*self._args, **self._kwargs)
        tensors = [leaf for leaf in tree_leaves(returned) if isinstance(leaf, torch.Tensor)]
        found = {f"result {i}": tensor for i, tensor in enumerate(tensors)}
        if self._wants_gradients():
            found |= self._gradients(tensors)
        with BUS.mute():
            self.known = list(found)
            return {name: _kept(value) for name, value in found.items() if self._is_wanted(name)}

    def put_back(self) -> None:
        self._state.put_back()

    def _is_wanted(self, name: str) -> bool:
        return not self._wanted or any(fnmatchcase(name.lower(), glob) for glob in self._wanted)

    def _wants_gradients(self) -> bool:
        return not self._wanted or any(glob[:1] in ("g", "*", "?", "[") for glob in self._wanted)

    def _gradients(self, tensors: list[torch.Tensor]) -> Outputs:
        known = [t for t in self._names.tensors if t.is_leaf]
        own = {f"gradient of {self._names[id(t)]}": t.grad for t in known if t.grad is not None}
        wanted = [t for t in tensors if t.requires_grad and (t.is_floating_point() or t.is_complex())]
        if not wanted:
            return own
        leaves = leaves_of(wanted)
        with BUS.mute():
            generator = torch.Generator().manual_seed(0)
            start = [_start(t, generator) for t in wanted]
        try:
            made = torch.autograd.grad(wanted, leaves, start, allow_unused=True)
        except RuntimeError as error:  # the function has done so itself
            note = f"The results were not differentiated: {str(error).strip().partition(chr(10))[0][:200]}"
            self.notes += [note] if note not in self.notes else []
            return own
        for i, (leaf, gradient) in enumerate(zip(leaves, made, strict=True)):
            if gradient is not None:
                own[f"gradient of {self._names.get(id(leaf), f'leaf {i}')}"] = gradient
        return own


class _Names(dict[int, str]):
    """Names of leaves by identity, and the tensors themselves, which must live as long."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[torch.Tensor] = []

    def note(self, name: str, tensor: torch.Tensor) -> None:
        if id(tensor) not in self:
            self[id(tensor)] = name
            self.tensors.append(tensor)


def _names_of_leaves(fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Names:
    found = _Names()
    given = [*((f"argument {i}", each) for i, each in enumerate(args)), *kwargs.items()]
    for name, value in given:
        for i, leaf in enumerate(t for t in tree_leaves(value) if isinstance(t, torch.Tensor)):
            found.note(name if leaf is value else f"{name} [{i}]", leaf)
    module = getattr(fn, "_orig_mod", fn)
    module = getattr(module, "__self__", module)
    if isinstance(module, torch.nn.Module):
        for name, parameter in module.named_parameters():
            found.note(name, parameter)
    return found


def _start(result: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Not ones: the sum of a normalised or softmaxed result has no gradient. The same in each run."""
    if not result.dim():
        return torch.ones_like(result)
    drawn = torch.randn(result.shape, generator=generator, dtype=torch.float64)
    return drawn.to(device=result.device, dtype=result.dtype)


def _kept(value: torch.Tensor) -> torch.Tensor:
    value = value.detach()
    if value.is_complex():
        value = torch.view_as_real(value.resolve_conj())
    return value.double() if value.is_floating_point() and value.dtype != torch.float64 else value.clone()


def is_without_numbers(value: torch.Tensor) -> bool:
    """Every element is NaN or infinite."""
    return value.is_floating_point() and bool(value.numel()) and not bool(value.isfinite().any())


def distance(found: Outputs, reference: Outputs) -> tuple[float, str]:
    """The largest relative error of an output (rms; of integers the share that differs), and its name."""
    worst, where = 0.0, ""
    for name, value in reference.items():
        error = _relative(found[name], value) if name in found else math.inf
        if error > worst or not where:
            worst, where = error, name
    return worst, where


def _relative(found: torch.Tensor, reference: torch.Tensor) -> float:
    if found.shape != reference.shape:
        return math.inf
    if not reference.numel():
        return 0.0
    if not reference.is_floating_point():
        return float((found != reference).double().mean())
    same = (found == reference) | (found.isnan() & reference.isnan())
    apart = torch.where(same, 0.0, found - reference)
    if not bool(apart.isfinite().all()):
        return math.inf
    error = float(apart.norm())
    size = float(torch.where(reference.isfinite(), reference, 0.0).norm())
    return error / size if size else math.inf if error else 0.0
