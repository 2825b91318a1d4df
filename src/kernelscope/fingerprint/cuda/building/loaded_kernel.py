"""A built kernel in this process: loaded and launched through the CUDA driver, without Triton."""

from __future__ import annotations

import ctypes
from array import array
from functools import cache
from types import SimpleNamespace
from typing import Any

from .kernel_files import KernelFile, Spec

_SCRATCHES = 2  # pointers that Triton appends to a kernel's arguments
_MOST_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_SHARED_AT_FIRST = 48 << 10  # more has to be allowed


class DriverError(RuntimeError):
    """What the driver refused."""


class LoadedKernel:
    """As much like a compiled kernel of Triton's as is used here."""

    packed_metadata = None

    def __init__(self, spec: Spec, file: KernelFile, device: int) -> None:
        """For the current context."""
        cuda = driver()
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        with_context(cuda, device)
        _check(cuda.cuModuleLoadData(ctypes.byref(module), file.image), "load", spec)
        _check(cuda.cuModuleGetFunction(ctypes.byref(function), module, file.symbol.encode()), "find", spec)
        if file.shared > _SHARED_AT_FIRST:
            _check(cuda.cuFuncSetAttribute(function, _MOST_SHARED, file.shared), "prepare", spec)
        self.function = function.value or 0
        self._count, self._spec = spec.numbers, spec
        self._threads, self._shared = file.threads, file.shared
        self._launch = cuda.cuLaunchKernel
        self.metadata = SimpleNamespace(num_ctas=1, num_warps=file.threads // 32, shared=file.shared)
        self.src = SimpleNamespace(signature=dict.fromkeys(range(spec.numbers), "i64"))

    def run(
        self, programs: int, _y: int, _z: int, stream: int, _function: Any, _metadata: Any, *rest: Any
    ) -> None:
        """Arguments in the order of Triton's own launchers; the constants at the end are built in."""
        numbers = array("q", rest[3 : 3 + self._count])
        numbers.extend((0,) * _SCRATCHES)
        first, count = numbers.buffer_info()
        places = array("Q", range(first, first + 8 * count, 8))
        how = (programs, 1, 1, self._threads, 1, 1, self._shared)
        error = self._launch(self.function, *how, stream, places.buffer_info()[0], None)
        _check(error, "launch", self._spec)


def with_context(cuda: Any, device: int) -> None:
    """A thread that has used no GPU yet has no context; torch uses the primary one."""
    context, handle = ctypes.c_void_p(), ctypes.c_int()
    if cuda.cuCtxGetCurrent(ctypes.byref(context)) == 0 and context.value:
        return
    cuda.cuDeviceGet(ctypes.byref(handle), device)
    if cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle) == 0:
        cuda.cuCtxSetCurrent(context)


@cache
def driver() -> Any:
    """The CUDA driver, loaded already by torch; OSError where there is none."""
    cuda = ctypes.CDLL("libcuda.so.1")
    number, pointer = ctypes.c_uint, ctypes.c_void_p
    cuda.cuLaunchKernel.argtypes = [pointer, *[number] * 7, pointer, pointer, pointer]
    cuda.cuModuleLoadData.argtypes = [pointer, ctypes.c_char_p]
    cuda.cuModuleGetFunction.argtypes = [pointer, pointer, ctypes.c_char_p]
    cuda.cuFuncSetAttribute.argtypes = [pointer, ctypes.c_int, ctypes.c_int]
    return cuda


def _check(error: int, what: str, spec: Spec) -> None:
    if error:
        raise DriverError(f"the CUDA driver could not {what} the kernel {spec.name} (CUDA error {error})")
