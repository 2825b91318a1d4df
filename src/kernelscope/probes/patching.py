"""Replacing an attribute of torch or triton, and putting back exactly what was there."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any, Self

from kernelscope.late_modules import cancel, when_loaded
from kernelscope.own_warnings import printed_at_most
from kernelscope.supported import in_words, too_new, too_old

_ABSENT = object()
ADVICE = "Upgrade kernelscope, or set KERNELSCOPE_STRICT=0 to record without the probe that needs it."


class MovedTarget(RuntimeError):
    """A hook target is not where this version of kernelscope expects it."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(f"{what} {advice}".rstrip())
        self.what = what


@printed_at_most()  # torch warns about modules of its own when they are imported
def resolve(path: str) -> tuple[Any, str]:
    """The object that holds a dotted attribute ("torch.cuda:CUDAGraph.replay"), and the attribute's name."""
    module_name, _, attribute = path.partition(":")
    try:
        holder: Any = importlib.import_module(module_name)
    except ImportError as e:
        raise moved(path) from e
    except UnicodeDecodeError as e:  # torch reads its own files in the locale's encoding
        raise RuntimeError(
            f"{module_name} cannot be loaded in this locale ({e}); set PYTHONUTF8=1 or LC_ALL=C.UTF-8"
        ) from e
    *outer, last = attribute.split(".")
    for name in outer:
        holder = getattr(holder, name, _ABSENT)
        if holder is _ABSENT:
            raise moved(path)
    if not _has(holder, last):
        raise moved(path)
    return holder, last


def _has(holder: Any, name: str) -> bool:
    if isinstance(holder, type):  # not hasattr: every class can be called, through its metaclass
        return any(name in vars(base) for base in holder.__mro__)
    return hasattr(holder, name)


def moved(path: str) -> MovedTarget:
    package = path.split(".")[0].split(":")[0]
    versions = ", ".join(f"{name} {_version(name)}" for name in dict.fromkeys(("torch", package)))
    why = too_new("torch", _version("torch")) or f"Supported: {in_words('torch')}"
    return MovedTarget(
        f"kernelscope hooks {path.replace(':', '.')}, which does not exist here ({versions}). {why}.",
        ADVICE,
    )


def refuse_old_torch() -> None:
    if why := too_old("torch", _version("torch")):
        raise MovedTarget(f"{why}. Upgrade torch.")


def newer_than_tested() -> list[str]:
    """Sentences about a torch or a Python that nobody has tried with this version of kernelscope."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = (too_new("torch", _version("torch")), too_new("Python", python))
    return [note for note in found if note]


def _version(package: str) -> str:
    try:
        return str(importlib.import_module(package).__version__)
    except ImportError:
        return "not installed"


class Patch:
    """One replaced attribute; `make` gets the original and returns its replacement."""

    def __init__(self, path: str, make: Callable[[Any], Any]) -> None:
        self._path = path
        self.module = path.partition(":")[0]
        self.make = make
        self._holder: Any = None
        self._name = ""
        self._original: Any = _ABSENT

    def install(self) -> None:
        when_loaded(self.module, self._replace)

    @property
    def replaced(self) -> str:
        """While installed, the owner and name of what it replaced: "CUDAGraph.replay"."""
        return f"{self._holder.__name__}.{self._name}"

    @printed_at_most()
    def _replace(self) -> None:
        holder, self._name = resolve(self._path)
        # An inherited attribute is not in the holder's own dict: removing ours uncovers it again.
        self._original = vars(holder).get(self._name, _ABSENT)
        setattr(holder, self._name, self.make(getattr(holder, self._name)))
        self._holder = holder

    def remove(self) -> None:
        cancel(self.module, self._replace)
        if self._holder is None:
            return
        if self._original is _ABSENT:
            delattr(self._holder, self._name)
        else:
            setattr(self._holder, self._name, self._original)
        self._holder = None


class PatchSet:
    """Patches that are installed together and removed in reverse order. Most probes are one."""

    def __init__(self, *patches: Patch) -> None:
        self.patches = list(patches)

    def install(self) -> None:
        for patch in self.patches:
            patch.install()

    def remove(self) -> None:
        for patch in reversed(self.patches):
            patch.remove()

    def __enter__(self) -> Self:
        try:
            self.install()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()
