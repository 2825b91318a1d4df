"""One program: compiled bare, recorded, and under shadow; what differs, and what shadow says."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch._inductor.config
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

import kernelscope

from .databases import Program, fresh

_OF_OURS = "src/kernelscope", "site-packages/kernelscope"
_WRONG = {"unowned-write", "undeclared-write", "never-written"}  # findings that accuse the program
_BROKEN = {"recorder-error", "hash-failed", "unseen-graph"}  # findings that we failed


def tried(program: Program) -> dict[str, Any]:
    """What is written to the journal about it, but its name."""
    begun = time.perf_counter()
    found = _tried(program)
    return found | {"seconds": round(time.perf_counter() - begun, 2)}


def _tried(program: Program) -> dict[str, Any]:
    torch.compiler.reset()
    compiled = torch.compile(program.call)
    bare, error = _outcome(program, compiled)
    if error is not None:
        return _that_fails(program, error)
    found: dict[str, Any] = {"status": "ok"}
    recorded, shadowed = None, None
    try:
        with kernelscope.record(values="hash") as run:
            recorded, error = _outcome(program, compiled)
        found |= _of_recording(run, error)
    except Exception as problem:  # of its own
        found |= {"status": "failure", "error": f"while recording: {_text(problem)}"}
    torch.compiler.reset()
    try:
        with kernelscope.shadow() as result:
            shadowed, error = _outcome(program, torch.compile(program.call))
        found |= _of_shadow(result)
    except Exception as problem:
        error = problem
    if error is not None:
        return found | {"status": "failure", "error": _text(error)}
    if found["status"] == "alarm" or found.get("unjudged"):
        found |= _without_eager(program)
    if found["status"] == "ok":
        found |= _perturbed(program, bare, {"recorded": recorded, "shadowed": shadowed})
    return found


def _outcome(program: Program, call: Any) -> tuple[list[Any], BaseException | None]:
    """Results and gradients, or what it raised."""
    inputs, leaves = fresh(program)
    torch.manual_seed(1)
    try:
        result = call(*inputs)
        made = [part for part in tree_flatten(result)[0] if isinstance(part, torch.Tensor)]
        wanted = [
            part
            for part in tree_flatten(program.finish(result))[0]
            if isinstance(part, torch.Tensor) and part.requires_grad
        ]
        gradients: tuple[Any, ...] = ()
        if program.backward and wanted and leaves:
            generator = torch.Generator().manual_seed(2)
            given = [_gradient(part, generator) for part in wanted]
            gradients = torch.autograd.grad(wanted, leaves, given, allow_unused=True)
        written = [part for part in tree_flatten(inputs)[0] if isinstance(part, torch.Tensor)]
        return [_kept(part) for part in (*made, *gradients, *written)], None
    except Exception as error:
        return [], error
    finally:
        if torch.cuda.is_available():
            torch.cuda.synchronize()


def _gradient(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    made = torch.rand(like.shape, generator=generator, dtype=torch.float64) + 0.5
    return made.to(like.device, like.dtype)


def _kept(part: Any) -> Any:
    return part.detach().clone() if isinstance(part, torch.Tensor) else part


def _that_fails(program: Program, error: BaseException) -> dict[str, Any]:
    torch.compiler.reset()
    _, eager = _outcome(program, program.call)
    torch.compiler.reset()
    raised = None
    try:
        with kernelscope.shadow():
            _, raised = _outcome(program, torch.compile(program.call))
    except Exception as problem:
        raised = problem
    found = {"error": _text(error), "eager": _text(eager) if eager is not None else ""}
    if raised is None or type(raised) is not type(error):
        found["shadow"] = _text(raised) if raised is not None else "no exception"
        if raised is not None and any(place in _text(raised) for place in _OF_OURS):
            return found | {"status": "failure"}
    return found | {"status": "fails-bare"}


def _without_eager(program: Program) -> dict[str, Any]:
    """A program that eager refuses to run is not a correct one, whatever the compiler makes of it."""
    torch.compiler.reset()
    _, eager = _outcome(program, program.call)
    return {} if eager is None else {"status": "fails-bare", "eager": _text(eager)}


def _of_recording(run: Any, error: BaseException | None) -> dict[str, Any]:
    odd = sorted({f"{f.kind}: {f.message[:200]}" for f in run.findings if f.kind in _WRONG | _BROKEN})
    found: dict[str, Any] = {"findings": odd} if odd else {}
    if any(f.kind in _BROKEN for f in run.findings):
        found |= {"status": "failure", "error": "; ".join(odd)}
    if error is not None:
        found |= {"status": "failure", "error": f"while recording: {_text(error)}"}
    return found


def _of_shadow(result: Any) -> dict[str, Any]:
    facts = result.to_dict()
    unchecked = [f"{u['kernel_name']} {u['argument']}: {u['reason']}" for u in facts["unchecked"]]
    found = {
        "launches": facts["launches"],
        "unjudged": facts["unjudged_launches"],
        "buffers": facts["buffers"],
    }
    if unchecked:
        found["unchecked"] = unchecked[:10]
    if facts["problem"]:
        found["inconclusive"] = facts["problem"][:300]
    if facts["notes"]:
        found["notes"] = [note[:500] for note in facts["notes"][:5]]
    if facts["unshadowed"]:
        found["unshadowed"] = facts["unshadowed"][:3]
    if facts["culprits"]:
        found["culprits"] = [
            {
                name: c.get(name)
                for name in ("verdict", "kernel_name", "argument", "buffer", "node", "reason", "numbers")
            }
            for c in facts["culprits"][:5]
        ]
        return found | {"status": "alarm"}
    ours = [f"{each['where']}: {each['error']}" for each in facts["failures"]]
    if ours or facts["unshadowed"]:
        return found | {
            "status": "failure",
            "error": "; ".join([*ours, *facts["unshadowed"]])[:600],
            "traces": [each["traceback"][-700:] for each in facts["failures"]],
        }
    return found


def _perturbed(program: Program, bare: list[Any], others: dict[str, list[Any] | None]) -> dict[str, Any]:
    for name, other in others.items():
        where = _differs(bare, other) if other is not None else None
        if where is None:
            continue
        if why := _varies(program, bare):
            return {"varies": why}
        return {"status": "perturbed", "error": f"{name}: {where}"}
    return {}


def _varies(program: Program, bare: list[Any]) -> str:
    """Why its results are not the same bits each time without kernelscope; empty if they are.

    Fifteen runs may miss a choice that depends on measured times, which another load of the GPU turns. So the
    choice is then taken away: if nothing differs with the first configuration of each Triton kernel, and
    something does with the last ones, the difference is that of the configurations.
    """
    if _returns_uninitialised_memory(program):
        return "it returns what uninitialised memory holds"
    for _ in range(3):
        if any(_differs(bare, each) for each in _compiled_anew(program, 5)):
            return "runs without kernelscope differ"
    ends = []
    for last in (False, True):
        with _without_tuning(last):
            alone = _compiled_anew(program, 2)
            with kernelscope.record(values="hash"):
                alone += _compiled_anew(program, 1)
            torch.compiler.reset()
            with kernelscope.shadow():
                shadowed, error = _outcome(program, torch.compile(program.call))
        if error is not None or len(alone) != 3:
            return ""
        if any(_differs(alone[0], each) for each in (*alone[1:], shadowed)):
            return ""
        ends.append(alone[0])
    return "Triton configurations that the tuner chooses from differ" if _differs(*ends) else ""


class _Filled(TorchDispatchMode):
    """New memory holds this byte, until something is written to it."""

    def __init__(self, byte: int) -> None:
        super().__init__()
        self._byte = byte

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if "empty" in func.__name__ and isinstance(result, torch.Tensor) and result.numel():
            result.untyped_storage().fill_(self._byte)
        return result


def _returns_uninitialised_memory(program: Program) -> bool:
    one, again, other = (_filled(program, byte) for byte in (17, 17, 42))
    return _differs(one, again) is None and _differs(one, other) is not None


def _filled(program: Program, byte: int) -> list[Any]:
    with _Filled(byte):
        return _outcome(program, program.call)[0]


def _compiled_anew(program: Program, times: int) -> list[list[Any]]:
    """What the program gives without caches."""
    torch.compiler.reset()
    with torch._inductor.config.patch(fx_graph_cache=False, autotune_local_cache=False):
        compiled = torch.compile(program.call)
        runs = [_outcome(program, compiled) for _ in range(times)]
    return [values for values, error in runs if error is None]


@contextlib.contextmanager
def _without_tuning(last: bool) -> Iterator[None]:
    """Each Triton kernel gets its first (or last) configuration, whatever its time."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    def in_order(self: Any, *args: Any, **kwargs: Any) -> dict[Any, float]:
        return {launcher: float(-i if last else i) for i, launcher in enumerate(self.launchers)}

    with (
        mock.patch.object(CachingAutotuner, "benchmark_all_configs", in_order),
        torch._inductor.config.patch(autotune_local_cache=False),
    ):
        yield


def _differs(one: list[Any], other: list[Any]) -> str | None:
    if len(one) != len(other):
        return f"{len(one)} tensors, then {len(other)}"
    for i, (a, b) in enumerate(zip(one, other, strict=True)):
        if (a is None) != (b is None):
            return f"tensor {i} is missing"
        if isinstance(a, torch.Tensor) and not _identical(a, b):
            return f"tensor {i} of {len(one)}, {a.dtype}{list(a.shape)}"
    return None


def _identical(a: torch.Tensor, b: torch.Tensor) -> bool:
    if (a.dtype, a.shape, a.layout) != (b.dtype, b.shape, b.layout):
        return False
    if a.layout is not torch.strided:
        a, b = a.to_dense(), b.to_dense()
    elif a.stride() != b.stride():
        return False
    return bool(torch.equal(_bytes(a), _bytes(b)))


def _bytes(value: torch.Tensor) -> torch.Tensor:
    """All bytes, in order of the indices; `contiguous()` would keep odd strides of a single element."""
    plain = value.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return plain.view(-1).view(torch.uint8)


def _text(error: BaseException) -> str:
    with contextlib.suppress(Exception):
        frames = traceback.extract_tb(error.__traceback__)
        where = "; ".join(f"{f.filename.split('site-packages/')[-1]}:{f.lineno}" for f in frames[-3:])
        ours = next(
            (f"{f.filename}:{f.lineno}" for f in reversed(frames) if any(o in f.filename for o in _OF_OURS)),
            "",
        )
        return f"{type(error).__name__}: {str(error)[:300]} [{where}]{' ours: ' + ours if ours else ''}"
    return type(error).__name__
