"""How much rounding a node may do: dtypes, their float64 counterparts, and errors as large as a rounding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from kernelscope.shadowing.reference.node_kinds import (
    aten,
    dtype_of,
    is_random,
    is_view,
    prims,
    value_of,
)

from .exact_numbers import makes_whole_numbers, where_not_exact
from .library_digits import Library, library_of, library_rounding, rounding_by

WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
_SIGNED = {
    aten.neg.default, aten.abs.default, aten.copysign.Tensor, aten.copysign.Scalar, aten.mul.Tensor,
    aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar, aten.where.self, aten.clone.default, aten.cat.default,
    aten._to_copy.default, aten.copy.default, aten.copy_.default, aten.index.Tensor, aten.gather.default,
    aten.index_select.default, aten.flip.default, prims.convert_element_type.default,
}  # fmt: skip
_MASKED = 1e30  # a larger number stands for infinity, as `torch.finfo(dtype).min` does in a mask
REDUCING = ("mm", "addmm", "bmm", "baddbmm", "convolution", "softmax", "attention", "cumsum", "linear")


def widened(inputs: Mapping[Node, Any]) -> dict[Node, Any]:
    return {node: widen(value) for node, value in inputs.items()}


def widen(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(WIDE[value.dtype]) if value.dtype in WIDE else value
    if isinstance(value, dict):
        return {key: widen(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(map(widen, value)) if type(value) in (tuple, list) else tuple(map(widen, value))
    return value


def shaken(value: Any, size: float, generator: torch.Generator) -> Any:
    if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
        moved = value * (1 + (2 * _noise(value, generator) - 1) * size)
        return torch.where(value.abs() > _MASKED, value, moved)
    if isinstance(value, tuple | list):
        kind = tuple if isinstance(value, tuple) else list
        return kind(shaken(v, size, generator) for v in value)
    return value


def shaken_result(node: Node, value: Any, generator: torch.Generator) -> Any:
    """With an error of one rounding: a maximum is rounded where what it is compared with may not be."""
    is_same = is_view(node) or is_random(node) or makes_whole_numbers(node.target)
    eps = 0.0 if is_same else rounding_in(node)
    if not eps:
        return value
    moved = shaken(value, 0.5 * eps, generator)
    if not isinstance(value, torch.Tensor):
        return moved
    return where_not_exact(moved, value, node.target, node.args, node.kwargs, dtype_of(node))


def shaken_terms(node: Node, args: Any, generator: torch.Generator) -> Any:
    """With the errors that the sums of a node may make, in what it adds."""
    if not (reach := reduction_size(node)):
        return args
    eps = rounding_in(node) or eps_of(torch.float32)
    return shaken(args, error_of_terms(eps, dtype_of(node), reach), generator)


def _noise(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Drawn where the value is: millions of numbers from a CPU take longer than all the rest on a GPU."""
    if value.device.type != generator.device.type:
        seed = int(torch.randint(1 << 62, (), generator=generator))
        generator = torch.Generator(value.device).manual_seed(seed)
    return torch.rand(value.shape, dtype=torch.float64, device=value.device, generator=generator)


def reduction_size(node: Node) -> float:
    """How many numbers go into one of the result's, for a node that adds many; else 0."""
    out = value_of(node)
    outs = [v for v in (out if isinstance(out, tuple | list) else [out]) if isinstance(v, torch.Tensor)]
    ins = [v for n in node.all_input_nodes if isinstance(v := value_of(n), torch.Tensor)]
    if not outs or not ins or is_view(node):
        return 0
    most, made = max(_count(v) for v in ins), max(1.0, min(_count(v) for v in outs))
    name = str(getattr(node.target, "__name__", node.target))
    if any(word in name for word in REDUCING):
        return max(most / made, max(float(_last(v)) for v in ins))
    return most / made if most > made else 0


def keeps_signs_of_zeros(node: Node) -> bool:
    """The zeros of its result have a defined sign: of a sum or a maximum, how it is computed decides."""
    return is_view(node) or defines_signs_of_zeros(node.target, _device_of(node))


def defines_signs_of_zeros(operator: Any, device: torch.device | None) -> bool:
    """Triton computes -x as 0 - x: there it is always that of +0."""
    if operator is aten.neg.default and device is not None and device.type != "cpu":
        return False
    return operator in _SIGNED


def _count(value: torch.Tensor) -> float:
    return float(math.prod(int(n) if isinstance(n, int) else _hint(n) for n in value.shape))


def _last(value: torch.Tensor) -> int:
    return _hint(value.shape[-1]) if value.dim() else 1


def _hint(size: Any) -> int:
    if isinstance(size, int):
        return size
    hint = getattr(size.node, "hint", None)
    return int(hint) if hint is not None else 64


def eps_of(dtype: torch.dtype | None) -> float:
    """One rounding, relative; 0 for what is not a float."""
    if dtype is None or not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    return float(torch.finfo(dtype).eps)


def rounding_of(operator: Any, dtype: torch.dtype | None, device: torch.device | None) -> float:
    """One rounding of what an operator computes: of its dtype, or of the digits that a library may use."""
    return max(eps_of(dtype), library_rounding(operator, dtype, device))


def rounding_in(node: Node) -> float:
    return rounding_of(node.target, dtype_of(node), _device_of(node))


def _device_of(node: Node) -> torch.device | None:
    value = value_of(node)
    tensors = value if isinstance(value, tuple | list) else [value]
    return next((v.device for v in tensors if isinstance(v, torch.Tensor)), None)


def error_of_terms(rounding: float, dtype: torch.dtype | None, terms: float) -> float:
    """Of each number that is added up: it is rounded once, and their sum in the order of the kernel's own."""
    return 0.5 * rounding + (eps_of(dtype) or eps_of(torch.float32)) * math.sqrt(terms) / 8


def coarsest_eps(order: Iterable[Node], outputs: Iterable[torch.dtype]) -> float:
    """Of all that the nodes compute; inputs are what they are."""
    return Rounding.of(order).eps(*outputs)


@dataclass(frozen=True, slots=True)
class Rounding:
    """What some nodes compute, and how they may round; worked out once."""

    coarsest: float  # by their dtypes
    libraries: frozenset[Library]  # whose digits are a setting, which may change
    adds: bool  # many numbers go into one
    signed_zeros: bool  # the sign of a zero is defined

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> Rounding:
        nodes = list(nodes)
        computed = [(n.target, dtype_of(n), _device_of(n)) for n in nodes if not is_view(n)]
        libraries = frozenset(found for each in computed if (found := library_of(*each)) is not None)
        coarsest = max((eps_of(dtype) for _, dtype, _ in computed), default=0.0)
        adds, zeros = any(map(reduction_size, nodes)), all(map(keeps_signs_of_zeros, nodes))
        return cls(coarsest, libraries, adds, zeros)

    def eps(self, *results: torch.dtype) -> float:
        """The coarsest rounding, also of results of these dtypes."""
        found = max([self.coarsest, *map(eps_of, results), *map(rounding_by, self.libraries)])
        return found or eps_of(torch.float32)
