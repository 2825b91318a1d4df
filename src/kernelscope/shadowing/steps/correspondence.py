"""Which input and output of the first ATen graph is which of the graph that Dynamo traced.

AOTAutograd notes at each what it is; inputs that share memory and are written to become one, their base.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelscope.probes.compiler_steps.fx_stages import Traced
from kernelscope.shadowing.reference.evaluate import CannotEvaluate
from kernelscope.shadowing.reference.graph_walk import concrete_sizes
from kernelscope.shadowing.reference.node_kinds import results_of

from .inputs import placeholders

_BASES = ("ViewBaseAOTInput", "SyntheticBaseAOTInput")


def kind_of(description: Any) -> str:
    return type(description).__name__


def index_of(description: Any) -> int | None:
    """Of an input or output of the traced graph."""
    is_plain = kind_of(description) in ("PlainAOTInput", "PlainAOTOutput")
    return int(description.idx) if is_plain else None


def described_inputs(graph: GraphModule) -> dict[str, Any]:
    found = {node.name: node.meta.get("desc") for node in placeholders(graph)}
    if found and all(each is None for each in found.values()):
        raise CannotEvaluate(
            "AOTAutograd does not record how its inputs correspond to those of the traced graph"
        )
    return found


def described_outputs(graph: GraphModule) -> list[Any]:
    output: Node = next(n for n in reversed(list(graph.graph.nodes)) if n.op == "output")
    found = output.meta.get("desc")
    count = len(results_of(graph))
    if isinstance(found, Sequence) and len(found) > count:  # tokens of effects are outputs at first only
        found = [each for each in found if not kind_of(each).endswith("TokenAOTOutput")]
    if not isinstance(found, Sequence) or len(found) != count:
        raise CannotEvaluate(
            "AOTAutograd does not record how its outputs correspond to those of the traced graph"
        )
    return list(found)


def traced_inputs(
    graph: GraphModule, traced: Traced, alive: Mapping[str, Any], sizes: Mapping[str, Any]
) -> list[Any]:
    """The inputs of the traced graph, from those of the ATen graph."""
    plain: dict[int, Any] = {}
    bases: dict[int, torch.Tensor] = {}
    for name, description in described_inputs(graph).items():
        if name not in alive:
            continue
        if (index := index_of(description)) is not None:
            plain[index] = alive[name]
        elif kind_of(description) in _BASES and (index := index_of(description.base_of)) is not None:
            bases[index] = alive[name]
        elif kind_of(description).startswith("Subclass"):
            raise CannotEvaluate("an input is a tensor subclass, which AOTAutograd takes apart")
    found: list[Any] = []
    for i, fake in enumerate(traced.inputs):
        if i in plain:
            found.append(plain[i])
        elif isinstance(fake, int | float | bool):
            found.append(fake)
        elif isinstance(fake, torch.Tensor):
            found.append(_missing(i, fake, traced, plain, bases, sizes))
        else:
            raise CannotEvaluate(f"the value of input {i} of the traced graph is unknown")
    return found


def _missing(
    index: int,
    fake: torch.Tensor,
    traced: Traced,
    plain: Mapping[int, Any],
    bases: Mapping[int, torch.Tensor],
    sizes: Mapping[str, Any],
) -> Any:
    for other, value in plain.items():
        if traced.inputs[other] is fake:
            return value  # passed in twice
    for other, base in bases.items():
        if _share_memory(traced.inputs[other], fake):
            return _viewed(base, fake, sizes)
    raise CannotEvaluate(f"the value of input {index} of the traced graph is unknown")


def _share_memory(one: Any, other: torch.Tensor) -> bool:
    return isinstance(one, torch.Tensor) and one.untyped_storage()._cdata == other.untyped_storage()._cdata


def _viewed(base: torch.Tensor, fake: torch.Tensor, sizes: Mapping[str, Any]) -> torch.Tensor:
    try:
        offset = concrete_sizes([fake.storage_offset()], sizes)[0]
        shape, stride = concrete_sizes(fake.shape, sizes), concrete_sizes(fake.stride(), sizes)
    except KeyError as error:
        raise CannotEvaluate(f"the size {error} is unknown") from error
    return placed(base, offset, shape, stride, fake.dtype)


def placed(
    base: torch.Tensor, offset: int, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    """A tensor in the memory of another one."""
    made = torch.empty(0, dtype=dtype, device=base.device)
    return made.set_(base.untyped_storage(), offset, tuple(shape), tuple(stride))


def index_of_input(description: Any) -> int | None:
    """Of an input of the traced graph, also of one that is a view of the described base."""
    if kind_of(description) in _BASES:
        return index_of(description.base_of)
    return index_of(description)
