"""What a launch finds and leaves, argument by argument: the same to print and to save."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kernelscope.events import Arg, Call
from kernelscope.fingerprint import Fingerprint
from kernelscope.probes.launch import Launch

from .kernel_filter import KernelFilter

BEFORE, AFTER = "before_launch", "after_launch"


@dataclass(frozen=True, slots=True)
class Seen:
    """One argument at one moment."""

    position: int
    arg: Arg
    tensor: torch.Tensor | None = None  # None: see `why` or `value`
    why: str = ""  # why it has no values to read
    value: Any = None  # of a number
    slot: int | None = None  # of its fingerprint, if one was taken

    @property
    def name(self) -> str:
        """What the generated code calls it: buf3, arg0_1; else the kernel's own name for it."""
        return self.arg.wrapper_name if self.arg.wrapper_name.isidentifier() else self.arg.name

    def fingerprint(self, call: Call) -> Fingerprint | None:
        if self.slot is None or call.fingerprinter is None or not call.fingerprinter.has_stats:
            return None
        bits = call.fingerprinter.read(self.slot)
        return Fingerprint(bits, call.fingerprinter.stats(self.slot)) if isinstance(bits, int) else None


def seen(call: Call, launch: Launch, moment: str) -> Iterator[Seen]:
    """Every tensor argument, and before the launch every number."""
    slots = (call.pre if moment == BEFORE else call.post) or {}
    values = [*launch.flat, *launch.returned] if moment == AFTER else list(launch.flat)
    for i, (arg, value) in enumerate(zip(call.site.args, values, strict=False)):
        if arg.tensor is None:
            if moment == BEFORE and isinstance(value, bool | int | float | complex):
                yield Seen(i, arg, value=value)
        elif arg.tensor.unread:
            yield Seen(i, arg, why=f"its values cannot be read: {arg.tensor.unread}")
        elif i in call.uninitialised and (moment == BEFORE or i not in launch.point.written):
            yield Seen(i, arg, why="uninitialised memory")
        elif moment == AFTER and launch.point.is_pending and i in launch.point.written:
            yield Seen(i, arg, why="not available yet: the collective has not been waited for")
        else:
            yield Seen(i, arg, value, slot=slots.get(i))


class LaunchViewer(ABC):
    """An observer that shows the launches of the wanted kernels, before and after."""

    def __init__(self, wanted: KernelFilter) -> None:
        self._wanted = wanted

    def before(self, call: Call, launch: Launch) -> None:
        if self._wanted.wants(call.site.kernel, call.site.device):
            self._show(call, launch, BEFORE)

    def after(self, call: Call, launch: Launch) -> None:
        if self._wanted.wants(call.site.kernel, call.site.device):
            self._show(call, launch, AFTER)

    @abstractmethod
    def _show(self, call: Call, launch: Launch, moment: str) -> None: ...
