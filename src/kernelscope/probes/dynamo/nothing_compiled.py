"""Why a recording saw no compiled code run, from what Dynamo did meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch

from kernelscope.events import Finding
from kernelscope.text.amounts import counted

from .eval_frames import TriedFrame

_EAGER = ("eager", "aot_eager", "aot_eager_decomp_partition")
_SEE_OPERATORS = 'ops="all" (on the command line --ops all) records eager operators'


def nothing_compiled(frames: Sequence[TriedFrame], were_compiled: int) -> Finding | None:
    """For a run without a compiled call; `were_compiled` counts frames compiled before it opened.

    None where Inductor compiled something: it may launch nothing, and what ran unseen is another finding.
    """
    if any(frame.graphs and frame.backend == "inductor" for frame in frames):
        return None
    return Finding("nothing-compiled", f"no compiled code ran: {_why(frames, were_compiled)}")


def _why(tried: Sequence[TriedFrame], were_compiled: int) -> str:
    frames = sorted(tried, key=lambda frame: frame.is_of_torch)  # what the user wrote comes first
    if torch._dynamo.config.disable:
        where = "TORCHDYNAMO_DISABLE, TORCH_COMPILE_DISABLE or torch._dynamo.config.disable"
        return f"torch.compile is turned off ({where})"
    if not frames:
        return _why_no_frame(were_compiled)
    if failed := [f for f in frames if f.failed]:
        return f"compiling {failed[0].place} failed: {failed[0].failed}"
    made = [f for f in frames if f.graphs]
    if made:
        return _why_not_executed(made)
    if broken := [f for f in frames if f.breaks]:
        first = broken[0]
        return (
            f"graph breaks left nothing to compile in {_and_others(broken)}: {first.breaks[0]}; "
            "TORCH_LOGS=graph_breaks shows each"
        )
    skipped = [f for f in frames if f.skipped]
    if len(skipped) == len(frames):
        return f"Dynamo skipped {_and_others(skipped)}: {skipped[0].skipped}"
    return f"what Dynamo traced of {_and_others(frames)} contains no tensor operation"


def _why_no_frame(were_compiled: int) -> str:
    stance = torch._dynamo.eval_frame._stance.stance
    if stance != "default":
        return f'torch.compiler.set_stance("{stance}") is in force'
    if were_compiled:
        return (
            f"{counted(were_compiled, 'function')} compiled before the recording opened, and no kernel of "
            f"theirs ran in it; open it around the calls. If their backend makes none, {_SEE_OPERATORS}"
        )
    return (
        f"nothing that torch.compile returned was called while it was recorded{_scripts()}; {_SEE_OPERATORS}"
    )


def _scripts() -> str:
    """TorchScript passes for compiled code."""
    unit = getattr(sys.modules.get("torch.jit._state"), "_python_cu", None)
    if unit is None or not unit.get_functions():
        return ""
    return " (torch.compile does not compile TorchScript, which torch.jit makes)"


def _why_not_executed(made: Sequence[TriedFrame]) -> str:
    backends = list(dict.fromkeys(f.backend for f in made))
    graphs = counted(sum(f.graphs for f in made), "graph")
    backend = f"the backend {' and '.join(backends)}"
    if all(name in _EAGER for name in backends):
        return f"{graphs} went to {backend}, which makes no kernels; {_SEE_OPERATORS}"
    return (
        f"{graphs} of {_and_others(made)} went to {backend}, and none of its kernels was seen: "
        f"they are of a kind that is not known here, or were never called; {_SEE_OPERATORS}"
    )


def _and_others(frames: Sequence[TriedFrame]) -> str:
    others = len({f.place for f in frames}) - 1
    return frames[0].place + (f" and {counted(others, 'other function')}" if others else "")
