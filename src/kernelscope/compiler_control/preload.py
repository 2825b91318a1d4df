"""Loads all that the first compilation in a process loads, without running anything on real data.

A process that has done this can be forked: no kernel ran, so no pool of threads has been started.
"""

from __future__ import annotations

from .forced_settings import without_caches
from .lazy_kernels import LazyKernels


def warm_compiler() -> None:
    """Compile one small function of fake tensors: imports, tables of patterns, what the C++ compiler can."""
    import torch

    # No graph out of a cache, so that all is really used; what g++ was asked before need not be asked again.
    # One thread: Inductor starts its workers when it is imported, and a process with threads is not forked.
    with without_caches(compile_threads=1):
        from torch._inductor.compile_fx import compile_fx
        from torch._subclasses.fake_tensor import FakeTensorMode

        module = torch.fx.symbolic_trace(lambda x: x.sin().sum(0))
        kernels = LazyKernels()  # none of them is launched, so g++ need not run for them
        kernels.install()
        try:
            with FakeTensorMode(), torch.no_grad():
                example = torch.empty(8, 8)
                compile_fx(module, [example])
        finally:
            kernels.remove()
    torch._dynamo.reset()


def load_compiler() -> None:
    """What the first compilation would import, and nothing more."""
    import torch._inductor.compile_fx
    import torch._inductor.fx_passes.joint_graph  # noqa: F401
