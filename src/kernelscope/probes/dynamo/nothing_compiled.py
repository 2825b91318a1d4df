"""Why a recording saw no compiled code run, from what Dynamo did meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Iterator, Sequence

import torch

from kernelscope.events import Finding
from kernelscope.text.amounts import counted

from .eval_frames import EarlierFrames, TriedFrame

_EAGER = ("eager", "aot_eager", "aot_eager_decomp_partition")
_OF_EXPORT = "dynamo_normalization_capturing_compiler"  # traces on fake tensors and runs nothing
_MAY_BE_EAGER = "compiled functions may have run in eager"
_FAILS = "fail_on_recompile"
_NOTHING = "results are inputs, views, empty or on the meta device"
_NEVER_CALLED = "nothing that torch.compile returned was called in this process while it was recorded"
_TORCHS_SCRIPTS = "__torch__.torch."
_SEE_OPERATORS = 'ops="all" (on the command line --ops all) records eager operators'

NOTHING_RAN = Finding(
    "nothing-compiled",
    "neither compiled code nor an operator of torch computed anything in this process while it was recorded; "
    "operators on fake tensors, what other processes run, and functions of C++ or numpy that compute without "
    "torch's operators, are not recorded",
)


def nothing_compiled(
    frames: Sequence[TriedFrame],
    earlier: EarlierFrames,
    stances: Sequence[str] = (),
    turned_off: Sequence[str] = (),
    graphs: int = 0,
) -> Finding:
    """For a run without a call. `graphs` counts compiled graphs that ran in it; `stances` are those that were
    in force meanwhile, if only for a part of it; `turned_off` what torch.compile returned as it was."""
    if graphs:
        ran = f"{counted(graphs, 'compiled graph')} ran, with nothing to launch"
        return Finding("nothing-compiled", f"no kernel ran: {ran} ({_NOTHING})")
    why = _why(frames, earlier, stances, turned_off)
    return Finding("nothing-compiled", f"no compiled code ran: {why}")


def has_nothing_to_tell(findings: Iterable[Finding]) -> bool:
    """Of a process without a call: it called nothing that torch.compile returned, so it is a mere helper."""
    return all(
        finding == NOTHING_RAN or (finding.kind == "nothing-compiled" and _NEVER_CALLED in finding.message)
        for finding in findings
    )


def ran_in_eager(
    frames: Sequence[TriedFrame], stances: Sequence[str], recorded: Container[str] | None
) -> Iterator[Finding]:
    """What would be expected among compiled calls, and is not.

    `recorded` has the ids of compilations; None where some of their graphs ran while recording was paused.
    """
    told: dict[str, list[TriedFrame]] = {}
    for frame in frames:
        if frame.is_left_out:
            told.setdefault(frame.gave_up, []).append(frame)
    for reason, places in told.items():
        text = f"Dynamo left {_and_others(places)} to Python: {reason}"
        yield Finding("ran-in-eager", f"{text}; eager operators are not recorded. {_SEE_OPERATORS}")
    if any(stance != _FAILS for stance in stances):
        yield Finding(
            "ran-in-eager", f"{_in_force(stances)}; eager operators are not recorded. {_SEE_OPERATORS}"
        )
    others = [f for f in frames if recorded is not None and _is_unseen(f, recorded)]
    for is_eager, kind in ((True, "ran-in-eager"), (False, "unseen-graph")):
        if made := [f for f in others if (f.backend in _EAGER) is is_eager]:
            yield Finding(kind, _why_not_executed(made))


def _is_unseen(frame: TriedFrame, recorded: Container[str]) -> bool:
    """Whether its graphs went to a backend of which no graph was recorded."""
    is_other = frame.backend not in ("inductor", _OF_EXPORT)
    return bool(frame.graphs) and is_other and frame.compile_id not in recorded


def _in_force(stances: Sequence[str]) -> str:
    names = " and ".join(f'"{name}"' for name in dict.fromkeys(stances))
    effect = "a call that had to compile raised" if set(stances) == {_FAILS} else _MAY_BE_EAGER
    return f"torch.compiler.set_stance({names}) was in force, so {effect}"


def _why(
    tried: Sequence[TriedFrame], earlier: EarlierFrames, stances: Sequence[str], turned_off: Sequence[str]
) -> str:
    frames = sorted(tried, key=lambda frame: frame.is_of_torch)  # what the user wrote comes first
    if torch._dynamo.config.disable:
        return "torch.compile is turned off (TORCH_COMPILE_DISABLE or torch._dynamo.config.disable)"
    if not frames:
        return _why_no_frame(earlier, stances, turned_off)
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
    if given_up := [f for f in frames if f.gave_up]:
        return f"Dynamo left {_and_others(given_up)} to Python: {given_up[0].gave_up}"
    skipped = [f for f in frames if f.skipped]
    if len(skipped) == len(frames):
        return f"Dynamo skipped {_and_others(skipped)}: {skipped[0].skipped}"
    return f"what Dynamo traced of {_and_others(frames)} contains no tensor operation"


def _why_no_frame(earlier: EarlierFrames, stances: Sequence[str], turned_off: Sequence[str]) -> str:
    if turned_off:
        others = len(set(turned_off)) - 1
        left = turned_off[0] + (f" and {counted(others, 'other function')}" if others else "")
        return (
            f"torch.compile returned {left} as it was, because of disable=True or TORCHDYNAMO_DISABLE=1; "
            f"{_SEE_OPERATORS}"
        )
    if stances:
        return f"{_in_force(stances)}; {_SEE_OPERATORS}"
    if earlier.tried:
        return _why_nothing_of_before(earlier)
    return (
        f"{_NEVER_CALLED}, or only where torch compiles nothing (in make_fx, torch.export or torch.jit.trace)"
        f"{_scripts()}; {_SEE_OPERATORS}"
    )


def _why_nothing_of_before(earlier: EarlierFrames) -> str:
    """What was called in the recording, if anything was, Dynamo has looked at before, and does not again."""
    left = f" ({'; '.join(earlier.reasons[:2])})" if earlier.reasons else ""
    if earlier.compiled:
        return (
            f"{counted(earlier.compiled, 'function')} compiled before the recording opened, and no kernel of "
            f"theirs ran in it: they were not called, their backend makes none, or Dynamo had left them to "
            f"Python{left}{_scripts()}; open it before the first calls to learn which. {_SEE_OPERATORS}"
        )
    return (
        f"Dynamo looked at {counted(earlier.tried, 'function')} before the recording opened, and compiled "
        f"none{left}; open it before the first calls to learn why. {_SEE_OPERATORS}"
    )


def _scripts() -> str:
    """TorchScript passes for compiled code."""
    unit = getattr(sys.modules.get("torch.jit._state"), "_python_cu", None)
    # Torch scripts functions of its own, some when a part of it is first used.
    if unit is None or all(f.qualified_name.startswith(_TORCHS_SCRIPTS) for f in unit.get_functions()):
        return ""
    return " (torch.compile does not compile TorchScript, which torch.jit makes)"


def _why_not_executed(made: Sequence[TriedFrame]) -> str:
    backends = list(dict.fromkeys(f.backend for f in made))
    graphs = counted(sum(f.graphs for f in made), "graph")
    backend = f"the backend {' and '.join(backends)}"
    if "inductor" in backends:
        inductors = [f for f in made if f.backend == "inductor"]
        return (
            f"Inductor compiled {_and_others(inductors)}, which was not called while it was recorded or has "
            f"nothing to launch ({_NOTHING})"
        )
    if all(name in _EAGER for name in backends):
        return f"{graphs} went to {backend}, which makes no kernels; {_SEE_OPERATORS}"
    return (
        f"{graphs} of {_and_others(made)} went to {backend}, and none of its kernels was seen: "
        f"kernelscope does not know this kind of kernel, or they were never called; {_SEE_OPERATORS}"
    )


def _and_others(frames: Sequence[TriedFrame]) -> str:
    others = len({f.place for f in frames}) - 1
    return frames[0].place + (f" and {counted(others, 'other function')}" if others else "")
