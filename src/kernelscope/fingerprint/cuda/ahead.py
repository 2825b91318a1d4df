"""What a recording is going to need on a GPU, built while the program still compiles its own kernels."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence

import torch

from . import engine as cuda
from . import nan_scan
from .building.kernel_files import Spec
from .building.on_device import arch_of_this_machine, build_ahead
from .launcher import LIBRARY
from .plans import planned_kernels
from .stats import CODES, kernels_for

# Most programs have these. Kernels for other dtypes are built when there is a tensor of theirs.
_USUAL = (torch.bfloat16, torch.float32, torch.int64)
_FIRST_HOPPER = 90

_started: set[str] = set()


def start(level: str) -> None:
    """Build what `level` (hash, stats or watch) needs; once in a process, and without waiting."""
    if level in _started or torch.version.cuda is None or importlib.util.find_spec("triton") is None:
        return
    _started.add(level)
    if torch.cuda.device_count():
        threading.Thread(target=_build, args=(level,), name="kernelscope-builds", daemon=True).start()


def _build(level: str) -> None:
    arch = arch_of_this_machine()
    if arch is not None:
        build_ahead(kernels(level, arch >= _FIRST_HOPPER), arch)
        LIBRARY.get()


def kernels(level: str, hopper: bool) -> Sequence[Spec]:
    """The slowest to build come first."""
    if level == "watch":
        return [nan_scan.kernel_for(hopper)]
    hashing = [*planned_kernels(hopper), *cuda.usual_kernels()]
    if level == "hash":
        return hashing
    numbers = [spec for dtype in _USUAL for spec in kernels_for(CODES[dtype], hopper)]
    mixed = [spec for spec in numbers if _kinds(spec) > 1]
    return list(dict.fromkeys([*mixed, *numbers, *hashing]))


def _kinds(spec: Spec) -> int:
    return int(dict(spec.constants).get("KINDS", 0)).bit_count()
