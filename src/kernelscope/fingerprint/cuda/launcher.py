"""Launches that are prepared in advance, made by C++: in Python they take longer than a program's own."""

from __future__ import annotations

import ctypes
import sysconfig
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from kernelscope.native.load import OnDemand, python_module

_MODULE = "kernelscope_launcher"  # as the C++ says
_THREADS_OF_A_WARP = 32

Filled = tuple[
    int, int, int
]  # which of the launch's numbers is which of the execution's or tensors', plus what


class Prepared(NamedTuple):
    """A launch, up to the numbers that are other ones each time."""

    function: int
    programs: int
    threads: int
    shared: int
    early: bool  # it may start before the kernel in front of it has ended, for which it waits itself
    numbers: tuple[int, ...]
    of_execution: tuple[Filled, ...]
    of_tensors: tuple[Filled, ...]


def prepared(
    kernel: Any,
    programs: int,
    numbers: Sequence[int],
    of_execution: Sequence[Filled],
    of_tensors: Sequence[Filled],
    *,
    early: bool = False,
) -> Prepared | None:
    """None for a Triton kernel that wants more than a plain launch with these numbers."""
    kernel.run  # noqa: B018  # loads it
    about = kernel.metadata
    types = [t for t in kernel.src.signature.values() if t != "constexpr"]
    extras = ("global_scratch_size", "profile_scratch_size", "launch_pdl", "launch_cooperative_grid")
    if about.num_ctas != 1 or any(getattr(about, name, 0) for name in extras):
        return None
    if len(types) != len(numbers) or not {"i32", "i64"} >= set(types):
        return None
    return Prepared(
        kernel.function,
        programs,
        _THREADS_OF_A_WARP * about.num_warps,
        about.shared,
        early,
        tuple(numbers),
        tuple(of_execution),
        tuple(of_tensors),
    )


class LaunchConfig(ctypes.Structure):
    """As the driver declares it."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_size_t),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


# cuLaunchKernelEx: configuration, function, where each of its numbers is, what else
LAUNCH_KERNEL = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(LaunchConfig),
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.POINTER(ctypes.c_int64)),
    ctypes.c_void_p,
)


class Launcher:
    """One loaded library."""

    NAME = "launcher"
    SOURCE = Path(__file__).with_name("launcher.cpp")
    FLAGS: tuple[str, ...] = (f"-I{sysconfig.get_path('include')}",)

    def __init__(self, library: Path) -> None:
        self._module = python_module(_MODULE, library)

    def flush(
        self,
        functions: tuple[int, int],
        launches: Sequence[Prepared],
        carefully: Callable[..., None],
        failed: Callable[[Any, int], None],
        *,
        stream: int,
        counted: tuple[int, ...],
    ) -> Callable[..., None]:
        """The launches as one function of an execution and tensors.

        `functions` are the addresses of cuLaunchKernelEx and cuCtxGetCurrent; `stream` and `counted` tell
        where in the execution the stream is, and what counts its writes.
        """
        modes = torch._C._len_torch_function_stack
        made: Callable[..., None] = self._module.Flush(
            *functions, stream, counted, tuple(launches), modes, carefully, failed
        )
        return made

    def computes(self) -> bool:
        """Whether a launch gets the numbers that it should."""
        seen: list[tuple[int, ...]] = []

        def launch(config, function, places, extra):  # type: ignore[no-untyped-def]
            given = config[0]
            numbers = (places[i][0] for i in range(5))
            seen.append(
                (function, given.grid[0], given.block[0], given.shared, given.stream, given.count, *numbers)
            )
            return 0

        def context(found):  # type: ignore[no-untyped-def]
            found[0] = 1
            return 0

        of_launch = LAUNCH_KERNEL(launch)
        of_context = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_size_t))(context)
        addresses = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in (of_launch, of_context)]
        chunk, unusual = _Chunk(), []
        flush = self.flush(
            (addresses[0], addresses[1]),
            [Prepared(11, 12, 13, 14, True, (1, 2, 3), ((1, 0, 5),), ((2, 1, 0),))],
            lambda *given: unusual.append(given),
            lambda execution, error: None,
            stream=1,
            counted=(2,),
        )
        flush((100, 7, chunk), _At(64), _At(128))
        flush((100, 7, chunk), _At(64), _At(129))
        expected = (11, 12, 13, 14, 7, 1, 1, 105, 128, 0, 0)
        return seen == [expected] and chunk.writes == 1 and len(unusual) == 1


class _Chunk:
    writes = 0


class _At:
    def __init__(self, address: int) -> None:
        self._address = address

    def data_ptr(self) -> int:
        return self._address


LIBRARY = OnDemand(Launcher)


def quick(
    launches: Sequence[Prepared],
    carefully: Callable[..., None],
    failed: Callable[[Any, int], None],
    *,
    stream: int,
    counted: tuple[int, ...],
) -> Callable[..., None]:
    """The launches through C++, or `carefully` where that is not possible."""
    functions = _of_the_driver()
    launcher = LIBRARY.get() if functions is not None else None
    if functions is None or launcher is None:
        return carefully
    return launcher.flush(functions, launches, carefully, failed, stream=stream, counted=counted)


@cache
def _of_the_driver() -> tuple[int, int] | None:
    """The addresses of cuLaunchKernelEx and cuCtxGetCurrent; None where there is no CUDA driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        found = [
            ctypes.cast(f, ctypes.c_void_p).value for f in (driver.cuLaunchKernelEx, driver.cuCtxGetCurrent)
        ]
    except (OSError, AttributeError):
        return None
    return found[0] or 0, found[1] or 0
