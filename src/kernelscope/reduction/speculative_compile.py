"""While the C++ compiler builds the program's kernels: the single nodes of its graph are compiled, too.

If one of these kernels turns out to be wrong, that is the next thing that is asked. Python would only wait.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import torch
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes

from kernelscope.compiler_control.lazy_kernels import AwaitedKernels
from kernelscope.probes.bus import BUS
from kernelscope.probes.compilation.lowering import LoweredGraph, Lowerings

from .journal import Journal
from .single_node_search import Singles, ahead_of


class Foresight:
    """A probe for the time in which the program runs; `singles` is what it has made of it."""

    def __init__(self, meanwhile: Callable[[], None], journal: Journal) -> None:
        """`meanwhile` does what else can be done while the C++ compiler is at work."""
        self._meanwhile, self._journal = meanwhile, journal
        self._process = os.getpid()
        self.singles: Singles | None = None
        self._modules: list[GraphModule] = []
        self._kernels = AwaitedKernels(self._look_ahead)
        self._hooks = (Lowerings(self._lowered), self._kernels)

    def install(self) -> None:
        for hook in self._hooks:
            hook.install()

    def end(self) -> None:
        """The program has come to its end: it has, if all that it has compiled could be built."""
        self._kernels.wait()

    def remove(self) -> None:
        for hook in reversed(self._hooks):
            hook.remove()
        self._kernels.let_go()

    def _lowered(self, graph: LoweredGraph) -> None:
        self._modules.append(graph.module)

    def _look_ahead(self) -> None:
        """In the middle of the program's first launch, and not to be seen by it."""
        if os.getpid() != self._process:  # the program has forked itself
            return
        with suppress(Exception), _apart():  # then it is compiled when it is wanted
            singles = ahead_of(self._modules)
            if singles is not None and not self._journal.has_lost(singles.key):
                with self._journal.ahead(singles.key, len(singles)):  # a compiler may hang, or crash
                    singles.compile()
                self.singles = singles
        self._meanwhile()


@contextmanager
def _apart() -> Iterator[None]:
    state, numbers = torch.get_rng_state(), random.getstate()
    try:
        with (
            BUS.mute(),
            _disable_current_modes(),
            torch._C.DisableTorchFunction(),
            torch.autocast("cpu", enabled=False),
            torch.autocast("cuda", enabled=False),
        ):
            yield
    finally:
        torch.set_rng_state(state)
        random.setstate(numbers)
