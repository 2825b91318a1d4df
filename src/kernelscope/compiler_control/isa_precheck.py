"""Asks the C++ compiler beforehand, in threads, what Inductor asks it before the first kernel of a process.

That is which precompiled header fits, and whether the processor's vector instructions can be used: a program
is compiled, linked and loaded. It takes seconds, in which Python can go on importing, tracing and lowering;
less, if that program, too, is compiled with the precompiled header, which has all that it includes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from functools import partial, wraps
from threading import Event, Lock, RLock, Thread, current_thread
from typing import Any

from kernelscope.probes.patching import Patch

_ISA = "torch._inductor.cpu_vec_isa:VecISA"
_CODE = "torch._inductor.codecache"
_SOURCE = "// at::vec:: any kernel"  # that is vectorised, by the looks of it


class CppReadiness:
    """The probe: while it is installed, nothing is asked twice.

    assume  who asks before it is known is told that the instructions can be used, as they nearly always
            can, and `was_right` tells in the end; without it, who asks waits
    """

    def __init__(self, *, assume: bool) -> None:
        self._assumes = assume
        self._assumed: dict[tuple[str, ...], Callable[[], bool]] = {}  # how each would be asked
        self._checks: dict[tuple[str, ...], bool] = {}
        self._instructions: list[Any] = []
        self._headers: dict[str, str] = {}  # precompiled, by the instructions that they are for
        self._locks = (Lock(), Lock(), RLock())
        self._have_started, self._gave_up = Event(), False
        self._patches = [
            Patch(f"{_ISA}.check_build", self._around_check),
            Patch(f"{_CODE}:_precompile_header", self._around_header),
            Patch("torch._inductor.cpu_vec_isa:valid_vec_isa_list", self._around_list),
        ]
        self._checker = Thread(target=self._check, name="kernelscope-isa", daemon=True)
        self._others = [Thread(target=self._find_header, name="kernelscope-header", daemon=True)]

    def install(self) -> None:
        self._instructions = _instructions()
        for patch in self._patches:  # and with them loads all that the threads need
            patch.install()
        for thread in (self._checker, *self._others):
            thread.start()
        self._have_started.set()

    def remove(self) -> None:
        for thread in (self._checker, *self._others):
            thread.join()
        for patch in reversed(self._patches):
            patch.remove()

    def give_up(self) -> bool:
        """Ask nothing more; whether something is being asked."""
        self._gave_up = True
        return any(thread.is_alive() for thread in (self._checker, *self._others))

    def was_right(self, timeout: float | None = None) -> bool | None:
        """Whether all that was assumed is so; waits until that is known, or gives None: so long it is not."""
        asking = Thread(target=self._ask_all, name="kernelscope-assumed", daemon=True)
        asking.start()
        asking.join(timeout)
        return None if asking.is_alive() else all(self._checks.get(key, False) for key in self._assumed)

    def _ask_all(self) -> None:
        if self._assumed:
            self._checker.join()
        for key, ask in list(self._assumed.items()):
            with suppress(Exception):  # what cannot be asked is not so
                if key not in self._checks:  # the thread asks what is always asked, and not for extensions
                    self._checks[key] = ask()

    def _around_check(self, original: Callable[..., bool]) -> Callable[..., bool]:
        from torch._inductor import cpu_vec_isa

        def check_build(isa: Any, code: str) -> bool:
            # The compiler's version is in it: a program may choose another one.
            asked = cpu_vec_isa._get_isa_dry_compile_fingerprint(isa.build_arch_flags())
            key = (str(isa), code, asked)
            if self._may_assume(key):
                # A copy: Inductor changes the flags of its own while it asks for an extension.
                self._assumed[key] = partial(original, copy(isa), code)
                return True
            with self._locks[0]:
                if key not in self._checks:
                    if current_thread() is self._checker and (header := self._headers.get(_look_of(isa))):
                        with suppress(Exception):  # then it is built as ever, or cannot be
                            _build_with_header(isa, code, header)
                    self._checks[key] = not self._gave_up and original(isa, code)
                return self._checks[key]

        return check_build

    def _may_assume(self, key: tuple[str, ...]) -> bool:
        is_under_way = self._checker.is_alive() and current_thread() is not self._checker
        return self._assumes and is_under_way and key not in self._checks

    def _around_header(self, original: Callable[..., str]) -> Callable[..., str]:
        def precompile_header(*args: Any, **kwargs: Any) -> str:
            with self._locks[1]:  # it remembers, but not what another thread is about to know
                path = original(*args, **kwargs)
            self._headers[_look_of(kwargs.get("vec_isa"))] = path
            return path

        return precompile_header

    def _around_list(self, original: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
        @wraps(original)
        def valid_vec_isa_list() -> list[Any]:
            with self._locks[2]:  # one after another: while Inductor asks on x86, it changes flags
                return original()

        return valid_vec_isa_list

    # What cannot be asked in a thread cannot be asked by Inductor either, which then says so.

    def _check(self) -> None:
        from torch._inductor import cpu_vec_isa

        if self._assumes:  # else that is what the others wait for
            self._have_started.wait()
            for thread in self._others:
                thread.join()
        with suppress(Exception):
            for isa in self._instructions:
                isa.check_build(cpu_vec_isa.VecISA._avx_code)

    def _find_header(self) -> None:
        from torch._inductor import codecache

        with suppress(Exception):
            codecache.CppPythonBindingsCodeCache.load_async(_SOURCE, submit_fn=lambda build: None)


def _instructions() -> list[Any]:
    """What Inductor is going to ask for on this processor."""
    from torch._inductor import cpu_vec_isa

    known = cpu_vec_isa.x86_isa_checker()
    if not known:
        return list(cpu_vec_isa.valid_vec_isa_list.__wrapped__())
    # On x86 that list is made by asking, extensions included. These are copies, because Inductor changes the
    # flags of its own while it asks for an extension.
    found = cpu_vec_isa.supported_vec_isa_list
    return [copy(isa) for isa in found if all(name in known for name in str(isa).split())]


def _look_of(isa: Any) -> str:
    return f"{isa} {isa.build_arch_flags()}" if hasattr(isa, "build_arch_flags") else ""


def _build_with_header(isa: Any, code: str, header: str) -> None:
    """Leave the library where `check_build` looks for it before it builds it; it loads that one then."""
    from torch._inductor import codecache, cpu_vec_isa
    from torch._inductor.cpp_builder import CppBuilder, CppTorchOptions
    from torch.utils._filelock import FileLock

    asked = cpu_vec_isa._get_isa_dry_compile_fingerprint(isa.build_arch_flags())
    key, path = codecache.write(code, "cpp", extra=asked)
    options = CppTorchOptions(vec_isa=isa, warning_all=False)
    options.precompiled_header = header
    builder = CppBuilder(key, [path], options, os.path.dirname(path))
    lock = os.path.join(codecache.get_lock_dir(), f"{key}.lock")
    with FileLock(lock, timeout=codecache.LOCK_TIMEOUT):
        if not os.path.isfile(builder.get_target_file_path()):
            builder.build()
