"""Which place of one run holds the row that is at which place of the whole batch.

Rows keep their places until a program sorts or selects them by their contents. From then on the order is
found from the indices that the program computed, or from the rows themselves: by their bits, or the nearest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence, Sized
from dataclasses import dataclass

import torch

_MOST_PLACES = 1 << 17  # of which an order is looked for
_MOST_COMPARED = 4096  # with each other, by distance
_NEAR = 0.01  # relative, in the 2-norm of a row
_CLEARLY = 4  # times as far as the nearest row is the next one
_MOST_ALIKE = 16  # slices of one row: each token at all experts that it goes to


@dataclass(frozen=True, slots=True)
class Order:
    """Pairs of places: `places` of a run hold the rows that are at `kept` in the whole batch."""

    whole: int  # places there are in the whole batch
    part: int
    kept: tuple[int, ...]
    places: tuple[int, ...]
    is_ambiguous: bool = False  # there are equal rows: another order would do as well

    def expanded(self, outer: int, inner: int) -> Order:
        """Of a dimension that holds these rows, outer x rows x inner."""
        spread = [(o, i) for o in range(outer) for i in range(inner)]

        def places(rows: Sequence[int], size: int) -> tuple[int, ...]:
            return tuple((o * size + row) * inner + i for row in rows for o, i in spread)

        return Order(
            self.whole * outer * inner, self.part * outer * inner,
            places(self.kept, self.whole), places(self.places, self.part), self.is_ambiguous,
        )  # fmt: skip


def by_indices(whole: torch.Tensor, part: torch.Tensor, base: Order) -> Order | None:
    """The order that two lists of indices make of places that correspond to each other by `base`.

    None: they are not lists of indices of these places, or not of the same rows.
    """
    if whole.numel() > _MOST_PLACES or part.numel() > _MOST_PLACES:
        return None
    a, b = whole.reshape(-1).tolist(), part.reshape(-1).tolist()
    if not all(0 <= i < base.whole for i in a) or not all(0 <= i < base.part for i in b):
        return None
    counterpart = dict(zip(base.places, base.kept, strict=True))
    real = set(base.kept)
    where: dict[int, list[int]] = defaultdict(list)
    for place, index in enumerate(a):
        if index in real:
            where[index].append(place)
    wanted = Counter(counterpart[index] for index in b if index in counterpart)
    if (b and not wanted) or wanted != {index: len(places) for index, places in where.items()}:
        return None
    pairs = []
    for place, index in enumerate(b):
        if index in counterpart:
            pairs.append((where[counterpart[index]].pop(0), place))
    return _order(a, b, pairs, is_ambiguous=any(count > 1 for count in wanted.values()))


def by_contents(whole: torch.Tensor, part: torch.Tensor, dim: int, spare: int, real: int) -> Order | None:
    """The order in which all slices of a part but `spare` are, bit by bit, slices of the whole.

    `real`: of how many rows the part is made. None: they are not, or too few differ to tell.
    """
    a, b = _slices(whole, dim), _slices(part, dim)
    if a is None or b is None or a.shape[1] != b.shape[1]:
        return None
    where: dict[int, list[int]] = defaultdict(list)
    for place, word in enumerate(_words(a)):
        where[word].append(place)
    several = {word for word, places in where.items() if len(places) > 1}
    found, telling = [], set()
    says_nothing = _says_nothing(b)
    for place, word in enumerate(_words(b)):
        if where.get(word):
            found.append((where[word].pop(0), place, word))
            telling |= set() if says_nothing[place] else {word}
    if len(found) < len(b) - spare or not telling or 2 * len(telling) < min(real, len(b)):
        return None
    pairs = [(kept, place) for kept, place, _ in found]
    is_ambiguous = any(word in several for _, _, word in found)
    return _order(a, b, pairs, is_ambiguous=is_ambiguous)


def by_nearness(whole: torch.Tensor, part: torch.Tensor, dim: int, spare: int) -> Order | None:
    """The same where all are close to slices of the whole, each to one, or to several of one row, clearly."""
    a, b = _slices(whole, dim), _slices(part, dim)
    if a is None or b is None or a.shape[1] != b.shape[1] or not a.is_floating_point():
        return None
    if max(len(a), len(b)) > _MOST_COMPARED or a.shape[1] < 3:  # single numbers have neighbours by chance
        return None
    x, y = a.to(torch.float64).nan_to_num(), b.to(torch.float64).nan_to_num()
    far = torch.cdist(y, x, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = far.topk(min(_MOST_ALIKE + 1, len(a)), largest=False)
    lengths = y.norm(dim=1).tolist()
    rounding = min(8 * torch.finfo(a.dtype).eps, _NEAR / _CLEARLY)
    pairs, taken, is_ambiguous = [], set[int](), False
    for place, (length, distances, kept) in enumerate(
        zip(lengths, nearest.values.tolist(), nearest.indices.tolist(), strict=True)
    ):
        alike = _alike(distances, length, rounding, len(a))
        free = [each for each in kept[:alike] if each not in taken]
        if free:
            pairs.append((free[0], place))
            taken.add(free[0])
            is_ambiguous |= alike > 1
        elif alike:
            return None  # more of a row than there are of it in the whole
    if not pairs or len(pairs) < len(b) - spare:
        return None
    return _order(a, b, pairs, is_ambiguous=is_ambiguous)


def _alike(distances: list[float], length: float, rounding: float, there_are: int) -> int:
    """How many of the nearest slices are one row, clearly nearer than all others; 0: it cannot be said."""
    if not length:
        return 0
    for alike in range(1, len(distances) + 1):
        last = max(distances[alike - 1], rounding * length)
        if last > length * (_NEAR if alike == 1 else min(32 * rounding, _NEAR)):
            return 0
        if alike == there_are or (alike < len(distances) and distances[alike] > _CLEARLY * last):
            return alike
    return 0


def _order(a: Sized, b: Sized, pairs: list[tuple[int, int]], *, is_ambiguous: bool) -> Order:
    kept, places = tuple(kept for kept, _ in pairs), tuple(place for _, place in pairs)
    return Order(len(a), len(b), kept, places, is_ambiguous)


def _slices(tensor: torch.Tensor, dim: int) -> torch.Tensor | None:
    """One line for each place along this dimension."""
    if not tensor.numel() or tensor.shape[dim] > _MOST_PLACES:
        return None
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.movedim(dim, 0).reshape(tensor.shape[dim], -1)


def _words(lines: torch.Tensor) -> list[int]:
    """A number for each line: the same for lines that are equal, as zeros of either sign and all NaN are."""
    if lines.dtype == torch.bool:
        lines = lines.to(torch.uint8)
    if lines.is_floating_point():
        lines = _wide(lines)
        lines = torch.where(lines != lines, torch.full_like(lines, torch.nan), lines + 0.0)
    bits = lines.contiguous().view(_BITS[lines.element_size()]).to(torch.int64)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randint(-(2**62), 2**62, (lines.shape[1],), generator=generator) | 1
    mixed = (bits ^ (bits >> 17)) * weights.to(lines.device)
    mixed = (mixed ^ (mixed >> 29)) * -7046029254386353131
    found: list[int] = mixed.sum(1).tolist()
    return found


def _wide(lines: torch.Tensor) -> torch.Tensor:
    """There is no arithmetic of 8 bits."""
    return lines.to(torch.float32) if lines.is_floating_point() and lines.element_size() == 1 else lines


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _says_nothing(lines: torch.Tensor) -> list[bool]:
    """Lines of one number, as of padding; a single number only if it is zero."""
    lines = _wide(lines)
    if lines.shape[1] == 1:
        found: list[bool] = (lines[:, 0] == 0).tolist()
    else:
        found = (lines == lines[:, :1]).all(1).tolist()
    return found
