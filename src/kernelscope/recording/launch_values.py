"""What a launch finds and what it leaves behind, fingerprinted: each version of a tensor once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch

from kernelscope.events import TensorSpec
from kernelscope.fingerprint.torch_bits import poison, quiet
from kernelscope.fingerprint.versions import AnyFingerprinter, Tensors, Versions
from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch, reading_number

Slots: TypeAlias = dict[int, int]  # by argument


class LaunchValues:
    """Fingerprints the arguments of launches, before and after."""

    def __init__(self, fingerprinter: AnyFingerprinter, verify: str) -> None:
        self.fingerprinter = fingerprinter
        self._versions = Versions(fingerprinter)
        self._sees_shapes = fingerprinter.sees_shapes
        self._rereads = verify == "reread"
        self._poisons = verify == "poison"

    def before(self, launch: Launch, *, began_unseen: bool = False) -> Slots:
        """With `began_unseen` its graph began before the recording: its own memory may hold nothing yet."""
        found = _versions_before(launch, self._views(launch))
        if began_unseen:
            found = {i: one for i, one in found.items() if i not in launch.point.written}
        return self._take(launch, found, reread=self._rereads)

    def after(self, launch: Launch, before: Slots) -> Slots:
        # What it only read has not changed, unless verify="reread" or the code is the user's own.
        point = launch.point
        reread = point.is_opaque or self._rereads
        left = _versions_after(launch, reread, self._views(launch), self._view)
        unread = {i: slot for i, slot in before.items() if i not in left and i not in point.written}
        return unread | self._take(launch, left, reread=True)

    def poison(self, launch: Launch) -> Slots | None:
        """With verify="poison", fill uninitialised outputs that this graph call allocated with a sentinel."""
        if not self._poisons or not launch.uninitialised:
            return None
        point = launch.point
        filled = [
            i
            for position, i in enumerate(point.tensors)
            if i in launch.uninitialised
            and i in point.written
            and launch.storages[position].born_in == launch.graph_call >= 0
            and launch.flat[i].numel()
        ]
        with BUS.mute(), quiet():
            for i in filled:
                poison(launch.flat[i])
            slots = self.fingerprinter.take([launch.flat[i] for i in filled]) if filled else []
        return dict(zip(filled, slots, strict=True))

    def _views(self, launch: Launch) -> tuple[int, ...]:
        """For each tensor that is given, what two of one version must share to be fingerprinted once."""
        point = launch.point
        return (
            tuple(id(point.site.args[i].tensor) for i in point.tensors)
            if self._sees_shapes
            else point.readings
        )

    def _view(self, spec: TensorSpec) -> int:
        return id(spec) if self._sees_shapes else reading_number(spec)  # specs are interned

    def _take(self, launch: Launch, tensors: Tensors, *, reread: bool) -> Slots:
        with BUS.mute():
            return self._versions.take((launch.graph_call, BUS.here.opaque), tensors, reread=reread)


def _versions_before(launch: Launch, views: tuple[int, ...]) -> Tensors:
    """What the launch finds: its inputs, and what it writes over, where that means anything."""
    point, flat, stream = launch.point, launch.flat, launch.stream
    found = zip(point.tensors, launch.storage_ids, launch.epochs, launch.offsets, views, strict=True)
    return {
        i: ((storage, epoch, offset, view, stream), flat[i])
        for i, storage, epoch, offset, view in found
        if i not in launch.uninitialised
    }


def _versions_after(
    launch: Launch, reread: bool, views: tuple[int, ...], view_of: Callable[[TensorSpec], int]
) -> Tensors:
    """What the launch left behind: what it wrote and returned, and with `reread` everything it was given."""
    point, stream = launch.point, launch.stream
    left: Tensors = {}
    touched = {
        launch.storage_ids[position] for _, position in point.outputs
    }  # an input may lie in written memory
    for position, i in enumerate(point.tensors):
        if i in point.written and point.is_pending:
            continue  # a collective is under way; its wait is the write
        if i in point.written or (
            i not in launch.uninitialised and (reread or launch.storage_ids[position] in touched)
        ):
            storage, offset = launch.storages[position], launch.offsets[position]
            left[i] = ((storage.id, storage.epoch, offset, views[position], stream), launch.flat[i])
    made = launch.storages[len(point.tensors) :]
    for (i, tensor), storage in zip(readable_returns(launch).items(), made, strict=True):
        spec = launch.site.args[i].tensor
        assert spec is not None
        view = view_of(spec)
        left[i] = ((storage.id, storage.epoch, int(tensor.storage_offset()), view, stream), tensor)
    return left


def readable_returns(launch: Launch) -> dict[int, torch.Tensor]:
    """What the launch returned, by argument index, where its values can be read."""
    if not launch.returned:
        return {}
    first = len(launch.point.site.args)
    specs = [arg.tensor for arg in launch.site.args[first:]]
    return {
        first + i: tensor
        for i, (tensor, spec) in enumerate(zip(launch.returned, specs, strict=True))
        if spec is not None and not spec.unread
    }
