"""What operators write to: their arguments, as copies, what they left in them, and what they never wrote.

`_efficient_attention_backward` does not write to the padding of a gradient. Eager itself has other values
there each time, so no kernel and no step of the compiler can be blamed for them.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_map

from .custom_operators import copied_as_it_lies, is_custom
from .node_kinds import named_arguments, written_names


def written_by(target: Any, args: Any, kwargs: Any) -> Any:
    """In place of the nothing that an operator returns: what it wrote, which its node then stands for."""
    named = named_arguments(target._schema, args, kwargs)
    found = [named[name] for name in written_names(target._schema) if name in named]
    return found[0] if len(found) == 1 else None


def protected(schema: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Clones in place of what an operator writes to."""
    written = written_names(schema)
    names = [a.name for a in schema.arguments]
    args = tuple(tree_map(cloned, v) if n in written else v for n, v in zip(names, args, strict=False))
    return args, {k: tree_map(cloned, v) if k in written else v for k, v in kwargs.items()}


def called_apart(target: Any, args: Any, kwargs: Any) -> Any:
    """An operator that writes, or may write, to its arguments, called on copies."""
    if is_custom(target):  # what it declares need not be true
        args, kwargs = tree_map(copied_as_it_lies, (args, kwargs))
    else:
        args, kwargs = protected(target._schema, args, kwargs)
    done = target(*args, **kwargs)
    return done if done is not None else written_by(target, args, kwargs)


def write_back(target: Any, wide: tuple[Any, Any], narrow: tuple[Any, Any]) -> None:
    """What an operator wrote to narrow copies of its arguments."""
    schema = target._schema
    old, new = named_arguments(schema, *wide), named_arguments(schema, *narrow)
    for name in written_names(schema):
        both = old.get(name), new.get(name)
        olds, news = (part if isinstance(part, list | tuple) else [part] for part in both)
        for one, other in zip(olds, news, strict=True):
            if isinstance(one, torch.Tensor) and one is not other:
                one.copy_(other)


def write_back_kernel(wide: Any, narrow: Any) -> None:
    """What a user's Triton kernel wrote to narrow copies of what it was given."""
    for old, new in zip(wide["kwargs"].values(), narrow["kwargs"].values(), strict=True):
        if isinstance(old, torch.Tensor) and old is not new:
            old.copy_(new)


def cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def copy_over(target: torch.Tensor, source: Any, *_: Any) -> torch.Tensor:
    """`copy_`, also from memory that it overwrites: then one row after the other, as a kernel would."""
    try:
        return target.copy_(source)
    except RuntimeError:
        if not target.dim() or not isinstance(source, torch.Tensor) or source.shape != target.shape:
            raise
    for row, new in zip(target, source, strict=True):
        copy_over(row, new)
    return target


def filled(memory: torch.Tensor, which: int) -> torch.Tensor:
    """Uninitialised memory with one of two contents: what differs between them is undefined."""
    is_number = memory.is_floating_point() or memory.is_complex()
    return memory.fill_((math.nan, 0.5)[which] if is_number else which)


@contextlib.contextmanager
def filled_memory() -> Iterator[None]:
    """Memory that operators allocate holds NaN, or the largest integer: torch has a setting for that."""
    setting: Any = torch.utils.deterministic
    mode, fills = torch.get_deterministic_debug_mode(), setting.fill_uninitialized_memory
    with warnings.catch_warnings():  # of operators whose order of additions is not fixed
        warnings.simplefilter("ignore")
        torch.set_deterministic_debug_mode("warn")
        setting.fill_uninitialized_memory = True
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(mode)
            setting.fill_uninitialized_memory = fills


def unwritten(value: Any, again: Callable[[], Any]) -> torch.Tensor | None:
    """Which elements of `value`, which `again` computes once more, depend on what was in their memory."""
    if not isinstance(value, torch.Tensor) or value.dtype == torch.bool or value.layout is not torch.strided:
        return None
    try:
        with filled_memory():
            other = again()
    except Exception:  # then every element counts as written
        return None
    if not isinstance(other, torch.Tensor) or (other.shape, other.dtype) != (value.shape, value.dtype):
        return None
    if value.is_floating_point() or value.is_complex():
        found = other.isnan() & ~value.isnan()
    else:
        found = (other == torch.iinfo(other.dtype).max) & (value != other)
    return found.detach() if bool(found.any()) else None


def paired(change: Callable[[Any, Any], Any], values: Any, parts: Any) -> Any:
    """Change each value, which stands where a part of a node's arguments does."""
    if isinstance(values, tuple | list) and isinstance(parts, tuple | list):
        # An operator that is given a tuple may insist on it.
        kind = tuple if isinstance(values, tuple) else list
        return kind(paired(change, v, p) for v, p in zip(values, parts, strict=True))
    if isinstance(values, Mapping) and isinstance(parts, Mapping):
        return {k: paired(change, v, parts[k]) for k, v in values.items()}
    return change(values, parts)
