"""DTensors: how each argument and result of an operator is laid out over the ranks, and over which mesh."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import torch

from kernelscope.events import DTENSOR_ENDS, DTENSOR_OPERATOR, MESH
from kernelscope.probes.bus import BUS
from kernelscope.probes.contained import contained
from kernelscope.probes.operators import operator_name


def dtensor_class() -> Any:
    """torch's class; None as long as the program has not loaded it."""
    return getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)


class DTensorOperators:
    """Around an operator on DTensors: marks say what it was given and what it gave, before it is taken apart.

    Its local operators come between the two marks. A mesh is told once.
    """

    def __init__(self) -> None:
        self._meshes: dict[Any, str] = {}  # by mesh: its name in this run
        self._told: tuple[Any, ...] = ()  # the recordings that know of all meshes

    def begins(self, func: Any, args: Any, kwargs: Any) -> None:
        with contained(f"looking at the DTensors of {func}"), torch._C.DisableTorchFunction():
            specs = [self._spec(each) for each in _tensors((args, kwargs))]
            BUS.mark(DTENSOR_OPERATOR, json.dumps({"operator": operator_name(func), "arguments": specs}))

    def ends(self, func: Any, result: Any) -> None:
        with contained(f"looking at the DTensors that {func} gave"), torch._C.DisableTorchFunction():
            BUS.mark(DTENSOR_ENDS, json.dumps({"results": [self._spec(each) for each in _tensors(result)]}))

    def _spec(self, tensor: Any) -> dict[str, Any] | None:
        """None for a tensor that is not a DTensor."""
        if not isinstance(tensor, dtensor_class()):
            return None
        spec, local = tensor._spec, tensor._local_tensor
        if type(local).__name__ == "AsyncCollectiveTensor":
            local = local.elem
        return {
            "mesh": self._mesh(spec.mesh),
            "placements": [placement_text(each) for each in spec.placements],
            "shape": [int(size) for size in spec.shape],
            "storage": BUS.storages.of(local).id,
        }

    def _mesh(self, mesh: Any) -> str:
        if self._told != tuple(BUS.listeners):
            self._meshes.clear()
            self._told = tuple(BUS.listeners)
        if mesh not in self._meshes:
            self._meshes[mesh] = name = str(len(self._meshes))
            coordinate = mesh.get_coordinate()
            about = {
                "name": name,
                "shape": list(mesh.mesh.shape),
                "ranks": mesh.mesh.flatten().tolist(),
                "dimensions": list(mesh.mesh_dim_names or ()),
                "coordinate": None if coordinate is None else list(coordinate),
                "groups": [str(group.group_name) for group in mesh.get_all_groups()],
            }
            BUS.mark(MESH, json.dumps(about))
        return self._meshes[mesh]


def placement_text(placement: Any) -> str:
    """ "Shard(0)", "StridedShard(0, 2)", "Replicate" or "Partial(sum)"; of another class, its own text."""
    name = type(placement).__name__
    if name == "Shard":
        return f"Shard({placement.dim})"
    if name == "_StridedShard":
        return f"StridedShard({placement.dim}, {placement.split_factor})"
    if name == "Partial":
        return f"Partial({placement.reduce_op})"
    return "Replicate" if name == "Replicate" else str(placement)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
