"""States of torch's random number generators, as hashes: ranks that should draw alike have the same."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch

GENERATORS = "generators"  # kind of the mark that tells them


def generator_states(step: int) -> str:
    """As JSON: by device, after so many steps; of GPUs only the current one, whose state is on the host."""
    states: dict[str, Any] = {"cpu": _hash(torch.default_generator.get_state())}
    cuda: Any = torch.cuda
    if cuda.is_initialized() and not cuda.is_current_stream_capturing():
        states["cuda"] = _hash(cuda.get_rng_state())
    return json.dumps({"step": step, "states": states})


def _hash(state: torch.Tensor) -> str:
    return hashlib.blake2b(state.numpy().tobytes(), digest_size=8).hexdigest()
