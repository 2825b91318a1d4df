"""Which dimension of which argument holds rows, as `dim` says it: like `in_dims` of torch.vmap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

# A number for all arguments; one entry for each, in order or by name; an entry may have its argument's form.
Dims = Any


class NoRows(Exception):
    """The arguments have no rows that can be taken apart."""


def dims_of(
    args: Sequence[Any], kwargs: Mapping[str, Any], dim: Dims, names: Sequence[str] = ()
) -> list[int | None]:
    """For each leaf of the arguments: where its rows are, or None. `names` are those of the parameters."""
    if _is_number(dim) or dim is None:
        leaves = tree_leaves((tuple(args), dict(kwargs)))
        return [_guessed(leaf, dim) for leaf in leaves]
    found: list[int | None] = []
    for name, value, wanted in _by_argument(args, kwargs, dim, names):
        found += _spread(name, value, wanted)
    return found


def parsed_dims(text: str) -> Dims:
    """`1`; `0,1,none`, one for each argument; `x=0,mask=none`, by name."""
    words = [word.strip() for word in text.split(",")]
    if any("=" in word for word in words):
        pairs = [word.partition("=") for word in words]
        if any(not name.strip() or not sign for name, sign, _ in pairs):
            raise ValueError(f"{text}: give each entry a name, as in x=0,mask=none")
        return {name.strip(): _parsed(entry) for name, _, entry in pairs}
    entries = [_parsed(word) for word in words]
    return entries[0] if len(entries) == 1 else tuple(entries)


def _parsed(word: str) -> int | None:
    if word.strip().lower() in ("none", "-"):
        return None
    try:
        return int(word)
    except ValueError:
        raise ValueError(
            f"{word!r} is not a dimension: give an integer, or none for an argument without rows"
        ) from None


def _is_number(entry: Any) -> bool:
    return isinstance(entry, int) and not isinstance(entry, bool)


def _guessed(leaf: Any, dim: int | None) -> int | None:
    """Of one number for all arguments: those that have this dimension may have rows."""
    fits = _is_data(leaf) and dim is not None and -leaf.dim() <= dim < leaf.dim()
    return dim % leaf.dim() if fits and dim is not None else None


def _by_argument(
    args: Sequence[Any], kwargs: Mapping[str, Any], dim: Any, names: Sequence[str]
) -> list[tuple[str, Any, Any]]:
    """Name, value and entry of each argument."""
    given = [(names[i] if i < len(names) else f"argument {i}", value) for i, value in enumerate(args)]
    if isinstance(dim, Mapping):
        known = [name for name, _ in given] + list(kwargs)
        for name in dim:
            if name not in known:
                raise NoRows(f"dim names {name!r}, and the arguments are {', '.join(known) or 'none'}")
        return [(name, value, dim.get(name)) for name, value in [*given, *kwargs.items()]]
    if not isinstance(dim, tuple | list):
        raise NoRows(
            f"dim is {dim!r}: give a number, one entry for each argument, as in dim=(0, None), or entries by "
            'name, as in dim={"x": 0}'
        )
    if len(dim) != len(given):
        raise NoRows(f"dim has {len(dim)} entries for {len(given)} arguments; give one for each")
    unsaid = [name for name, value in kwargs.items() if any(map(_is_data, tree_leaves(value)))]
    if unsaid:
        raise NoRows(
            f"dim says nothing of {', '.join(unsaid)}, which is given by name: give the entries by name too, as "
            f"in dim={{{unsaid[0]!r}: 0}}"
        )
    return [(name, value, entry) for (name, value), entry in zip(given, dim, strict=True)] + [
        (name, value, None) for name, value in kwargs.items()
    ]


def _spread(name: str, value: Any, entry: Any) -> list[int | None]:
    """One entry for each leaf of an argument; a number counts for all of its tensors."""
    if entry is None:
        return [None] * len(tree_leaves(value))
    if _is_number(entry):
        leaves = tree_leaves(value)
        if not any(map(_is_data, leaves)):
            raise NoRows(f"dim is {entry} for {name}, which holds no tensor of data: give None for it")
        return [_dim_of(name, leaf, entry) for leaf in leaves]
    if isinstance(entry, Mapping) and isinstance(value, Mapping) and entry.keys() <= value.keys():
        pairs = [(f"{name}[{key!r}]", each, entry.get(key)) for key, each in value.items()]
    elif isinstance(entry, tuple | list) and isinstance(value, tuple | list) and len(entry) == len(value):
        pairs = [(f"{name}[{i}]", each, entry[i]) for i, each in enumerate(value)]
    else:
        raise NoRows(
            f"dim is {entry!r} for {name}, which does not have that form: give a number for all of its tensors, "
            "None, or entries in the form of the argument"
        )
    return [dim for pair in pairs for dim in _spread(*pair)]


def _dim_of(name: str, leaf: Any, dim: int) -> int | None:
    if not _is_data(leaf):
        return None
    if not -leaf.dim() <= dim < leaf.dim():
        raise NoRows(
            f"dim is {dim} for {name}, whose shape is {tuple(leaf.shape)}: give a dimension that it has, or None"
        )
    return dim % int(leaf.dim())


def _is_data(leaf: Any) -> bool:
    """A tensor that may have rows; parameters never do."""
    return isinstance(leaf, torch.Tensor) and not isinstance(leaf, torch.nn.Parameter)
