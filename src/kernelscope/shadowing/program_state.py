"""What the program has set in torch, kept from work of our own, and the other way round.

`torch.utils.checkpoint` counts what is saved: one tensor more, and the program fails. A traced graph with
torch.func switches such hooks off and enters levels: left in the middle by an error, they would stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd import forward_ad


@contextmanager
def own_autograd_state() -> Iterator[None]:
    """Without the program's hooks on saved tensors; hooks and levels of torch.func are then as they were."""
    autograd, functorch = torch._C._autograd, torch._C._functorch
    hooks: list[Any] = []
    while (top := autograd._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(top)
        autograd._pop_saved_tensors_default_hooks()
    disabled = autograd._saved_tensors_hooks_get_disabled_error_message()
    depth, level = functorch.get_dynamic_layer_stack_depth(), forward_ad._current_level
    try:
        yield
    finally:
        while forward_ad._current_level > level:
            forward_ad.exit_dual_level()
        if functorch.get_dynamic_layer_stack_depth() > depth:
            functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
        if disabled is None:
            autograd._saved_tensors_hooks_enable()
        else:
            autograd._saved_tensors_hooks_disable(disabled)
        for pack, unpack in reversed(hooks):
            autograd._push_saved_tensors_default_hooks(pack, unpack)


@contextmanager
def without_function_modes() -> Iterator[None]:
    """Without modes and subclasses that change functions of torch: what was traced has them in it already.

    Modes that an operator enters itself, as flex_attention does, are in force.
    """
    modes: list[Any] = []
    while torch._C._len_torch_function_stack():
        modes.append(torch._C._pop_torch_function_stack())
    try:
        with torch._C.DisableTorchFunctionSubclass():
            yield
    finally:
        for mode in reversed(modes):
            torch._C._push_on_torch_function_stack(mode)
