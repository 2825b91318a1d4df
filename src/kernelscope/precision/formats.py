"""Narrow formats of numbers: what rounding to each of them does to the values of a tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

BLOCK = 32  # elements that share one scale in the formats of the OCP Microscaling (MX) specification
_SCALES = 127  # a scale is a power of two, from 2**-127 to 2**127


@dataclass(frozen=True, slots=True)
class Format:
    """A format of 16 bits or fewer; in a block format, 32 neighbours share a power of two."""

    name: str
    bits: int
    largest: float  # of an element, before the scale
    least_normal: float
    cast: Callable[[torch.Tensor], torch.Tensor]  # to float64 again; what does not fit is not finite
    is_block: bool = False

    def rounded(self, values: torch.Tensor) -> torch.Tensor:
        """In the dtype of the values, with the values that this format would hold."""
        if not values.numel():
            return values
        if not self.is_block:
            held = self.cast(values.double())
            held = torch.where(held.isfinite(), held, self._too_large(values))
            return held.to(values.dtype)
        blocks, scales = self._scaled(values)
        held = self.cast(blocks)
        held = torch.where(held.isfinite(), held, self.largest * blocks.sign())  # they saturate
        held = torch.where(blocks.isfinite(), held, torch.nan)
        return _unblocked(held * scales, values).to(values.dtype)

    def _too_large(self, values: torch.Tensor) -> torch.Tensor:
        """What the installed torch makes of them: float8_e4m3fn has no infinity, and a cast may saturate."""
        return values.to(getattr(torch, self.name)).double()

    def lost(self, values: torch.Tensor) -> Lost:
        """How many of the finite values this format cannot hold; NaN and infinities are not counted."""
        if not values.numel():
            return Lost(0, 0, 0)
        finite, wide = values.isfinite(), values.double()
        blocks = self._scaled(torch.where(finite, wide, 0.0))[0] if self.is_block else wide[finite]
        held, is_number = self.cast(blocks), blocks != 0
        return Lost(
            overflow=int((~held.isfinite()).sum()),
            underflow=int((is_number & (blocks.abs() < self.least_normal)).sum()),
            flushed=int((is_number & (held == 0)).sum()),
        )

    def _scaled(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of 32 neighbours along the last dimension, divided by their scale; and the scales."""
        rows = values.double().reshape(-1, values.shape[-1] if values.dim() else 1)
        padded = torch.nn.functional.pad(rows, (0, -rows.shape[1] % BLOCK))
        blocks = padded.reshape(-1, BLOCK)
        most = blocks.abs().amax(1, keepdim=True)
        usable = torch.where((most > 0) & most.isfinite(), most, 1.0)
        exponents = _exponent(usable) - _exponent_of(self.largest)
        scales = torch.ldexp(torch.ones_like(usable), exponents.clamp(-_SCALES, _SCALES))
        scales = torch.where(most.isfinite(), scales, torch.nan)  # a NaN leaves no scale
        return blocks / scales, scales


@dataclass(frozen=True, slots=True)
class Lost:
    """Numbers of elements."""

    overflow: int  # too large: infinite, NaN, or, in a block format, saturated
    underflow: int  # not zero and below the smallest normal number: digits are lost
    flushed: int  # of these, the ones that become zero


def _exponent(values: torch.Tensor) -> torch.Tensor:
    """floor(log2), exactly."""
    return torch.frexp(values).exponent - 1


def _exponent_of(number: float) -> int:
    return math.frexp(number)[1] - 1


def _unblocked(blocks: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    width = values.shape[-1] if values.dim() else 1
    return blocks.reshape(-1, width + -width % BLOCK)[:, :width].reshape(values.shape)


def _by_torch(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    limit = torch.finfo(dtype).max

    def cast(values: torch.Tensor) -> torch.Tensor:
        if dtype is not torch.float8_e4m3fn:
            return _once(values, dtype)
        fits = values.abs() <= limit + 16  # half a step above 448; the tie goes to the even 448
        return torch.where(fits, _once(values.clamp(-limit, limit), dtype), torch.nan)

    return cast


def _once(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Rounded once: torch goes from float64 through float32, which can round a tie twice."""
    step = _steps(values, dtype)
    return (torch.round(values / step) * step).to(dtype).double()


def _steps(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance of neighbouring numbers of the dtype around each value; 1 where it is not finite."""
    info = torch.finfo(dtype)
    finite = torch.where(values.isfinite(), values, 1.0)
    exponents = torch.where(finite == 0, torch.iinfo(torch.int32).min // 2, _exponent(finite))
    step = exponents.clamp_min(_exponent_of(info.smallest_normal)) + _exponent_of(info.eps)
    return torch.ldexp(torch.ones_like(finite), step)


def _to_e2m1(values: torch.Tensor) -> torch.Tensor:
    """The eight magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6; ties go to the even one."""
    finite = torch.where(values.isfinite(), values, 0.0)
    step = torch.ldexp(torch.ones_like(finite), _exponent(finite.abs().clamp(1.0, 4.0)) - 1)
    held = torch.round(finite / step) * step
    return torch.where(values.isfinite() & (held.abs() <= 6), held, torch.nan)


def _of_dtype(dtype: torch.dtype) -> Format:
    info, name = torch.finfo(dtype), str(dtype).removeprefix("torch.")
    return Format(name, info.bits, info.max, info.smallest_normal, _by_torch(dtype))


FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        _of_dtype(torch.float16),
        _of_dtype(torch.bfloat16),
        _of_dtype(torch.float8_e4m3fn),
        _of_dtype(torch.float8_e5m2),
        Format("mxfp8", 8, 448.0, 2.0**-6, _by_torch(torch.float8_e4m3fn), is_block=True),
        Format("mxfp4", 4, 6.0, 1.0, _to_e2m1, is_block=True),
    )
}


def steps_of(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """One unit in the last place of the dtype, at each of these float64 values."""
    return _steps(values, dtype)
