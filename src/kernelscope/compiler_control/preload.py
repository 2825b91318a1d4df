"""Loads all that the first compilation in a process loads, without running a kernel.

A process that has done this can be forked: no kernel ran, so no pool of threads was started.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .forced_settings import without_caches
from .lazy_kernels import LazyKernels


def warm_compiler() -> None:
    """Compile one small function of fake tensors: loads modules and patterns, checks the C++ compiler."""
    import torch

    # Not from a cache, so that everything is really used. One thread: Inductor starts its workers when it is
    # imported, and a process with threads cannot be forked.
    with without_caches(compile_threads=1):
        from torch._inductor.compile_fx import compile_fx
        from torch._subclasses.fake_tensor import FakeTensorMode

        module = torch.fx.symbolic_trace(lambda x: x.sin().sum(0))
        kernels = LazyKernels()  # none is launched, so none is built
        kernels.install()
        try:
            with FakeTensorMode(), torch.no_grad(), _without_monitor():
                example = torch.empty(8, 8)
                compile_fx(module, [example])
        finally:
            kernels.remove()
    torch.compiler.reset()
    _forget_tables()


def _forget_tables() -> None:
    """The first use of the decompositions copies their table: a program may change it until then."""
    from torch._inductor import decomposition

    for each in vars(decomposition).values():
        if callable(forget := getattr(each, "cache_clear", None)):
            forget()


@contextmanager
def _without_monitor() -> Iterator[None]:
    """FX shows its progress with tqdm, if that is installed; a bar, even a hidden one, starts a thread."""
    bars: Any = getattr(sys.modules.get("tqdm"), "tqdm", None)
    interval = getattr(bars, "monitor_interval", 0)
    if not interval:
        yield
        return
    bars.monitor_interval = 0
    try:
        yield
    finally:
        bars.monitor_interval = interval


def load_compiler() -> None:
    """Import what the first compilation would import, and nothing more."""
    import torch._inductor.compile_fx
    import torch._inductor.fx_passes.joint_graph  # noqa: F401
