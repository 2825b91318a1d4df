"""compare(): two functions that should compute the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from kernelscope.compiler_control.forced_settings import without_caches
from kernelscope.determinism.state import State
from kernelscope.probes.bus import BUS
from kernelscope.probes.listener import Listener
from kernelscope.probes.probe_list import PROBES

from .candidate import CandidateRun
from .matching import Matching
from .reference import ReferenceRun
from .result import ComparisonResult
from .verdict.judging import judged


def compare(
    reference: Callable[..., Any],
    other: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    other_args: Sequence[Any] | None = None,
    other_kwargs: dict[str, Any] | None = None,
) -> ComparisonResult:
    """Find the first call of `other` whose difference from `reference` is more than rounding explains."""
    words, options = tuple(args), dict(kwargs or {})
    other_words = words if other_args is None else tuple(other_args)
    other_options = options if other_kwargs is None else dict(other_kwargs)
    candidate = CandidateRun()
    state = State(other, other_words, other_options)
    try:
        with observed(candidate, compiled=True):
            candidate.flow.note_results(other(*other_words, **other_options))
    finally:
        state.put_back()
    follower = ReferenceRun(Matching(candidate.flow, candidate.kept))
    state = State(reference, words, options)
    try:
        with observed(follower, compiled=False):
            follower.flow.note_results(reference(*words, **options))
    finally:
        state.put_back()
    return judged(follower, candidate.failures)


@contextmanager
def observed(listener: Listener, *, compiled: bool) -> Iterator[None]:
    """The listener sees every launch and every eager operator; the reference runs without the compiler."""
    anomaly = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    PROBES.acquire(operators=True, strict=True)
    try:
        torch.compiler.reset()
        torch.autograd.set_detect_anomaly(
            True, check_nan=False
        )  # notes where each forward operator was called
        BUS.attach(listener)
        try:
            if compiled:
                # Random numbers of compiled code are then those of eager operators, and are calls.
                with without_caches(fallback_random=True):
                    yield
            else:
                with torch.compiler.set_stance("force_eager"):
                    yield
        finally:
            BUS.detach(listener)
            torch.autograd.set_detect_anomaly(*anomaly)
    finally:
        PROBES.release(operators=True)
