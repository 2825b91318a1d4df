"""A batch of arguments: which of them have rows, and the same arguments with other rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from .row_dims import Dims, NoRows, dims_of

PADDING = -1  # in place of a row: zeros
SIZES = (1, 2, 3, 7, 8)


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
