"""What the compiler takes for the result of an operator: while torch traces, no operator runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map


def fake_results(way: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
    """Of an operator or its decomposition; None: it is not meant for these arguments."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        try:
            fake = tree_map(
                lambda value: mode.from_tensor(value) if isinstance(value, torch.Tensor) else value,
                (tuple(args), dict(kwargs)),
            )
            made = way(*fake[0], **fake[1])
        except Exception:
            return None
    return None if made is NotImplemented else tree_leaves(made)
