"""The log that instrumented C++ wrappers write to while no Python runs, read from Python."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from ..fingerprint.cpu import EngineError, start

BEFORE, AFTER, BIRTH, BEGIN, END = range(5)
_NOTHING, _INTEGER, _REAL, _TENSOR = range(4)
_CONNECT = "kernelscope_connect_1"
_NOLOAD = 4 | 1  # RTLD_NOLOAD | RTLD_LAZY
_MAPS = Path("/proc/self/maps")


class _Value(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int32),
        ("arg", ctypes.c_int32),
        ("integer", ctypes.c_int64),
        ("real", ctypes.c_double),
        ("tensor", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("offset", ctypes.c_int64),
        ("nbytes", ctypes.c_int64),
        ("dtype", ctypes.c_int32),
        ("device_type", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("dims", ctypes.c_int32),
        ("sizes", ctypes.c_int64 * 8),
        ("strides", ctypes.c_int64 * 8),
    )


# c10::ScalarType, which the shims speak in.
_DTYPES = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16,
    6: torch.float32, 7: torch.float64, 8: torch.complex32, 9: torch.complex64, 10: torch.complex128,
    11: torch.bool, 15: torch.bfloat16, 23: torch.float8_e5m2, 24: torch.float8_e4m3fn,
    25: torch.float8_e5m2fnuz, 26: torch.float8_e4m3fnuz, 27: torch.uint16, 28: torch.uint32,
    29: torch.uint64,
}  # fmt: skip
_DEVICES = {0: "cpu", 1: "cuda", 12: "xpu", 13: "mps"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies, and how."""

    storage: int  # address where its memory begins
    nbytes: int  # of all of that memory
    offset: int  # in elements
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str


@dataclass(frozen=True, slots=True)
class Told:
    """One value of a launch: a number, or a tensor as it was at that moment."""

    arg: int
    number: int | float | None = None
    place: Place | None = None  # of a tensor
    copy: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    moment: int
    names: tuple[str, ...]
    meta: dict[str, Any]
    ns: int
    thread: int
    values: list[Told]


class LaunchLog:
    """The library that keeps what wrappers tell."""

    NAME = "launch-log"
    SOURCES: tuple[Path, ...] = (Path(__file__).with_name("launch_log.cpp"),)
    FLAGS: tuple[str, ...] = ()

    def __init__(self, library: Path) -> None:
        # Not CDLL: it gives up the GIL, and what it waits for is held for a moment only.
        self._library = ctypes.PyDLL(str(library))
        self._library.kernelscope_hooks.restype = ctypes.c_void_p
        self._library.kernelscope_listen.argtypes = [ctypes.c_int32, ctypes.c_int64]
        self._library.kernelscope_room.argtypes = [ctypes.c_int64]
        self._library.kernelscope_print_names.argtypes = [ctypes.c_int32, ctypes.c_char_p]
        self._connected: set[str] = set()
        self._others: set[str] = set()

    def computes(self) -> bool:
        return self._library.kernelscope_hooks() is not None

    def listen(self, room: int) -> None:
        """From now on; copies of values may take this many bytes until they are drained."""
        self._library.kernelscope_listen(1, room)

    def stop(self) -> None:
        self._library.kernelscope_listen(0, 0)
        self.print_names(None)

    def make_room(self, room: int) -> None:
        self._library.kernelscope_room(room)

    def print_names(self, globs: tuple[str, ...] | None) -> None:
        """Have names printed before each launch, from where no Python runs; with None, not any more."""
        self._library.kernelscope_print_names(globs is not None, "\n".join(globs or ()).encode())

    def connect(self) -> int:
        """Connect what has been loaded since it was called last; how many of those are instrumented."""
        found = 0
        for path in _loaded_libraries() - self._connected - self._others:
            if self._connect(path):
                self._connected.add(path)
                found += 1
            else:
                self._others.add(path)
        return found

    def _connect(self, path: str) -> bool:
        try:
            function = getattr(ctypes.PyDLL(path, mode=_NOLOAD), _CONNECT)
        except (OSError, AttributeError):
            return False
        function.argtypes = [ctypes.c_void_p]
        function(self._library.kernelscope_hooks())
        return True

    def forget_unloaded(self) -> None:
        """A package that is gone may leave its path to another."""
        loaded = _loaded_libraries()
        self._connected &= loaded
        self._others &= loaded

    def take(self, *, any_thread: bool = False) -> Iterator[Entry]:
        """What was told on this thread, in its order, once; with `any_thread`, also on others."""
        moment, ns, count = ctypes.c_int32(), ctypes.c_int64(), ctypes.c_int64()
        meta, thread, values = ctypes.c_char_p(), ctypes.c_uint64(), ctypes.POINTER(_Value)()
        places = [ctypes.byref(each) for each in (moment, meta, ns, values, count, thread)]
        while self._library.kernelscope_take(int(any_thread), *places):
            names, about = _parsed(meta.value or b"")
            told = [_told(values[i]) for i in range(count.value)]
            yield Entry(moment.value, names, about, ns.value, thread.value, told)


_log: LaunchLog | None = None
_why_not = ""


def launch_log() -> LaunchLog | None:
    """The one of this process; None where it cannot be built, and then `why_no_log` says why."""
    global _log, _why_not
    if _log is None and not _why_not:
        try:
            _log = start(LaunchLog)[0]
        except EngineError as error:
            _why_not = str(error)
    return _log


def why_no_log() -> str:
    return _why_not


def _told(value: _Value) -> Told:
    if value.type == _INTEGER:
        return Told(value.arg, value.integer)
    if value.type == _REAL:
        return Told(value.arg, value.real)
    if value.type != _TENSOR:
        return Told(value.arg)
    copy = None
    if value.tensor:
        copy = torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr(_capsule(value.tensor))
    dtype = _DTYPES.get(value.dtype)
    if dtype is None:
        return Told(value.arg)
    kind = _DEVICES.get(value.device_type, "privateuseone")
    place = Place(
        (value.data or 0) - value.offset * dtype.itemsize,
        value.nbytes,
        value.offset,
        dtype,
        tuple(value.sizes[: value.dims]),
        tuple(value.strides[: value.dims]),
        kind if kind == "cpu" else f"{kind}:{max(value.device_index, 0)}",
    )
    return Told(value.arg, place=place, copy=copy)


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def _capsule(handle: int) -> Any:
    return _new_capsule(handle, None, None)


@lru_cache(maxsize=8192)
def _parsed(meta: bytes) -> tuple[tuple[str, ...], dict[str, Any]]:
    names, _, about = meta.decode().partition("\n")
    return tuple(names.split("\t")), json.loads(about) if about else {}


def _loaded_libraries() -> set[str]:
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return set()
    paths = {line.split(maxsplit=5)[5] for line in lines if line.endswith(".so") and "/" in line}
    return {path for path in paths if "/site-packages/" not in path and "/lib-dynload/" not in path}
