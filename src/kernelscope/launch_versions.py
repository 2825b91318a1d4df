"""Which versions of which tensors a launch finds, and which it leaves behind."""

from __future__ import annotations

import torch

from .fingerprint.versions import Tensors
from .probes.launch import Launch


def versions_before(launch: Launch) -> Tensors:
    """What the launch finds: its inputs, and what it writes over, where that means anything."""
    point, flat, stream = launch.point, launch.flat, launch.stream
    found = zip(point.tensors, launch.storage_ids, launch.epochs, launch.offsets, point.views, strict=True)
    return {
        i: ((storage, epoch, offset, view, stream), flat[i])
        for i, storage, epoch, offset, view in found
        if i not in launch.dead
    }


def versions_after(launch: Launch, returned: dict[int, torch.Tensor], reread: bool) -> Tensors:
    """What the launch left behind: what it wrote and returned, and with `reread` everything it was given."""
    point, stream = launch.point, launch.stream
    left: Tensors = {}
    touched = {launch.storage_ids[place] for _, place in point.outputs}  # an input may lie in written memory
    for place, i in enumerate(point.tensors):
        if i in point.written and point.is_pending:
            continue  # a collective is under way; its wait is the write
        if i in point.written or (i not in launch.dead and (reread or launch.storage_ids[place] in touched)):
            storage, offset = launch.storages[place], launch.offsets[place]
            left[i] = ((storage.id, storage.epoch, offset, point.views[place], stream), launch.flat[i])
    made = launch.storages[len(point.tensors) :]
    for (i, tensor), storage in zip(returned.items(), made, strict=True):
        view = id(launch.site.args[i].tensor)
        left[i] = ((storage.id, storage.epoch, int(tensor.storage_offset()), view, stream), tensor)
    return left


def readable_returns(launch: Launch) -> dict[int, torch.Tensor]:
    """What the launch returned, by argument index, where its values can be read."""
    first = len(launch.point.site.args)
    specs = [arg.tensor for arg in launch.site.args[first:]]
    return {
        first + i: tensor
        for i, (tensor, spec) in enumerate(zip(launch.returned, specs, strict=True))
        if spec is not None and not spec.unread
    }
