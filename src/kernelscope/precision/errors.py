"""How far a kernel's result is from the same computed in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .formats import steps_of

MEASURED = (torch.float32, torch.float16, torch.bfloat16)  # float64 has more digits than these
_NAMES = ("max_ulp", "median_ulp", "max_relative", "relative")


@dataclass(slots=True)
class Error:
    """Over all elements that are finite in float64 and fit the dtype."""

    max_ulp: float = 0.0
    median_ulp: float = 0.0
    max_relative: float = 0.0  # of one element, where float64 is not zero
    relative: float = 0.0  # root mean square of the error, against that of the values
    not_finite: int = 0  # elements that are infinite or NaN, and a number that fits the dtype in float64
    too_large: int = 0  # elements that are finite in float64, and do not fit the dtype

    def worse(self, other: Error) -> Error:
        """The larger of each, for several launches or outputs of one kernel."""
        most = {name: max(getattr(self, name), getattr(other, name)) for name in _NAMES}
        return Error(
            **most,
            not_finite=self.not_finite + other.not_finite,
            too_large=self.too_large + other.too_large,
        )

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def error_of(made: torch.Tensor, wide: torch.Tensor) -> Error | None:
    """None for dtypes that have no error to measure: integers, float64, 8-bit floats."""
    if made.is_complex():
        made, wide = torch.view_as_real(made.resolve_conj()), torch.view_as_real(wide.resolve_conj())
    if made.dtype not in MEASURED or wide.dtype != torch.float64:
        return None
    return error_in_ulps(made.double(), wide.expand(made.shape), made.dtype)


def error_in_ulps(values: torch.Tensor, wide: torch.Tensor, dtype: torch.dtype) -> Error:
    """Of float64 values against others, in units of the last place of a dtype."""
    fits = wide.isfinite() & wide.to(dtype).isfinite()
    good = fits & values.isfinite()
    too_large = wide.isfinite() & ~fits & ~values.isfinite()
    found = Error(not_finite=int((fits & ~good).sum()), too_large=int(too_large.sum()))
    r, apart = wide[good], (values - wide)[good].abs()
    if not r.numel():
        return found
    ulps = apart / steps_of(r, dtype)
    found.max_ulp, found.median_ulp = float(ulps.max()), float(ulps.median())
    numbers = r != 0
    if bool(numbers.any()):
        found.max_relative = float((apart[numbers] / r[numbers].abs()).max())
        found.relative = float(apart.norm() / r.norm())
    return found
