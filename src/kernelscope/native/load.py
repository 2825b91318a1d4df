"""Libraries of our own C++ sources: each is built at its first use, checked, and loaded once in a process."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import tempfile
import threading
from functools import partial
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from .compiler import NATIVE, NativeError, compile_cpp, compiler, identity
from .library_cache import build_into, cache_folder, is_intact, why_unusable
from .progress import saying
from .sources import joined

# In this order, until one compiles, loads and computes correctly.
FLAGS = ((*NATIVE, "-fopenmp"), ("-fopenmp",), NATIVE, ())
COMMON_FLAGS = ("-std=c++17", "-O3", "-shared", "-fPIC")
COMPILE_SECONDS = 120


class NativeLibrary(Protocol):
    """One loaded library; the class says how it is built.

    One that takes long to build has VARIANTS of its own, instead of those in FLAGS.
    """

    NAME: str
    SOURCE: Path
    FLAGS: tuple[str, ...]  # besides those of all libraries

    def __init__(self, library: Path) -> None: ...
    def computes(self) -> bool:
        """Whether it gives the right numbers."""


Made = TypeVar("Made", bound=NativeLibrary)


def python_module(name: str, library: Path) -> Any:
    """Load a library that is a Python module of this name."""
    loader = ExtensionFileLoader(name, str(library))
    spec = importlib.util.spec_from_file_location(name, library, loader=loader)
    if spec is None:
        raise NativeError(f"{library} is not a Python module")
    try:
        module = importlib.util.module_from_spec(spec)
    except ImportError as error:
        raise NativeError(f"{library} cannot be imported: {error}") from error
    loader.exec_module(module)
    return module


class OnDemand(Generic[Made]):
    """A library that is built and loaded when it is first needed, which may take seconds."""

    def __init__(self, make: type[Made]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._reason: str | None = None  # None: not tried yet
        self._uncached = ""
        self.loaded: Made | None = None  # for callers that cannot afford a call
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        """Another thread of the parent may have held it."""
        self._lock = threading.Lock()

    def get(self) -> Made | None:
        """The library, or None where `unavailable` says why."""
        if self._reason is None:
            with self._lock:
                if self._reason is None:
                    try:
                        self.loaded, self._uncached = start(self._make)
                        self._reason = ""
                    except NativeError as error:
                        self._reason = str(error)
        return self.loaded

    def unavailable(self) -> str:
        """Why the library cannot be used; empty when it can."""
        self.get()
        return self._reason or ""

    def uncached(self) -> str:
        """Why the library was built for this process alone; empty when it was kept, or there is none."""
        self.get()
        return self._uncached


def start(make: type[Made]) -> tuple[Made, str]:
    """A library from the cache folder; or from a temporary one, and why."""
    try:
        return load(make, cache_folder()), ""
    except OSError as error:
        reason = why_unusable(error)
    # What is loaded stays mapped, so that the file need not outlive this.
    with tempfile.TemporaryDirectory(prefix="kernelscope-") as temporary:
        try:
            return load(make, Path(temporary), is_kept=False), reason
        except OSError as error:
            raise NativeError(f"{reason}; nor can {temporary}: {error}") from error


def load(make: type[Made], folder: Path, *, is_kept: bool = True) -> Made:
    """A library from this folder, built if it is not there; OSError when the folder cannot be used."""
    compiling = compiler()
    source = joined(make.SOURCE)
    reasons, unloadable = [], None
    for tried in getattr(make, "VARIANTS", FLAGS):
        flags = (*COMMON_FLAGS, *make.FLAGS, *tried)
        key = hashlib.sha256(f"{source}\0{identity(compiling, flags)}".encode()).hexdigest()
        library = folder / f"{make.NAME}-{key[:24]}.so"
        if is_intact(library):
            with contextlib.suppress(OSError, NativeError):
                return _checked(make, library)

        command = [*compiling, *flags, str(make.SOURCE)]
        try:
            with saying(f"building its C++ part {make.NAME}{', once on this machine' if is_kept else ''}"):
                build_into(library, partial(_built, command))
            return _checked(make, library)
        except NativeError as error:
            reasons.append(str(error))
        except OSError as error:
            unloadable = error
    # A folder that forbids execution lets us compile, and not load.
    raise unloadable or NativeError(reasons[0])


def _built(command: list[str], folder: Path) -> Path:
    library = folder / "library.so"
    compile_cpp([*command, "-o", str(library)], COMPILE_SECONDS)
    return library


def _checked(make: type[Made], library: Path) -> Made:
    made = make(library)
    if not made.computes():
        raise NativeError(f"the C++ compiler built a library that gives wrong results: {library}")
    return made
