"""SLEEF and Intel's MKL, the mathematics that torch brings along: kernels are linked with what is there."""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache
from pathlib import Path

_OF_SLEEF = {"x86_64": "Sleef_sinf8_u10", "aarch64": "Sleef_sinf4_u10"}
# In the order of runtime/block_functions.h.
_OF_MKL = (
    "vmsSin", "vmsCos", "vmsTan", "vmsAsin", "vmsAcos", "vmsAtan", "vmsLog2", "vmsLog10",
    "vmsTanh", "vmsErfc", "vmsExp", "vmsLn",
)  # fmt: skip


@cache
def library() -> Path | None:
    """The library of torch that has SLEEF's functions; None where this torch does not offer them."""
    path = _torch_cpu()
    symbol = _OF_SLEEF.get(platform.machine())
    if symbol is None or path is None:
        return None
    return path if hasattr(ctypes.CDLL(str(path)), symbol) else None


@cache
def has_blocks() -> bool:
    """Whether MKL is there, which is fastest on whole blocks of numbers; eager has the same functions."""
    path = library()
    if path is None or platform.machine() != "x86_64":
        return False
    loaded = ctypes.CDLL(str(path))
    return all(hasattr(loaded, name) for name in _OF_MKL)


def compile_flags() -> tuple[str, ...]:
    sleef = ("-DCHOREO_SLEEF",) if library() is not None else ()
    return (*sleef, "-DCHOREO_MKL") if has_blocks() else sleef


def link_flags() -> tuple[str, ...]:
    """For a library that a process with torch loads: it has these functions by then."""
    found = library()
    return () if found is None else (f"-L{found.parent}", "-ltorch_cpu")


def _torch_cpu() -> Path | None:
    import torch

    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    return path if sys.platform.startswith("linux") and path.is_file() else None
