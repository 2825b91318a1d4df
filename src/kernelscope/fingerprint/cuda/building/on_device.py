"""Kernels for the GPUs of this process, from the folder of built ones."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import torch

from kernelscope.native import progress

from .kernel_builds import KernelBuilds, NotBuilt
from .kernel_files import Spec
from .loaded_kernel import DriverError, LoadedKernel

_PACKAGES = ("triton", "pytorch-triton")


def built(spec: Spec, device: int, related: Sequence[Spec] = ()) -> LoadedKernel | None:
    """A kernel for the current device; None where Triton itself has to compile it, in this process."""
    if torch.version.cuda is None:
        return None
    major, minor = torch.cuda.get_device_capability(device)
    try:
        file = builds_for(10 * major + minor).get(spec, related)
        return LoadedKernel(spec, file, device)
    except (NotBuilt, DriverError, OSError) as error:
        _complain(str(error))
        return None


def build_ahead(specs: Sequence[Spec], arch: int) -> None:
    """Have these built for a kind of GPU, and do not wait."""
    with suppress(OSError):  # whoever needs one will say so
        builds_for(arch).ahead(specs)


def arch_of_this_machine() -> int | None:
    """Of the first GPU, without using it: a program may still fork. None where there is no NVIDIA GPU."""
    if torch.version.cuda is None or not torch.cuda.device_count():
        return None
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        major, minor = torch.cuda.get_device_capability()
        return 10 * major + minor
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        gpu, found = ctypes.c_void_p(), (ctypes.c_int(), ctypes.c_int())
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(gpu)):
            return None
        if nvml.nvmlDeviceGetCudaComputeCapability(gpu, *map(ctypes.byref, found)):
            return None
    except (OSError, AttributeError):
        return None
    return 10 * found[0].value + found[1].value


@cache
def builds_for(arch: int) -> KernelBuilds:
    builds = KernelBuilds(arch, triton_version())
    os.register_at_fork(after_in_child=builds.after_fork)
    return builds


@cache
def triton_version() -> str:
    """Without importing it."""
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            return version(package)
    import triton

    return str(triton.__version__)


@cache
def _complain(why: str) -> None:
    progress.say(f"GPU kernels for values are built in this process, which is slower: {why}")
