"""Loads all that the first compilation in a process loads, without running a kernel.

A process that has done this can be forked: no kernel ran, so no pool of threads was started.
"""

from __future__ import annotations

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
            with FakeTensorMode(), torch.no_grad():
                example = torch.empty(8, 8)
                compile_fx(module, [example])
        finally:
            kernels.remove()
    torch.compiler.reset()


def load_compiler() -> None:
    """Import what the first compilation would import, and nothing more."""
    import torch._inductor.compile_fx
    import torch._inductor.fx_passes.joint_graph  # noqa: F401
