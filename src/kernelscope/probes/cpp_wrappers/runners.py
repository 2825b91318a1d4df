"""Models of AOTInductor that a program runs by torch's loaders and runners, not by a package's callable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelscope.probes.patching import Patch

_HOME = "torch._C._aoti"
_DEVICES = ("Cpu", "Cuda", "Xpu", "Mps")  # a build of torch has some of them
_METHODS = (
    *((f"AOTIModelContainerRunner{device}", "run") for device in _DEVICES),
    ("AOTIModelPackageLoader", "run"),
    ("AOTIModelPackageLoader", "boxed_run"),
)


def runner_patches(around: Callable[[Any], Any]) -> list[Patch]:
    """A patch for each method of this torch that runs a model; `around` makes its replacement."""
    home = getattr(torch._C, "_aoti", None)
    return [
        Patch(f"{_HOME}:{name}.{method}", around)
        for name, method in _METHODS
        if hasattr(getattr(home, name, None), method)
    ]
