"""`with shadow() as result:` and `check_correctness(fn, args)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..probes import PROBES
from ..probes.bus import BUS
from ..probes.fx_stages import FxStages
from ..probes.lowering import Lowerings
from .result import ShadowResult
from .session import Session, Wrong


@contextmanager
def shadow(*, offload: bool = False, wrong: Callable[[Wrong], None] | None = None) -> Iterator[ShadowResult]:
    """Judge every kernel that compiled code launches inside.

    What was compiled before is compiled again, without caches, because only lowering tells which buffer
    holds which value.

        with kernelscope.shadow() as result:
            compiled(x).sum().backward()
        print(result)

    With `offload` the references are computed on the CPU, which spares the memory of a GPU. `wrong` is called
    as soon as something is wrong.
    """
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config

    result = ShadowResult()
    session = Session(result, offload=offload, wrong=wrong)
    lowerings, stages = Lowerings(session.lowered), FxStages(session.stage)
    PROBES.acquire(operators=False, strict=True)
    try:
        lowerings.install()
        stages.install()
        torch._dynamo.reset()
        BUS.attach(session)
        try:
            with (
                inductor_config.patch(fx_graph_cache=False, fx_graph_remote_cache=False),
                functorch_config.patch(enable_autograd_cache=False),
            ):
                yield result
        finally:
            BUS.detach(session)
    finally:
        stages.remove()
        lowerings.remove()
        PROBES.release(operators=False)
        result.is_done = True


def check_correctness(
    fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
) -> ShadowResult:
    """Compile a function, run it on these arguments, and judge every kernel that it launches.

    Where its result can be differentiated, so is it: the backward kernels are judged too. Arguments are
    cloned and gradients go nowhere, so nothing that was passed in is changed.
    """
    from .trying import try_once

    with shadow() as result:
        try_once(fn, args, kwargs or {})
    return result
