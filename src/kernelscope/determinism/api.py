"""check_determinism(): a function, several times from the same state in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from kernelscope.analysis.determinism import DeterminismResult, accuse, compare_runs
from kernelscope.analysis.tensor_errors import errors_between
from kernelscope.config import Config, strict_from_environment
from kernelscope.errors import RunError
from kernelscope.fingerprint import fingerprint
from kernelscope.fingerprint.torch_bits import why_not
from kernelscope.model.run import Run
from kernelscope.recording import Recording
from kernelscope.store.tensors import SavedTensor

from .call_forms import arguments_of
from .state import State

_MOST_SUSPECTS = 10  # are replayed


def check_determinism(
    fn: Callable[..., Any],
    *given: Any,
    runs: int = 3,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    recompile: bool = False,
    ops: str = "all",
    **named: Any,
) -> DeterminismResult:
    """Call a function several times from the same state, and name each kernel that differed.

    Its arguments are given one by one, as in a call of it, or as a tuple and a dictionary; `kwargs` takes
    those that have the name of an option.

    Arguments, the modules, optimizers and tensors that `fn` refers to, and the random number generators
    are put back before each call, and again at the end. A kernel that left other values for the same
    inputs is then launched alone, many times, before it is accused.

    runs       how many times; two are enough to see a difference, more see a rarer one
    recompile  compile anew for each, with an empty cache: finds what depends on autotuning
    ops        "graph" looks at compiled code only, "all" at eager operators too

    Example:
        result = kernelscope.check_determinism(lambda x: model(x).sum().backward(), batch, runs=5)
        assert not result, result
    """
    if not callable(fn):
        raise TypeError(f"check_determinism(fn, …): fn must be callable, not {fn!r:.60}")
    if runs < 2:
        raise ValueError(f"check_determinism(runs={runs}): use at least 2 runs")
    words, options = arguments_of(fn, given, args, kwargs, named)
    state = State(fn, words, options)
    config = Config(values="hash", ops=ops, strict=strict_from_environment())  # type: ignore[arg-type]
    recorded: list[Run] = []
    outputs: list[list[int]] = []
    try:
        for _ in range(runs):
            state.put_back()
            with compiling_anew() if recompile else nullcontext():
                recording, result = _recorded(config, fn, words, options)
            recorded.append(recording.run)
            outputs.append(_hashes(result))
            del result
        found = _compared(recorded, outputs)
        suspects = tuple(suspect.index for suspect in found.unconfirmed[:_MOST_SUSPECTS])
        if suspects:
            state.put_back()
            again, _ = _recorded(replace(config, replay=suspects), fn, words, options)
            assert again.replayer is not None
            found = _with_numbers(accuse(found, again.replayer.replays), again.replayer.examples)
    finally:
        state.put_back()
    return found


def _with_numbers(
    found: DeterminismResult, examples: dict[int, dict[str, tuple[torch.Tensor, torch.Tensor]]]
) -> DeterminismResult:
    kernels = []
    for suspect in found.kernels:
        pairs = examples.get(suspect.index, {}).items()
        errors = [errors_between(_saved(a), _saved(b), name, "after") for name, (a, b) in pairs]
        kernels.append(replace(suspect, errors=tuple(e for e in errors if e is not None)))
    return replace(found, kernels=tuple(kernels))


def _saved(tensor: torch.Tensor) -> SavedTensor:
    """A tensor as it would be read from a run."""
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return SavedTensor(_DTYPES.get(tensor.dtype, "?"), tuple(tensor.shape), data)


_DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
    torch.bool: "BOOL", torch.complex64: "C64",
}  # fmt: skip


def _recorded(config: Config, fn: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Recording, Any]:
    recording = Recording(config)
    recording.open()
    try:
        return recording, fn(*args, **kwargs)
    finally:
        recording.close()


def _compared(runs: list[Run], outputs: list[list[int]]) -> DeterminismResult:
    if not any(map(len, runs)):
        raise RunError("nothing to check: the function launched no kernel that can be recorded")
    found = compare_runs(runs)
    others = sum(hashes != outputs[0] for hashes in outputs[1:])
    if others and not found:
        unexplained = (
            f"the function's result differed in {others} of {len(runs) - 1} repeats, but no recorded call "
            "differed; the cause is outside of torch, or an operator that is not recorded"
        )
        return replace(found, unexplained=unexplained)
    return found


def _hashes(result: Any) -> list[int]:
    """Of the tensors in what a function returned."""
    leaves = torch.utils._pytree.tree_leaves(result)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and why_not(leaf) is None]
    return [fingerprint(tensor, "hash").bits for tensor in tensors]


@contextmanager
def compiling_anew() -> Iterator[None]:
    """An empty compile cache, and none of what was compiled before."""
    from torch._inductor.utils import fresh_inductor_cache

    torch.compiler.reset()
    try:
        with fresh_inductor_cache():
            yield
    finally:
        torch.compiler.reset()
