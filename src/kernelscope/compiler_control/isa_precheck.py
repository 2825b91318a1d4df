"""Builds, in a thread, the program with which Inductor checks the processor's vector instructions.

Inductor builds and loads it before the first kernel of a process, which takes seconds. Here Python goes on
importing and tracing meanwhile, and the build is shorter because it uses the precompiled header that kernels
need anyway. Inductor finds the library where it would have built it; until then it waits for the same lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from threading import Thread, current_thread
from typing import Any

from kernelscope.probes.patching import Patch, PatchSet

_CODE = "torch._inductor.codecache"
_SOURCE = "// at::vec:: any kernel"  # Inductor takes it for vectorised code


class IsaPrecheck:
    """One build in the background; without it, or if it fails, Inductor builds the program itself."""

    def __init__(self) -> None:
        self._isa: Any = None  # that the header is precompiled for
        self._header = ""
        self._patches = PatchSet(
            Patch(f"{_CODE}:pick_vec_isa", self._around_pick),
            Patch(f"{_CODE}:_precompile_header", self._around_header),
        )
        self._thread = Thread(target=self._build_all, name="kernelscope-isa", daemon=True)

    def start(self) -> None:
        self._patches.install()  # which loads all modules that the thread needs
        self._thread.start()

    def is_running(self) -> bool:
        return self._thread.is_alive()

    def finish(self) -> None:
        self._thread.join()
        self._patches.remove()

    def _around_pick(self, original: Callable[[], Any]) -> Callable[[], Any]:
        def pick_vec_isa() -> Any:  # the thread cannot wait for the check that it prepares
            return self._isa if current_thread() is self._thread else original()

        return pick_vec_isa

    def _around_header(self, original: Callable[..., str]) -> Callable[..., str]:
        def precompile_header(*args: Any, **kwargs: Any) -> str:
            path = original(*args, **kwargs)
            if current_thread() is self._thread:
                self._header = path
            return path

        return precompile_header

    def _build_all(self) -> None:
        with suppress(Exception):  # Inductor tries again, and reports what fails
            for isa in _instructions():
                self.build(isa)

    def build(self, isa: Any) -> None:
        """Does what `VecISA.check_build` does before it loads the library."""
        from torch._inductor import codecache, cpu_vec_isa
        from torch._inductor.cpp_builder import CppBuilder, CppTorchOptions
        from torch.utils._filelock import FileLock

        fingerprint = cpu_vec_isa._get_isa_dry_compile_fingerprint(isa.build_arch_flags())
        key, path = codecache.write(cpu_vec_isa.VecISA._avx_code, "cpp", extra=fingerprint)
        options = CppTorchOptions(vec_isa=isa, warning_all=False)
        builder = CppBuilder(key, [path], options, os.path.dirname(path))
        lock = os.path.join(codecache.get_lock_dir(), f"{key}.lock")
        with FileLock(lock, timeout=codecache.LOCK_TIMEOUT):
            if os.path.isfile(builder.get_target_file_path()):
                return
            if self._isa is None:  # the first one is the one that Inductor will choose
                self._isa = isa
                codecache.CppPythonBindingsCodeCache.load_async(_SOURCE, submit_fn=lambda build: None)
                options.precompiled_header = self._header or None
                builder = CppBuilder(key, [path], options, os.path.dirname(path))
            builder.build()


def _instructions() -> list[Any]:
    """The instruction sets that Inductor is going to check on this processor."""
    from torch._inductor import cpu_vec_isa

    known = cpu_vec_isa.x86_isa_checker()
    if not known:
        return list(cpu_vec_isa.valid_vec_isa_list.__wrapped__())
    # On x86 Inductor makes that list by checking each. These are copies, because Inductor changes the flags
    # of its own objects while it checks for an extension.
    found = cpu_vec_isa.supported_vec_isa_list
    return [copy(isa) for isa in found if all(name in known for name in str(isa).split())]
