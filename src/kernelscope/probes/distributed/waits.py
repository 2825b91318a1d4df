"""A program's wait for a collective: what the collective writes is there when it returns."""

from __future__ import annotations

from typing import Any

import torch

from kernelscope.probes.bus import BUS
from kernelscope.probes.contained import contained
from kernelscope.probes.launch import Launch
from kernelscope.probes.own_work import unseen
from kernelscope.probes.patching import Patch, PatchSet

from .collectives import work_of

_WAIT = "torch.distributed:Work.wait"


class CollectiveWaits(PatchSet):
    """The probe: some works of gloo's never say that they are over, and nothing may use what they wrote."""

    def __init__(self) -> None:
        super().__init__(*([Patch(_WAIT, _ending)] if torch.distributed.is_available() else []))


def _ending(original: Any) -> Any:
    def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
        awaited = _awaited(work)
        BUS.awaited += awaited
        try:
            result = original(work, *args, **kwargs)  # of gloo's, some copy their result into place here
        finally:
            for launch in awaited:
                BUS.awaited.remove(launch)
        if awaited:
            with contained("recording the end of a collective"):
                unseen(BUS.end, lambda launch: launch in awaited)
        return result

    return wait


def _awaited(work: Any) -> list[Launch]:
    found: list[Launch] = []
    if BUS.under_way:
        with contained("looking for the collective that is waited for"):
            found = [launch for launch in list(BUS.under_way) if work_of(launch) is work]
    return found
