"""With how many digits a library may compute products and convolutions of float32.

TF32 and bfloat16 are settings of the program, and a library may use them for one layout and not for another.
"""

from __future__ import annotations

import re
from typing import Any

import torch

DIGITS = {"tf32": 2.0**-10, "bf16": 2.0**-7}  # one rounding, relative
_KINDS = {
    "conv": re.compile(r"(^|_)conv(olution)?(_?transpose)?[123]?d?(_|$)"),
    "rnn": re.compile(r"(^|_)(rnn|lstm|gru)(_|$)"),
    "matmul": re.compile(
        r"(^|_)(mm|bmm|addmm|addbmm|baddbmm|matmul|mv|addmv|dot|vdot|linear|einsum)(_|$)|attention"
    ),
}
_COMPUTED_IN_FLOAT32 = (torch.float32, torch.complex64)


Library = tuple[str, str]  # on which device, for what kind of operator


def library_rounding(operator: Any, dtype: torch.dtype | None, device: torch.device | None) -> float:
    """One rounding that this operator may do inside, where it is coarser than its dtype's; else 0."""
    library = library_of(operator, dtype, device)
    return rounding_by(library) if library is not None else 0.0


def name_of_digits(rounding: float) -> str:
    return next((name for name, each in DIGITS.items() if each == rounding), "float32")


def library_of(operator: Any, dtype: torch.dtype | None, device: torch.device | None) -> Library | None:
    """The library that computes this, if it may use fewer digits."""
    if dtype not in _COMPUTED_IN_FLOAT32 or device is None or device.type not in ("cuda", "cpu"):
        return None
    name = str(getattr(operator, "__name__", operator)).partition(".")[0]
    kind = next((kind for kind, pattern in _KINDS.items() if pattern.search(name)), "")
    return (device.type, kind) if kind else None


def rounding_by(library: Library) -> float:
    """As the program has set it at this moment."""
    return DIGITS.get(_setting(*library), 0.0)


def _setting(device: str, kind: str) -> str:
    """ieee, tf32, bf16, or none: a setting of torch.backends, which the older ones set too."""
    backends: Any = torch.backends
    library = backends.mkldnn if device == "cpu" else backends.cuda if kind == "matmul" else backends.cudnn
    try:
        return str(getattr(library, kind).fp32_precision)
    except AttributeError:  # not in this version of torch
        return ""
