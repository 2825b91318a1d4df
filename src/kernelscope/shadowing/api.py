"""`with shadow() as result:` and `check_correctness(fn, x, y)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from kernelscope.compiler_control.forced_settings import without_caches
from kernelscope.determinism.call_forms import arguments_of
from kernelscope.probes.bus import BUS
from kernelscope.probes.compilation.lowering import Lowerings
from kernelscope.probes.compiler_steps.fx_stages import FxStages
from kernelscope.probes.cuda_graphs.tree_graphs import LaunchByLaunch
from kernelscope.probes.dynamo.compiled_regions import CompiledRegions
from kernelscope.probes.dynamo.uncompiled_functions import why_uncompiled
from kernelscope.probes.gcu.lowering import GcuLowerings
from kernelscope.probes.probe_list import PROBES, Probe

from .result import ShadowResult
from .session import Session, Wrong

_NOT_REPLAYED = "CUDA graphs of torch.compile were run launch by launch: a fault of a replay is not seen."


@contextmanager
def shadow(
    *, offload: bool = False, every: bool = False, wrong: Callable[[Wrong], None] | None = None
) -> Iterator[ShadowResult]:
    """Judge every kernel that compiled code launches inside.

    What was compiled before is compiled again, without caches, because only lowering knows which buffer
    holds which value.

        with kernelscope.shadow() as result:
            compiled(x).sum().backward()
        print(result)

    With `offload` the references are computed on the CPU, which saves GPU memory. Each compiled function is
    compared with the uncompiled one at its first executions and at some later ones, with `every` at each.
    `wrong` is called as soon as something is wrong.
    """
    result = ShadowResult()
    earlier = why_uncompiled()
    with listening(Session(result, offload=offload, every=every, wrong=wrong)):
        yield result
    if not result.counts.launches:
        for reason in why_uncompiled() - earlier:
            result.note(f"Dynamo left a function uncompiled: {reason}")


@contextmanager
def listening(session: Session) -> Iterator[None]:
    """The session observes every graph that is compiled inside, and every launch."""
    hooks: list[Probe] = [
        Lowerings(session.lowered), GcuLowerings(session.lowered), FxStages(session.stage), session.results,
        LaunchByLaunch(lambda: session.result.note(_NOT_REPLAYED)),
    ]  # fmt: skip
    if session.checks_all:
        regions = session.regions
        hooks.append(CompiledRegions(regions.compiled, regions.failed, regions.uncompiled))
    PROBES.acquire(operators=False, strict=True)
    try:
        for hook in hooks:
            hook.install()
        torch.compiler.reset()
        BUS.attach(session)
        try:
            with without_caches():
                yield
        finally:
            BUS.detach(session)
            session.close()
    finally:
        for hook in reversed(hooks):
            hook.remove()
        PROBES.release(operators=False)


def check_correctness(
    fn: Callable[..., Any],
    *given: Any,
    backend: str = "inductor",
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    **named: Any,
) -> ShadowResult:
    """Compile a function, run it on these arguments, and judge every kernel that it launches.

    The arguments are given one by one, `check_correctness(fn, x, y, k=1)`, or as a tuple and a dictionary,
    `check_correctness(fn, (x, y), {"k": 1})`. A function whose only argument is a tuple of as many tensors as
    it has parameters needs the second form: `check_correctness(fn, ((x,),))`.

    Where its result can be differentiated, so is it: the backward kernels are judged too. Arguments are
    cloned and gradients go nowhere, so nothing that was passed in is changed.
    """
    from .run_once import try_once

    words, options = arguments_of(fn, given, args, kwargs, named)
    with shadow() as result:
        try_once(fn, words, options, backend, result.note)
    return result
