"""Operators of torch that write to arguments of which their schemas do not say so."""

from __future__ import annotations

from typing import Any

_STATISTICS = ("running_mean", "running_var")
# Batch norm keeps running statistics; a test calls those that run on a CPU.
_WRITES = dict.fromkeys(
    (
        "native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "batch_norm_update_stats",
        "batch_norm_gather_stats", "batch_norm_gather_stats_with_counts",
    ),
    _STATISTICS,
)  # fmt: skip


def undeclared_writes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, ...]:
    """The names of the arguments that this call writes to, besides those of its schema."""
    names = _WRITES.get(getattr(func, "_opname", ""), ())
    if not names or func.namespace != "aten" or not _is_training(func, args, kwargs):
        return ()
    return names


def _is_training(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """In an evaluation, batch norm only reads its statistics; operators without this switch always write."""
    at = next((i for i, a in enumerate(func._schema.arguments) if a.name == "training"), None)
    if at is None:
        return True
    return bool(args[at] if at < len(args) else kwargs.get("training", True))
