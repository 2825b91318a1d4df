"""`kernelscope.replace`: other values in the place of a kernel's outputs, a function's or eager's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from kernelscope.values.kernel_filter import KernelFilter, globs_of
from kernelscope.values.replacement import Outputs, Replaced, replaced_outputs

from .api import listening
from .eager_launches import EagerLaunches
from .result import ShadowResult
from .session import Session


@contextmanager
def replace(
    kernel: str | Sequence[str],
    function: Callable[..., Outputs] | Outputs | torch.dtype | str,
    *,
    ops: str = "graph",
) -> Iterator[Replaced]:
    """Inside the block, what `function` returns takes the place of what these kernels write.

    kernel    globs of names, as for `kernelscope.values.observe`
    function  gets a dict of the arguments that a launch found, by name, and returns the tensor for its one
              output, or a dict of tensors by argument; outputs that it leaves out stay as they are. If it
              takes two arguments, the second is a dict of what the kernel wrote. Or that tensor or dict
              itself. Or a dtype: what the kernel wrote, rounded to it. Or "eager", for what eager gives for
              the kernel's own FX nodes: graphs are then compiled again inside the block, to learn which
              those are

    Example:
        with kernelscope.replace("cpp_fused_gelu_0", lambda args: F.gelu(args["in_ptr0"])):
            loss = model(x)
    """
    wanted = KernelFilter(globs_of(kernel))
    if not isinstance(function, str):
        with replaced_outputs(kernel, function, wanted, ops) as replaced:
            yield replaced
        return
    if function != "eager":
        raise ValueError(f"replace({kernel!r}, {function!r}): give a function, a tensor, a dtype, or 'eager'")
    result = ShadowResult()
    launches = EagerLaunches(
        result, lambda launch, _: wanted.wants(launch.site.kernel, launch.site.device), judges=False
    )
    with listening(Session(result, launches=launches)):
        yield launches
    for message in [*wanted.complaints(), *result.unshadowed]:
        print(f"kernelscope: {message}", file=sys.stderr)
    if launches.failures:
        raise RuntimeError(f"eager's result could not replace the kernel's: {launches.failures[0]}")
