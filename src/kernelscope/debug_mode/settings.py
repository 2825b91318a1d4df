"""What the static context managers of DebugMode ask for, in force for every DebugMode of the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from kernelscope.fingerprint.fingerprinter import KNOWN_KINDS, Fingerprinter

from .stock_form import HashOne

HashFunction = str | Callable[[torch.Tensor], object]
Hook = Callable[..., "dict[str, Any] | None"]

# Stock's name for its XOR of upcast values, which misses sign flips and permutations; ours misses nothing.
_ALIASES = {"hash_tensor": "bits"}


@dataclass(frozen=True, eq=False)
class Request:
    """What one open context manager asks for."""

    fingerprinter: Fingerprinter | None = None
    stock_hash: HashOne | None = None  # the same for listings in stock's form
    hash_inputs: bool = False
    keep_outputs: bool = False
    record_hook: Hook | None = None
    log_hook: Hook | None = None
    pre_log_hook: Hook | None = None


class Settings:
    """The requests in force, and the listeners to notify when they change."""

    def __init__(self) -> None:
        self._requests: tuple[Request, ...] = ()
        self.listeners: list[Callable[[], None]] = []

    @contextmanager
    def requesting(self, request: Request) -> Iterator[None]:
        self._requests = (*self._requests, request)
        self._notify()
        try:
            yield
        finally:
            # By identity: requests of several threads may end in any order.
            self._requests = tuple(r for r in self._requests if r is not request)
            self._notify()

    def _notify(self) -> None:
        for listener in list(self.listeners):
            listener()

    @property
    def hashing(self) -> Request | None:
        """The innermost request for hashes."""
        return next((r for r in reversed(self._requests) if r.fingerprinter is not None), None)

    @property
    def keep_outputs(self) -> bool:
        return any(r.keep_outputs for r in self._requests)

    def hooks(self, name: str) -> list[Hook]:
        found = [getattr(r, name) for r in self._requests]
        return [hook for hook in found if hook is not None]


SETTINGS = Settings()


def fingerprinter_for(given: HashFunction | Sequence[HashFunction]) -> Fingerprinter:
    """A fingerprinter for "norm", "bits", "hash_tensor" (which is "bits"), a function, or a list of these."""
    functions = [given] if isinstance(given, str) or callable(given) else given
    if not isinstance(functions, list | tuple) or not functions:
        raise _unknown(given)
    named = [_ALIASES.get(f, f) if isinstance(f, str) else f for f in functions]
    for given_name, function in zip(functions, named, strict=True):
        if not callable(function) and function not in KNOWN_KINDS:
            raise _unknown(given_name)
    return Fingerprinter(named)


def _unknown(given: object) -> ValueError:
    known = ", ".join(repr(name) for name in sorted([*KNOWN_KINDS, *_ALIASES]))
    return ValueError(
        f"log_tensor_hashes(hash_fn={given!r}): unknown hash function; use one of {known}, "
        "a function from a tensor to a number or a string, or a list of these"
    )


def checked_hook(name: str, hook: Hook | None) -> Hook | None:
    if hook is not None and not callable(hook):
        raise TypeError(f"dispatch_hooks({name}=…) takes a function, not {hook!r}")
    return hook
