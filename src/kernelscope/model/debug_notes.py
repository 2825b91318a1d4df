"""What DebugMode keeps of a call besides what every recording has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .labels import TensorLabel


@dataclass(slots=True)
class OperatorNotes:
    """How an operator was called, which a site's flat arguments do not tell."""

    name: str  # "aten::mm"
    args: tuple[Any, ...]  # as passed, with labels for tensors
    kwargs: dict[str, Any]
    output: Any = None
    # Where the tensors of (args, kwargs) and of the result stand in the flat list: nests of indices.
    input_places: Any = None
    output_places: Any = None
    original_args: tuple[Any, ...] | None = None
    original_kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class CallNotes:
    """Of one call; empty where DebugMode kept nothing."""

    func: Any = None  # the operator that was called
    operator: OperatorNotes | None = None
    originals: tuple[Any, ...] | None = None  # the tensors of a kernel
    kwargs: dict[str, Any] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)  # by the user's hooks
    log: dict[str, Any] = field(default_factory=dict)
    labels: dict[int, TensorLabel] = field(default_factory=dict)  # by argument
    stack_trace: str = ""
    fwd_stack_trace: str | None = None  # of the forward operator
    is_stock_form: bool = False  # as torch's own DebugMode has it: `log` is all that there is
