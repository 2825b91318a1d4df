"""What the templates of flex_attention compute, in plain torch.

torch's own dense implementation applies the mask function everywhere. A kernel skips the blocks that the
block mask leaves out, and does not call the mask function in those that it marks as full: so does this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from .node_kinds import value_of

_FORWARD, _BACKWARD = "flex_attention", "flex_attention_backward"
_SCORE_ARGUMENTS = 5  # of a score function, before the tensors that it captures: score, b, h, q_idx, kv_idx
_SCORES_AT_ONCE = 1 << 26  # elements: half a gigabyte in float64

Mask = Callable[..., torch.Tensor]


def is_flex(node: Node) -> bool:
    return _name(node) in (_FORWARD, _BACKWARD)


def _name(node: Node) -> str:
    return str(getattr(node.target, "_name", ""))


def flex(node: Node, args: Sequence[Any]) -> Any:
    """What it returns: output, logsumexp and maxima, or, of the backward operator, the gradients."""
    target: Any = node.target
    if _name(node) == _FORWARD:
        return _forward(target, *args)
    return _backward(target, value_of(node), *args)


def _forward(
    target: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Any,
    block_mask: Sequence[Any],
    *others: Any,
) -> Any:
    found = []
    for rows in _rows(query, key):
        mask = (*block_mask[:-1], _later_rows(_mask(block_mask), 0, rows.start))
        found.append(
            target(query[:, :, rows], key, value, _later_rows(score_mod, 1, rows.start), mask, *others)
        )
    return tuple(torch.cat(parts, 2) for parts in zip(*found, strict=True)) if len(found) > 1 else found[0]


def _rows(query: torch.Tensor, key: torch.Tensor) -> Iterator[slice]:
    """The queries, a part at a time: the scores of all of them at once may not fit into memory."""
    count = query.shape[2]
    scores = math.prod(query.shape[:2]) * key.shape[2]
    step = max(1, min(count, _SCORES_AT_ONCE // max(scores, 1)))
    return (slice(start, start + step) for start in range(0, max(count, 1), step))


def _later_rows(function: Any, before: int, start: int) -> Any:
    """A function of (score,) b, h, q_idx, kv_idx for queries that begin further down."""
    if not start:
        return function

    def moved(*args: Any) -> Any:
        return function(*args[: before + 2], args[before + 2] + start, *args[before + 3 :])

    return moved


def _backward(target: Any, fake: Any, *args: Any) -> Any:
    *before, joint, block_mask, scale, options, score_buffers, mask_buffers = args
    # Gradients are wanted of those that the compiler had a gradient for, and that the score function has.
    wanted = fake[3] if isinstance(fake, tuple | list) and len(fake) > 3 else ()
    made = made_gradients(joint)
    score_buffers = tuple(
        buffer.detach().requires_grad_(
            i < len(wanted) and isinstance(wanted[i], torch.Tensor) and (made is None or made[i])
        )
        if isinstance(buffer, torch.Tensor) and buffer.is_floating_point()
        else buffer
        for i, buffer in enumerate(score_buffers)
    )
    mask = (*block_mask[:-1], _mask(block_mask))
    return target(*before, joint, mask, scale, options, score_buffers, tuple(mask_buffers))


def made_gradients(joint: Any) -> list[bool] | None:
    """By captured tensor: whether the graph of the score function's gradients has one; None: no graph."""
    if not isinstance(joint, GraphModule):
        return None
    returned: Any = joint.graph.output_node().args[0]
    return [isinstance(each, Node) for each in returned[_SCORE_ARGUMENTS:]]


def _mask(block_mask: Sequence[Any]) -> Mask:
    """Which scores count: in blocks that are not left out those of the mask function, in full blocks all."""
    partial_count, partial_index, full_count, full_index = block_mask[2:6]
    rows, columns, mask_mod = block_mask[-3:]
    partial = _blocks(partial_count, partial_index)
    full = None if full_count is None else _blocks(full_count, full_index)

    def mask(b: Any, h: Any, q: Any, kv: Any, *buffers: Any) -> torch.Tensor:
        def is_in(blocks: torch.Tensor) -> torch.Tensor:
            batch, heads = b % blocks.shape[0], h % blocks.shape[1]
            places = [batch, heads, q // rows, kv // columns]
            found: torch.Tensor = torch.ops.aten.index.Tensor(blocks, places)
            return found

        found: torch.Tensor = mask_mod(b, h, q, kv, *buffers) & is_in(partial)
        return found if full is None else found | is_in(full)

    return mask


def _blocks(count: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """A boolean for each block: the first `count` of each row are in it."""
    columns = index.shape[-1]
    listed = torch.arange(columns, device=index.device) < count[..., None]
    places = torch.where(listed, index, columns).long()  # the others go to a column of their own
    found = torch.zeros((*index.shape[:-1], columns + 1), dtype=torch.bool, device=index.device)
    return found.scatter_(-1, places, True)[..., :columns]
