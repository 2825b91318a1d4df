"""Asks the C++ compiler beforehand, in a thread, what Inductor asks it before the first kernel of a process.

That is whether the processor's vector instructions can be used (a program is compiled, linked and loaded) and
which precompiled header fits. It takes seconds, in which Python can go on importing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from typing import Any

from .patching import Patch

_ISA = "torch._inductor.cpu_vec_isa:VecISA"
_CODE = "torch._inductor.codecache"
_SOURCE = "// at::vec:: any kernel"  # that is vectorised, by the looks of it


class CppReadiness:
    """The probe: while it is installed, nothing is asked twice, and who needs an answer waits for it."""

    def __init__(self) -> None:
        self._checks: dict[tuple[str, ...], bool] = {}
        self._locks = (Lock(), Lock())
        self._patches = [
            Patch(f"{_ISA}.check_build", self._around_check),
            Patch(f"{_CODE}:_precompile_header", self._around_header),
        ]
        self._thread = Thread(target=self._ask, name="kernelscope-cpp", daemon=True)

    def install(self) -> None:
        for patch in self._patches:  # and with them loads all that the thread needs
            patch.install()
        self._thread.start()

    def wait(self) -> None:
        self._thread.join()

    def remove(self) -> None:
        self.wait()
        for patch in reversed(self._patches):
            patch.remove()

    def _around_check(self, original: Callable[..., bool]) -> Callable[..., bool]:
        from torch._inductor import cpu_vec_isa

        def check_build(isa: Any, code: str) -> bool:
            # The compiler's version is in it: a program may choose another one.
            asked = cpu_vec_isa._get_isa_dry_compile_fingerprint(isa.build_arch_flags())
            key = (str(isa), code, asked)
            with self._locks[0]:
                if key not in self._checks:
                    self._checks[key] = original(isa, code)
                return self._checks[key]

        return check_build

    def _around_header(self, original: Callable[..., str]) -> Callable[..., str]:
        def precompile_header(*args: Any, **kwargs: Any) -> str:
            with self._locks[1]:  # it remembers, but not what another thread is about to know
                return original(*args, **kwargs)

        return precompile_header

    def _ask(self) -> None:
        from torch._inductor import codecache, cpu_vec_isa

        # What cannot be asked here cannot be asked by Inductor, which then says so.
        with suppress(Exception):
            for isa in cpu_vec_isa.valid_vec_isa_list.__wrapped__():
                isa.check_build(cpu_vec_isa.VecISA._avx_code)
            codecache.CppPythonBindingsCodeCache.load_async(_SOURCE, submit_fn=lambda build: None)
