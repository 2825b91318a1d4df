"""The log that instrumented C++ wrappers write to while no Python runs, read from Python."""

from __future__ import annotations

import _ctypes
import ctypes
import json
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernelscope.native.load import OnDemand

BEFORE, AFTER, BIRTH, BEGIN, END = range(5)
_NOTHING, _INTEGER, _REAL, _TENSOR = range(4)
_MOST_DIMS = 16
_CONNECT = "kernelscope_connect_2"
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
        ("sizes", ctypes.c_int64 * _MOST_DIMS),
        ("strides", ctypes.c_int64 * _MOST_DIMS),
    )


# c10::ScalarType, as the shims number it.
_DTYPES = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16,
    6: torch.float32, 7: torch.float64, 8: torch.complex32, 9: torch.complex64, 10: torch.complex128,
    11: torch.bool, 15: torch.bfloat16, 23: torch.float8_e5m2, 24: torch.float8_e4m3fn,
    25: torch.float8_e5m2fnuz, 26: torch.float8_e4m3fnuz, 27: torch.uint16, 28: torch.uint32,
    29: torch.uint64, 44: torch.float8_e8m0fnu,
}  # fmt: skip
_DEVICES = {0: "cpu", 1: "cuda", 12: "xpu", 13: "mps"}


@dataclass(frozen=True, slots=True)
class Location:
    """Where a tensor lies, and how."""

    storage: int  # address where its memory begins
    nbytes: int  # of all of that memory
    offset: int  # in elements
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str


@dataclass(frozen=True, slots=True)
class LoggedValue:
    """One value of a launch: a number, or a tensor as it was at that moment."""

    arg: int
    number: int | float | None = None
    location: Location | None = None  # of a tensor
    copy: torch.Tensor | None = None
    unknown: str = ""  # why a tensor's location could not be read


@dataclass(frozen=True, slots=True)
class Entry:
    moment: int
    names: tuple[str, ...]
    meta: dict[str, Any]
    ns: int
    values: list[LoggedValue]


class LaunchLog:
    """The library to which wrappers log their launches."""

    NAME = "launch-log"
    SOURCE = Path(__file__).with_name("launch_log.cpp")
    FLAGS: tuple[str, ...] = ()

    def __init__(self, library: Path) -> None:
        # Not CDLL: it gives up the GIL, and what it waits for is held for a moment only.
        self._library = ctypes.PyDLL(str(library))
        self._library.kernelscope_hooks.restype = ctypes.c_void_p
        self._library.kernelscope_begin.argtypes = [ctypes.c_int64]
        self._library.kernelscope_libraries.restype = ctypes.c_uint64
        self._library.kernelscope_print_names.argtypes = [ctypes.c_int32, ctypes.c_char_p]
        self._library.kernelscope_summary.restype = ctypes.c_int64
        self._libraries = -1  # how many had been loaded and unloaded when it last connected
        self._names: tuple[str, ...] | None = None  # that are printed
        self._others: set[tuple[str, str]] = set()  # not instrumented
        self._make_lock()
        os.register_at_fork(after_in_child=self._make_lock)  # another thread of the parent may have held it

    def _make_lock(self) -> None:
        self._lock = threading.Lock()

    def computes(self) -> bool:
        return self._library.kernelscope_hooks() is not None

    def begin(self, room: int) -> None:
        """Listen to wrappers that run on this thread; copies of values may take this many bytes."""
        self._library.kernelscope_begin(room)

    def end(self) -> None:
        """Listen no more; what was not taken is dropped."""
        while not self._library.kernelscope_end():  # copies of values are left
            for _ in self.take():
                pass

    def print_names(self, globs: tuple[str, ...] | None) -> None:
        """Have names printed before each launch, from where no Python runs; with None, not any more."""
        if globs == self._names:
            return
        with self._lock:
            self._library.kernelscope_print_names(globs is not None, "\n".join(globs or ()).encode())
            self._names = globs  # last, as in `connect`

    def connect(self) -> None:
        """Connect what is loaded; that may have changed since it was called last."""
        if self._library.kernelscope_libraries() == self._libraries:
            return
        with self._lock:
            changes = self._library.kernelscope_libraries()
            loaded = loaded_libraries()
            self._others &= loaded
            for library in loaded - self._others:
                if not self._connect(library[0]):
                    self._others.add(library)
            # Last: a thread that finds it runs its wrapper at once, which must be connected by then.
            self._libraries = changes

    def _connect(self, path: str) -> bool:
        try:
            library = ctypes.PyDLL(path, mode=_NOLOAD)
        except OSError:
            return False
        try:
            function = getattr(library, _CONNECT, None)
            if function is not None:
                function.argtypes = [ctypes.c_void_p]
                function(self._library.kernelscope_hooks())
            return function is not None
        finally:
            _ctypes.dlclose(library._handle)  # its owner may unload it

    def summary(self) -> tuple[bytes, Sequence[int]]:
        """What was logged on this thread without times and addresses, and when each launch began.

        Executions whose bytes are equal are recorded alike. There are none where that cannot be known.
        """
        text, starts, launches = ctypes.c_void_p(), ctypes.POINTER(ctypes.c_int64)(), ctypes.c_int64()
        results = [ctypes.byref(each) for each in (text, starts, launches)]
        size = self._library.kernelscope_summary(*results)
        return (ctypes.string_at(text, size), starts[: launches.value]) if size else (b"", ())

    def take(self) -> Iterator[Entry]:
        """What was logged on this thread, in order; each entry once."""
        moment, ns, count = ctypes.c_int32(), ctypes.c_int64(), ctypes.c_int64()
        meta, values = ctypes.c_char_p(), ctypes.POINTER(_Value)()
        results = [ctypes.byref(each) for each in (moment, meta, ns, values, count)]
        while self._library.kernelscope_take(*results):
            names, about = _parsed(meta.value or b"")
            logged = [_logged_value(values[i]) for i in range(count.value)]
            yield Entry(moment.value, names, about, ns.value, logged)


_LIBRARY = OnDemand(LaunchLog)


def launch_log() -> LaunchLog | None:
    """The one of this process; None where it cannot be built, and then `why_no_log` says why."""
    return _LIBRARY.loaded or _LIBRARY.get()


def why_no_log() -> str:
    return _LIBRARY.unavailable()


def _logged_value(value: _Value) -> LoggedValue:
    if value.type == _INTEGER:
        return LoggedValue(value.arg, value.integer)
    if value.type == _REAL:
        return LoggedValue(value.arg, value.real)
    if value.type != _TENSOR:
        return LoggedValue(value.arg)
    copy = None
    if value.tensor:
        copy = torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr(_capsule(value.tensor))
    dtype = _DTYPES.get(value.dtype)
    if dtype is None:
        return LoggedValue(
            value.arg, unknown=f"its dtype, number {value.dtype} of c10::ScalarType, is not known"
        )
    if value.dims > _MOST_DIMS:
        return LoggedValue(value.arg, unknown=f"it has {value.dims} dimensions")
    kind = _DEVICES.get(value.device_type, "privateuseone")
    location = Location(
        (value.data or 0) - value.offset * dtype.itemsize,
        value.nbytes,
        value.offset,
        dtype,
        tuple(value.sizes[: value.dims]),
        tuple(value.strides[: value.dims]),
        kind if kind == "cpu" else f"{kind}:{max(value.device_index, 0)}",
    )
    return LoggedValue(value.arg, location=location, copy=copy)


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def _capsule(handle: int) -> Any:
    return _new_capsule(handle, None, None)


_Parsed = tuple[tuple[str, ...], dict[str, Any]]
_PARSED: dict[bytes, _Parsed] = {}  # it is known by its identity, so it stays, and is the same on all threads


def _parsed(meta: bytes) -> _Parsed:
    known = _PARSED.get(meta)
    if known is not None:
        return known
    names, _, about = meta.decode().partition("\n")
    return _PARSED.setdefault(meta, (tuple(names.split("\t")), json.loads(about) if about else {}))


def loaded_libraries() -> set[tuple[str, str]]:
    """Path and inode of each file: another one may have come to the same path."""
    try:
        lines = _MAPS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    words = (line.split(maxsplit=5) for line in lines if line.endswith(".so") and "/" in line)
    return {(path, inode) for *_, inode, path in words}
