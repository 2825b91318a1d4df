"""What every node of the syntax tree is, and the words for types and memories."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, dataclass_transform

from .errors import NOWHERE, Span

ELEMENTS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "f16", "bf16", "f32", "f64")
SCALARS = ("int", "bool", "float", "double", *ELEMENTS)
# Other words for element types.
ALIASES = {"half": "f16", "bfp16": "bf16"}
AS_ELEMENT = {"int": "s32", "float": "f32", "double": "f64", "bool": "u8", **{e: e for e in ELEMENTS}}
SCOPES = ("local", "shared", "global")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
@dataclass(frozen=True)
class Tree:
    """A node of the tree; every class that derives from it is a frozen dataclass."""

    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        dataclass(frozen=True)(cls)
