"""The fast engine for `bits` of CPU tensors: C++ that the system's compiler builds at first use.

The library is kept in the user's cache folder. Where there is no compiler there is no engine: `available`
says why, and the caller takes the path through torch operations, which gives the same numbers.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import math
import os
import platform
import shlex
import shutil
import stat
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import torch

from kernelscope import config
from kernelscope.fingerprint.definition import MASK64, POSITION, mix

SOURCE = Path(__file__).with_name("engine.cpp")
# In this order, until one compiles, loads and computes correctly. On ARM, -march does not imply -mtune.
NATIVE = ("-march=native", "-mtune=native")
FLAGS = ((*NATIVE, "-fopenmp"), ("-fopenmp",), NATIVE, ())
COMMON_FLAGS = ("-std=c++17", "-O3", "-shared", "-fPIC")
COMPILE_SECONDS = 120

# Below this a call takes less than switching threads does: no second thread, and the GIL is kept.
BYTES_PER_THREAD = 64 << 10
MAX_DIMS = 64

# Sizes and strides as bytes: a third of what making a ctypes array costs.
_PACK = [struct.Struct(f"{2 * dims}q").pack for dims in range(MAX_DIMS + 1)]
_DIGEST_BYTES = hashlib.sha256().digest_size
_data_address = torch._C._data_address  # type: ignore[attr-defined]


class EngineError(Exception):
    """Why there is no engine, in a sentence."""


class Loaded(Protocol):
    """What is made of a compiled library."""

    NAME: str
    SOURCES: tuple[Path, ...]  # the first is compiled and includes the others
    FLAGS: tuple[str, ...]  # beside those of all engines

    def __init__(self, library: Path) -> None: ...
    def computes(self) -> bool: ...


Made = TypeVar("Made", bound=Loaded)


class Engine:
    """One loaded library."""

    NAME = "cpu-engine"
    SOURCES: tuple[Path, ...] = (SOURCE,)
    FLAGS: tuple[str, ...] = ()

    def __init__(self, library: Path) -> None:
        free, held = ctypes.CDLL(str(library)), ctypes.PyDLL(str(library))
        # Giving up the GIL for a microsecond can cost milliseconds when another thread runs Python.
        self._sum_small, self._strided_small = _functions(held)
        self._sum_large, self._strided_large = _functions(free)
        # An OpenMP runtime that was used before a fork waits forever for its threads in the child.
        self._forked = False
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._forked = True

    def accumulate(self, tensor: torch.Tensor) -> int | None:
        nbytes: int = tensor.nbytes
        if tensor.is_neg() or tensor.is_conj():
            return None
        # Not data_ptr(), which would turn a copy-on-write tensor into a real copy.
        address = _data_address(tensor) + tensor.storage_offset() * tensor.itemsize
        if tensor.is_contiguous():
            if nbytes < 2 * BYTES_PER_THREAD:
                return self._sum_small(address, nbytes, 1)
            return self._sum_large(address, nbytes, self._threads(nbytes))
        dims = tensor.dim()
        if dims > MAX_DIMS:
            return None
        layout = _PACK[dims](*tensor.shape, *tensor.stride())
        if nbytes < 2 * BYTES_PER_THREAD:
            return self._strided_small(address, tensor.itemsize, dims, layout, 1)
        threads = self._threads(nbytes)
        return self._strided_large(address, tensor.itemsize, dims, layout, threads)

    def sum_of(
        self, shape: Sequence[int], stride: Sequence[int], itemsize: int, is_flat: bool
    ) -> Callable[[int], int]:
        """The sum of a tensor of this layout, given its address."""
        nbytes = math.prod(shape) * itemsize
        is_small = nbytes < 2 * BYTES_PER_THREAD
        if not nbytes:
            return lambda address: 0
        if is_flat:
            flat = self._sum_small if is_small else self._sum_large
            return lambda address: flat(address, nbytes, self._threads(nbytes) or 1)
        dims = len(shape)
        if dims > MAX_DIMS:
            raise EngineError(f"a tensor of {dims} dimensions")
        layout = _PACK[dims](*shape, *stride)
        strided = self._strided_small if is_small else self._strided_large
        return lambda address: strided(address, itemsize, dims, layout, self._threads(nbytes) or 1)

    def computes(self) -> bool:
        """Whether it agrees with the definition, on plain memory: this may run inside any torch mode."""
        count = 100
        expected = sum(mix(i ^ (i + 1) * POSITION & MASK64) for i in range(count)) & MASK64
        words = (ctypes.c_uint64 * count)(*range(count))
        pairs = (ctypes.c_uint64 * (2 * count))(*(i // 2 for i in range(2 * count)))
        every_second = _PACK[1](count, 2)
        flat = self._sum_small(ctypes.addressof(words), 8 * count, 1)
        return flat == self._strided_small(ctypes.addressof(pairs), 8, 1, every_second, 1) == expected

    def _threads(self, nbytes: int) -> int:
        return 1 if self._forked else threads_for(nbytes)


def threads_for(nbytes: int) -> int:
    return min(torch.get_num_threads(), nbytes // BYTES_PER_THREAD)


def _functions(library: ctypes.CDLL) -> tuple[Callable[..., int], Callable[..., int]]:
    flat, strided = library.kernelscope_sum, library.kernelscope_sum_strided
    flat.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int]
    strided.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
    flat.restype = strided.restype = ctypes.c_uint64
    return flat, strided


_lock = threading.Lock()
_engine: Engine | None = None
_reason: str | None = None  # None: not tried yet
_uncached = ""


def accumulate(tensor: torch.Tensor) -> int | None:
    """The definition's sum over the words of a plain CPU tensor, before the salt and the last mix.

    None when there is no engine, or a lazy conjugate or negation would have to be resolved.
    """
    if _engine is not None:
        return _engine.accumulate(tensor)
    return None if available() else accumulate(tensor)


def engine() -> Engine | None:
    """The engine, or None; then `available` says why."""
    return None if available() else _engine


def available() -> str:
    """Empty when the engine works, otherwise why it does not; the first call may compile for seconds."""
    global _engine, _reason, _uncached
    if _reason is None:
        with _lock:
            if _reason is None:
                try:
                    _engine, _uncached = start(Engine)
                    _reason = ""
                except EngineError as error:
                    _reason = str(error)
    return _reason


def uncached() -> str:
    """Why the engine had to be compiled for this process alone; empty when it is kept, or there is none."""
    available()
    return _uncached


def start(make: type[Made]) -> tuple[Made, str]:
    """An engine from the cache folder, or else from a temporary one, and then why."""
    try:
        folder = config.cache_folder()
        check_private(folder)
    except OSError as error:
        reason = f"the cache folder cannot be used: {error}"
    else:
        try:
            return load(folder, config.compilers(), make=make), ""
        except OSError as error:
            reason = f"the cache folder {folder} cannot be used: {error}"
    # What is loaded stays mapped, so that the file need not outlive this.
    with tempfile.TemporaryDirectory(prefix="kernelscope-") as temporary:
        try:
            return load(Path(temporary), config.compilers(), make=make), reason
        except OSError as error:
            raise EngineError(f"{reason}; nor can {temporary}: {error}") from error


def check_private(folder: Path) -> None:
    """Create the folder if need be; raise PermissionError when it is no place for a library of ours."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0):
        raise PermissionError(f"nothing can be executed in {folder}: it is mounted with noexec")
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"others can write to {folder}; run: chmod go-w {folder}")
    for parent in folder.resolve().parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise PermissionError(f"others can replace {folder}, because they can write to {parent}")


def load(
    folder: Path,
    compilers: Sequence[str],
    defines: Sequence[str] = (),
    make: type[Made] = Engine,  # type: ignore[assignment]  # a default is no promise for other types
) -> Made:
    """The engine from this folder, compiled if it is not there; OSError when the folder is no good."""
    compiler = _find(compilers)
    try:
        version = subprocess.run([*compiler, "--version"], capture_output=True, check=False).stdout
    except OSError as error:
        raise EngineError(f"the C++ compiler {shlex.join(compiler)} does not run: {error}") from error
    reasons, unloadable = [], None
    for flags in FLAGS:
        command = [*compiler, *COMMON_FLAGS, *make.FLAGS, *flags, *defines]
        sources = [source.read_bytes() for source in make.SOURCES]
        key = hashlib.sha256(b"\0".join([*sources, version, _processor(), repr(command).encode()]))
        library = folder / f"{make.NAME}-{key.hexdigest()[:24]}.so"
        if _intact(library):
            with contextlib.suppress(OSError, EngineError):
                return _checked(make, library)
        try:
            _compile(command, make.SOURCES[0], library)
            return _checked(make, library)
        except EngineError as error:
            reasons.append(str(error))
        except OSError as error:
            unloadable = error
    # A folder that forbids execution lets us compile, and not load.
    raise unloadable or EngineError(reasons[0])


def _find(compilers: Sequence[str]) -> list[str]:
    for name in compilers:
        command = shlex.split(name)
        if command and (path := shutil.which(command[0])):
            return [path, *command[1:]]
    raise EngineError(
        f"there is no C++ compiler (looked for {', '.join(compilers)}); set CXX, or install g++"
    )


@functools.cache
def _processor() -> bytes:
    """What decides which instructions -march=native may use: a home folder can be shared between machines."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        first = platform.processor()
    # Not the lines that change while we look, like the frequency.
    lines = [line for line in first.splitlines() if not line.startswith(("cpu MHz", "processor", "bogomips"))]
    return "\n".join([platform.machine(), *lines]).encode()


def _compile(command: list[str], source: Path, library: Path) -> None:
    """Write the library whole or not at all, whoever else is doing the same."""
    descriptor, name = tempfile.mkstemp(prefix=library.stem, suffix=".tmp", dir=library.parent)
    os.close(descriptor)
    made = Path(name)
    try:
        full = [*command, str(source), "-o", name]
        done = subprocess.run(
            full,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=COMPILE_SECONDS,
        )
        if done.returncode:
            said = done.stderr.strip() or f"exit status {done.returncode}"
            raise EngineError(f"{shlex.join(command)} failed: {said}")
        with made.open("ab") as file:
            file.write(hashlib.sha256(made.read_bytes()).digest())
        made.chmod(0o700)
        made.replace(library)
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"{shlex.join(command)} took more than {COMPILE_SECONDS} s") from error
    finally:
        made.unlink(missing_ok=True)


def _intact(library: Path) -> bool:
    """Whether the file is what was written: loading a truncated one can kill the process."""
    try:
        data = library.read_bytes()
        private = library.stat().st_uid == os.geteuid()
    except OSError:
        return False
    return private and hashlib.sha256(data[:-_DIGEST_BYTES]).digest() == data[-_DIGEST_BYTES:]


def _checked(make: type[Made], library: Path) -> Made:
    engine = make(library)
    if not engine.computes():
        raise EngineError(f"the compiler made an engine that gives wrong numbers: {library}")
    return engine
