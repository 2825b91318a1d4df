"""SLEEF, the vector mathematics that torch brings along: kernels are linked with it where it is there."""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache
from pathlib import Path

_KNOWN_BY = {"x86_64": "Sleef_sinf8_u10", "aarch64": "Sleef_sinf4_u10"}


@cache
def library() -> Path | None:
    """The library of torch that has SLEEF's functions; None where this torch does not offer them."""
    import torch

    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    symbol = _KNOWN_BY.get(platform.machine())
    if symbol is None or not sys.platform.startswith("linux") or not path.is_file():
        return None
    return path if hasattr(ctypes.CDLL(str(path)), symbol) else None


def compile_flags() -> tuple[str, ...]:
    return ("-DCHOREO_SLEEF",) if library() is not None else ()


def link_flags() -> tuple[str, ...]:
    """For a library that a process with torch loads: it has SLEEF's functions by then."""
    found = library()
    return () if found is None else (f"-L{found.parent}", "-ltorch_cpu")
