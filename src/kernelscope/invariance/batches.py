"""A batch of arguments: which of them have rows, and the same arguments with other rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

PADDING = -1  # in place of a row: zeros
SIZES = (1, 2, 3, 7, 8)

# A number for all arguments; one entry for each, in order or by name; an entry may have its argument's form.
Dims = Any


class NoRows(Exception):
    """The arguments have no rows that can be taken apart."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows of the whole batch a run has, in order."""

    name: str  # for people
    rows: tuple[int, ...]  # PADDING: a row of zeros
    tests: str  # what differs from the whole batch: size | position | contents

    @property
    def size(self) -> int:
        return len(self.rows)

    @property
    def places(self) -> list[int]:
        """Where the real rows are."""
        return [place for place, row in enumerate(self.rows) if row != PADDING]

    @property
    def kept(self) -> list[int]:
        """The real rows, by their number in the whole batch."""
        return [row for row in self.rows if row != PADDING]


class Batch:
    """The arguments of a function, and which of their tensors have rows along which dimension."""

    def __init__(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], dim: Dims, names: Sequence[str] = ()
    ) -> None:
        """`names` are those of the function's parameters, as far as they are known."""
        self._leaves, self._spec = tree_flatten((tuple(args), dict(kwargs)))
        self._dims = dims_of(args, kwargs, dim, names)
        sizes = [leaf.shape[d] for leaf, d in zip(self._leaves, self._dims, strict=True) if d is not None]
        if not sizes:
            tensors = [leaf for leaf in self._leaves if isinstance(leaf, torch.Tensor)]
            shapes = ", ".join(str(tuple(leaf.shape)) for leaf in tensors[:4])
            have = f"their shapes begin with {shapes}" if tensors[4:] else f"their shapes are {shapes}"
            have = have if tensors else "none is a tensor"
            raise NoRows(f"no argument is a tensor with rows along dimension {dim}: {have}")
        self.size = int(sizes[0])
        self._is_guessed = isinstance(dim, int)
        if isinstance(dim, int):  # a tensor of another size has no rows: a mask, a table
            pairs = zip(self._leaves, self._dims, strict=True)
            self._dims = [d if d is not None and leaf.shape[d] == self.size else None for leaf, d in pairs]
        elif len(set(sizes)) > 1:
            raise NoRows(
                f"the arguments have {' and '.join(map(str, sorted(set(sizes))))} rows; give as many of each"
            )
        if self.size < 2:
            raise NoRows("the arguments have one row; give at least two")

    def arguments(self, selection: Selection) -> tuple[tuple[Any, ...], dict[str, Any], list[torch.Tensor]]:
        """Copies with these rows, and those of them that have rows."""
        made, batched = [], []
        for leaf, dim in zip(self._leaves, self._dims, strict=True):
            if not isinstance(leaf, torch.Tensor) or isinstance(leaf, torch.nn.Parameter):
                made.append(leaf)
                continue
            value = leaf.detach().clone() if dim is None else _rows_of(leaf.detach(), dim, selection.rows)
            made.append(value.requires_grad_(leaf.requires_grad) if leaf.requires_grad else value)
            if dim is not None:
                batched.append(made[-1])
        args, kwargs = tree_unflatten(made, self._spec)
        return args, kwargs, batched

    def doubtful(self) -> str:
        """The arguments that were taken to have rows, where several were; "": it is known which have them."""
        pairs = zip(self._leaves, self._dims, strict=True)
        shapes = [tuple(leaf.shape) for leaf, dim in pairs if dim is not None]
        return ", ".join(map(str, shapes)) if self._is_guessed and len(shapes) > 1 else ""

    def whole(self) -> Selection:
        return Selection(f"all {self.size} rows", tuple(range(self.size)), "")

    def selections(self) -> list[Selection]:
        """Other sizes first: only they show where a result has its rows."""
        size, last = self.size, self.size - 1
        found = []
        for wanted in (3, 7, 8, 2):
            if wanted < size:
                first = [last, 0, size // 2][: min(wanted, 3)]
                rows = list(dict.fromkeys([*first, *range(size)]))[:wanted]
                found.append(Selection(f"{wanted} rows of {size}", tuple(rows), "size"))
            elif wanted > size and wanted >= 7:
                padded = (*range(size), *[PADDING] * (wanted - size))
                found.append(Selection(f"{size} rows with padding to {wanted}", padded, "size"))
        found.append(Selection("row 0 alone", (0,), "size"))
        found.append(Selection(f"row {last} alone", (last,), "size"))
        found.append(Selection("all rows in reverse order", tuple(reversed(range(size))), "position"))
        half = (size + 1) // 2
        front = (*range(half), *[PADDING] * (size - half))
        back = (*[PADDING] * half, *range(half, size))
        found.append(Selection(f"rows 0 to {half - 1}, zeros in place of the others", front, "contents"))
        found.append(Selection(f"rows {half} to {last}, zeros in place of the others", back, "contents"))
        return found


def _rows_of(tensor: torch.Tensor, dim: int, rows: Sequence[int]) -> torch.Tensor:
    index = torch.tensor([max(row, 0) for row in rows], device=tensor.device)
    taken = tensor.index_select(dim, index)
    for place, row in enumerate(rows):
        if row == PADDING:
            taken.select(dim, place).zero_()
    return taken


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
            f"dim has no entry for {', '.join(unsaid)}, which is passed by name: give all entries by name, "
            f"as in dim={{{unsaid[0]!r}: 0}}"
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
            f"dim is {entry!r} for {name}, which does not have that form: give a number for all of its "
            "tensors, None, or entries in the form of the argument"
        )
    return [dim for pair in pairs for dim in _spread(*pair)]


def _dim_of(name: str, leaf: Any, dim: int) -> int | None:
    if not _is_data(leaf):
        return None
    if not -leaf.dim() <= dim < leaf.dim():
        raise NoRows(
            f"dim is {dim} for {name}, whose shape is {tuple(leaf.shape)}: "
            "give a dimension that it has, or None"
        )
    return dim % int(leaf.dim())


def _is_data(leaf: Any) -> bool:
    """A tensor that may have rows; parameters never do."""
    return isinstance(leaf, torch.Tensor) and not isinstance(leaf, torch.nn.Parameter)
