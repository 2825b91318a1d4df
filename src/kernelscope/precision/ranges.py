"""The values that each kernel leaves: their range, and how many of them narrower formats cannot hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelscope.events import Call, Site
from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch
from kernelscope.values.argument_snapshots import AFTER, seen

from .formats import FORMATS
from .measured_launches import Key, key_of

_FLOATS = {
    torch.float64,
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
}


@dataclass(slots=True)
class Range:
    """All floating-point outputs of all launches at one site."""

    elements: int = 0
    zeros: int = 0
    nan: int = 0
    infinite: int = 0
    smallest: float = math.inf  # magnitude that is not zero
    largest: float = 0.0  # magnitude
    subnormal: int = 0  # elements below the smallest normal number of their own dtype
    overflow: dict[str, int] = field(default_factory=dict)  # by format
    underflow: dict[str, int] = field(default_factory=dict)
    flushed: dict[str, int] = field(default_factory=dict)

    def add(self, values: torch.Tensor) -> None:
        least = torch.finfo(values.dtype).smallest_normal
        values = values.float() if values.itemsize == 1 else values
        magnitudes = values.abs()
        finite = magnitudes[magnitudes.isfinite()]
        numbers = finite[finite != 0]
        self.elements += values.numel()
        self.zeros += finite.numel() - numbers.numel()
        self.nan += int(values.isnan().sum())
        self.infinite += int(values.isinf().sum())
        self.subnormal += int((numbers < least).sum())
        if numbers.numel():
            self.smallest = min(self.smallest, float(numbers.min()))
            self.largest = max(self.largest, float(numbers.max()))
        for name, each in FORMATS.items():
            lost = each.lost(values)
            self.overflow[name] = self.overflow.get(name, 0) + lost.overflow
            self.underflow[name] = self.underflow.get(name, 0) + lost.underflow
            self.flushed[name] = self.flushed.get(name, 0) + lost.flushed

    def shares(self, name: str) -> dict[str, float]:
        """Of all elements, what the format cannot hold."""
        count = max(self.elements, 1)
        return {
            "overflow": self.overflow.get(name, 0) / count,
            "underflow": self.underflow.get(name, 0) / count,
            "flushed": self.flushed.get(name, 0) / count,
        }

    def to_dict(self) -> dict[str, Any]:
        return {
            "elements": self.elements,
            "zeros": self.zeros,
            "nan": self.nan,
            "infinite": self.infinite,
            "subnormal": self.subnormal,
            "smallest": self.smallest if self.elements and self.smallest < math.inf else None,
            "largest": self.largest if self.elements else None,
            "formats": {name: self.shares(name) for name in FORMATS},
        }


@dataclass(slots=True)
class SeenKernel:
    """One site as the runs saw it."""

    site: Site
    phase: str
    dtypes: tuple[str, ...] = ()  # of its floating-point outputs
    launches: int = 0
    bits: int = 0  # of the widest floating-point output
    range: Range = field(default_factory=Range)
    is_complex: bool = False  # whether one of its outputs is complex: that one is not looked at


class RangeObserver:
    """The observer that looks at what each launch leaves."""

    def __init__(self) -> None:
        self.found: dict[Key, SeenKernel] = {}

    def before(self, call: Call, launch: Launch) -> None:
        pass

    def after(self, call: Call, launch: Launch) -> None:
        with BUS.mute(), quiet():
            kernel = self.found.setdefault(key_of(call.site), SeenKernel(call.site, launch.phase))
            kernel.launches += 1
            for one in seen(call, launch, AFTER):
                is_output = one.position in launch.point.written or one.arg.returned
                if one.tensor is not None and is_output:
                    kernel.is_complex |= one.tensor.is_complex()
                if one.tensor is None or not is_output or one.tensor.dtype not in _FLOATS:
                    continue
                name = str(one.tensor.dtype).removeprefix("torch.")
                if name not in kernel.dtypes:
                    kernel.dtypes += (name,)
                kernel.bits = max(kernel.bits, torch.finfo(one.tensor.dtype).bits)
                kernel.range.add(one.tensor.detach())
