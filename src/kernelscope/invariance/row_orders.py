"""Which place of one run holds the row that is at which place of the whole batch.

Rows keep their places until a program sorts or selects them by their contents. From then on the order is
found from the indices that the program computed, or from the rows themselves: by their bits, or the nearest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence, Sized
from dataclasses import dataclass, field, replace

import torch

from .flow import Code, Launched, Made
from .row_maps import Difference

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
    is_enough = len(pairs) >= len(b) - spare if len(b) > spare else 2 * len(pairs) >= len(b)
    if not pairs or not is_enough:
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


# -- what is known of memory that holds rows in another order --

_NOT_COMPARED = "its inputs could not be compared, and its rows are in a different order"
_EQUAL_ROWS = "its inputs have equal rows in a different order, so its rows cannot be paired for certain"
_OTHER_INDICES = "its indices were computed by different code when the rows changed"


@dataclass(frozen=True, slots=True)
class Mark:
    """Memory whose contents cannot be compared row by row, or that holds rows in another order."""

    maker: int  # in the run of the whole batch; -1: a kernel that it does not have
    name: str
    kind: str  # combined | mixed | moved | place | unfollowed
    made: Made | None = None
    found: Difference | None = None
    code: Code | None = None
    order: Order | None = None  # in which it has the rows, or that its indices make; None: not known

    @property
    def is_combined(self) -> bool:
        """It depends on other rows, whatever it is used for."""
        return self.kind == "combined"

    @property
    def is_index(self) -> bool:
        return self.kind == "place"

    @property
    def moves_rows(self) -> bool:
        return self.kind in ("moved", "place")

    @property
    def counts(self) -> bool:
        """An index or a number of rows: another one changes a row by more than rounding."""
        return self.made is not None and not is_real(self.made.tensor)


@dataclass(frozen=True, slots=True)
class Seen:
    """In which orders a kernel reads rows, and which orders the indices make that it reads."""

    orders: set[Order] = field(default_factory=set)
    indices: set[Order | None] = field(default_factory=set)
    own: Order | None = None

    @property
    def is_uncertain(self) -> bool:
        """Whether it is not known in which order it leaves rows."""
        return bool(self.indices) or len(self.orders) > 1

    @property
    def possible(self) -> set[Order]:
        """The orders in which it may leave rows."""
        if not self.indices:
            return self.orders if len(self.orders) == 1 else set()
        if self.own is not None and self.orders - {self.own}:  # rows in another order: it puts them back
            return {self.own}
        return self.orders | {order for order in self.indices if order is not None}


def is_real(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def ordering(given: dict[int, Mark], order: Order) -> dict[int, Mark]:
    """What decided the order in which a kernel leaves rows, of what it was given."""
    found = {key: mark for key, mark in given.items() if mark.moves_rows}
    if any(mark.is_index for mark in found.values()):
        return found
    lost = {
        key: mark for key, mark in given.items()
        if mark.kind == "unfollowed" and mark.counts and mark.maker >= 0
    }  # fmt: skip
    return found | {key: replace(mark, kind="place", order=order) for key, mark in lost.items()}


def why_unknown(given: dict[int, Mark], *, in_own_order: bool) -> str:
    """Why it is not known which rows a kernel was given; "": it is.

    `in_own_order`: it left them where they were given.
    """
    lost = [mark for mark in given.values() if mark.kind == "unfollowed"]
    if any(mark.counts for mark in lost):
        return _OTHER_INDICES
    if lost and not in_own_order:
        return _NOT_COMPARED
    return _EQUAL_ROWS if any(mark.order and mark.order.is_ambiguous for mark in given.values()) else ""


def movers(launch: Launched, given: dict[int, Mark], seen: Seen) -> list[Mark]:
    """Kernels that gave rows another place, where that explains rows that differ.

    A kernel that reads rows in one order, or indices with them, has combined them itself.
    """
    if any(mark.kind == "unfollowed" and mark.counts for mark in given.values()):
        return []
    unknown = [mark for mark in given.values() if mark.is_index and mark.order is None]
    if unknown:
        return unknown
    moving = [mark for mark in given.values() if mark.moves_rows]
    if launch.code.kind == "result":
        return [] if any(mark.kind == "unfollowed" for mark in given.values()) else moving
    return moving if len(seen.orders) > 1 and not seen.indices else []
