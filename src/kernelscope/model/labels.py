"""How a tensor is named in one line of text, and argument trees whose tensors are labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelscope.events import DTYPE_SHORT


@dataclass(frozen=True, slots=True)
class TensorLabel:
    """What is kept of a tensor that was an argument: `t$0: f32[8, 8]{requires_grad=True}`."""

    dtype: str
    shape: tuple[Any, ...]  # a symbolic size as text
    prefix: str = "t"  # "t" plain, "dt" DTensor, "ft" fake
    id: int | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    placements: str = ""

    def text(self, attributes: Sequence[str] | None = None) -> str:
        """With these of the recorded attributes; None means all."""
        number = "" if self.id is None else f"${self.id}"
        dims = ", ".join(map(str, self.shape))
        shown = [k for k in self.attributes if attributes is None or k in attributes]
        extra = f"{{{', '.join(f'{k}={self.attributes[k]}' for k in shown)}}}" if shown else ""
        where = f"| {self.placements}" if self.placements else ""
        return f"{self.prefix}{number}: {DTYPE_SHORT.get(self.dtype, self.dtype)}[{dims}]{extra}{where}"

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__


def map_tree(change: Callable[[Any], Any], value: Any) -> Any:
    """The same nest of lists, tuples and dicts with every leaf changed."""
    if type(value) is list:
        return [map_tree(change, v) for v in value]
    if type(value) is tuple:
        return tuple(map_tree(change, v) for v in value)
    if isinstance(value, tuple) and hasattr(value, "n_fields"):  # torch.return_types.max
        return type(value)([map_tree(change, v) for v in value])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tree(change, v) for v in value))
    if type(value) is dict:
        return {k: map_tree(change, v) for k, v in value.items()}
    return change(value)


def tree_text(value: Any, attributes: Sequence[str] | None = None) -> str:
    return str(map_tree(lambda v: v.text(attributes) if isinstance(v, TensorLabel) else v, value))


def call_text(name: str, args: Sequence[Any], kwargs: dict[str, Any], attributes: Sequence[str]) -> str:
    """ "aten::mm(t: f32[8, 8], t: f32[8, 4])"."""
    given = arguments_text(args, attributes), settings_text(kwargs, attributes)
    return f"{name}({''.join(given) if args else given[1].removeprefix(', ')})"


def arguments_text(args: Sequence[Any], attributes: Sequence[str] | None = None) -> str:
    """ "t: f32[8, 8], 2"."""
    return ", ".join(tree_text(a, attributes) for a in args)


def settings_text(kwargs: dict[str, Any], attributes: Sequence[str] | None = None) -> str:
    """ ", out=t: f32[8, 8]"."""
    return "".join(f", {k}={tree_text(v, attributes)}" for k, v in kwargs.items())


def output_text(output: Any, attributes: Sequence[str] | None = None) -> str:
    """ "  ->  t: f32[8, 4]", or nothing when there was no output."""
    empty = output is None or (isinstance(output, list | tuple) and all(o is None for o in output))
    if empty:
        return ""
    shown = list(output) if type(output).__name__ == "Size" else output
    text = map_tree(lambda v: v.text(attributes) if isinstance(v, TensorLabel) else str(v), shown)
    return f"  ->  {tuple(text) if shown is not output else text}"
