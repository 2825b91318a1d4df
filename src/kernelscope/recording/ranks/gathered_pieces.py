"""An all-gather into one tensor: the piece of each rank has a fingerprint too, as has what that rank sent.

Only in a run on disk, where ranks are compared. Each piece is an argument of the call, or of its wait.
"""

from __future__ import annotations

import torch

from kernelscope.events import Arg, Call, Site
from kernelscope.fingerprint.versions import AnyFingerprinter
from kernelscope.probes.bus import BUS
from kernelscope.probes.describe import describe
from kernelscope.probes.distributed.collectives import gathers_into_one, is_wait
from kernelscope.probes.distributed.process_groups import process_groups
from kernelscope.probes.launch import Launch

MOST = 64  # pieces of one tensor; of more ranks, each reads those of other ranks, from its own on

_Gathered = tuple[str, torch.Tensor, int, str]  # name of the output, it, elements of a piece, group


class GatheredPieces:
    """Of one recording."""

    def __init__(self) -> None:
        self._under_way: dict[int, tuple[int, str]] = {}  # by storage: elements of a piece, group
        self._sites: dict[tuple[int, tuple[Arg, ...]], Site] = {}
        self._members: dict[str, tuple[int, ...]] = {}

    def add(self, launch: Launch, call: Call, fingerprinter: AnyFingerprinter) -> None:
        """To a call that has ended: its pieces as arguments, with fingerprints of what they hold now."""
        if launch.graph_call >= 0 or call.post is None:
            return  # a plan of fingerprints knows only what the wrapper has a variable for
        if launch.site.collective and gathers_into_one(launch.func):
            if launch.point.is_pending:
                self._begins(launch)
            else:
                self._take(launch, call, _outputs(launch), fingerprinter)
        elif self._under_way and is_wait(launch.func):
            self._take(launch, call, self._awaited(launch), fingerprinter)

    def _awaited(self, launch: Launch) -> list[_Gathered]:
        found: list[_Gathered] = []
        for i in launch.point.tensors:
            tensor = launch.flat[i]
            if (known := self._under_way.pop(BUS.storages.of(tensor).id, None)) is not None:
                found.append((launch.site.args[i].name, tensor, *known))
        return found

    def _begins(self, launch: Launch) -> None:
        """A functional one: its result is there after its wait."""
        given = [launch.flat[i] for i in launch.point.tensors if i not in launch.point.written]
        results = launch.returned or [launch.flat[i] for i in sorted(launch.point.written)]
        for sent, result in zip(given, results, strict=False):
            self._under_way[BUS.storages.of(result).id] = sent.numel(), launch.site.collective

    def _take(
        self, launch: Launch, call: Call, gathered: list[_Gathered], fingerprinter: AnyFingerprinter
    ) -> None:
        assert call.post is not None
        with BUS.mute(), torch.no_grad():
            pieces = [piece for each in gathered for piece in self._pieces(*each)]
            if not pieces:
                return
            tensors = [tensor for _, tensor in pieces]
            slots = fingerprinter.take(tensors)
        args = tuple(Arg(name, "in", describe(tensor), returned=True) for name, tensor in pieces)
        first = len(call.site.args)
        call.site = self._site(call.site, args)
        call.post |= {first + i: slot for i, slot in enumerate(slots)}
        storages = [BUS.storages.of(tensor) for tensor in tensors]
        call.storages += tuple(storage.id for storage in storages)
        call.epochs += tuple(storage.epoch - 1 for storage in storages)
        call.offsets += tuple(int(tensor.storage_offset()) for tensor in tensors)

    def _pieces(
        self, name: str, tensor: torch.Tensor, elements: int, group: str
    ) -> list[tuple[str, torch.Tensor]]:
        count = tensor.numel() // elements if elements else 0
        members = self._ranks_of(group)
        if count < 2 or count != len(members) or not tensor.is_contiguous():
            return []
        own = members.index(torch.distributed.get_rank())
        flat = tensor.view(-1)
        places = sorted((own + i) % count for i in range(min(count, MOST)))
        return [(f"{name}[{place}]", flat[place * elements : (place + 1) * elements]) for place in places]

    def _ranks_of(self, group: str) -> tuple[int, ...]:
        if group not in self._members:
            self._members |= {each.name: each.ranks for each in process_groups()}
        return self._members.get(group, ())

    def _site(self, site: Site, pieces: tuple[Arg, ...]) -> Site:
        known = self._sites.get((site.id, pieces))
        if known is None:
            known = self._sites[site.id, pieces] = site.with_returns(next(BUS.site_ids), pieces)
        return known


def _outputs(launch: Launch) -> list[_Gathered]:
    point, flat = launch.point, launch.flat
    outputs = [i for i in point.tensors if i in point.written]
    inputs = [i for i in point.tensors if i not in point.written]
    names, group = [arg.name for arg in launch.site.args], launch.site.collective
    return [(names[o], flat[o], flat[i].numel(), group) for o, i in zip(outputs, inputs, strict=False)]
