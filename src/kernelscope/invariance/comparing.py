"""Compares a result of one run with the same result of the whole batch: row by row, in whatever order."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import torch

from kernelscope.fingerprint.torch_bits import quiet

from .batches import Selection
from .flow import Made, Value
from .row_maps import NO_ROWS, Difference, RowMap, candidates, difference, factors, same
from .row_orders import Order, by_contents, by_indices, by_nearness

_MOST_ORDERS = 24
_EQUAL = Difference(0, 0, 0.0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Match:
    """Where a result has its rows, in which order, and how far they are from those of the whole batch."""

    rows: RowMap
    order: Order
    found: Difference


class Comparing:
    """Knows the orders that the rows of one run have been in so far."""

    def __init__(self, size: int, selection: Selection) -> None:
        self._size, self._selection = size, selection
        self.own = Order(size, selection.size, tuple(selection.kept), tuple(selection.places))
        self._orders: list[Order] = []  # others, the latest first

    # -- in the order in which the rows were given ---------------------------------------------------------

    def directly(self, value: Value, made: Made) -> Match | None:
        """None: the shapes do not fit, or it is not known where the rows are."""
        chosen, whole, part = self._selection, value.tensor, made.tensor
        if whole.dtype != part.dtype:
            return None
        maps = candidates(whole.shape, self._size, part.shape, chosen.size)
        if maps is None:
            if whole.dim() == part.dim():
                value.varying |= {d for d in range(part.dim()) if whole.shape[d] != part.shape[d]}
            return None
        is_other_size = self._size != chosen.size
        if chosen.tests == "repeat":
            maps = [NO_ROWS]
        elif value.maps:
            maps = [each for each in maps if each in value.maps] if is_other_size else value.maps
        if not maps:
            return None
        taken = [(each, *self._taken(each, self.own, whole, part)) for each in maps]
        equal = [each for each, a, b in taken if same(a, b)]
        if equal:
            if is_other_size:
                value.maps = equal
            return Match(equal[0], self.own, _EQUAL)
        if value.varying and not any(each.dims for each in maps):
            return None  # it has as many rows as in the whole batch by chance
        if not is_other_size and value.maps is None and chosen.tests != "repeat":
            return None  # it is not known where its rows are
        best = min(((each, difference(a, b)) for each, a, b in taken), key=lambda pair: pair[1].relative)
        if is_other_size:
            value.maps = maps if best[1].is_gross else [best[0]]
        return Match(best[0], self.own, best[1])

    # -- in any order --------------------------------------------------------------------------------------

    def compare(self, value: Value, made: Made, given: Collection[Order] = ()) -> Match | None:
        """`given`: the orders that the rows may be in, where it cannot be seen from them."""
        direct = self.directly(value, made)
        if direct is not None and not direct.found.differing:
            return direct
        whole, part = value.tensor, made.tensor
        if self._selection.tests == "repeat" or whole.dtype != part.dtype:
            return direct
        known = [(order, rows) for order in self._orders for rows in self._maps(order, value, part)]
        for order, rows in known:
            if same(*self._taken(rows, order, whole, part)):
                return Match(rows, order, _EQUAL)
        if not (part.is_floating_point() or part.is_complex()):
            return direct
        for dim, spare in self._moved_dims(value, part):
            seen = by_contents(whole, part, dim, spare, len(self.own.places))
            if seen is not None and seen != self.own:
                return self._match(RowMap(((dim, 1, 1),)), seen, value, part)
        if direct is not None and not direct.rows.dims:
            return direct
        found = [self._match(rows, order, value, part) for order, rows in known]
        found += [direct] if direct is not None else []
        best = min(found, key=lambda match: match.found.relative, default=None)
        if best is not None and not best.found.is_gross:
            return best
        for dim, spare in self._moved_dims(value, part):
            near = by_nearness(whole, part, dim, spare)
            if near is not None:
                return self._match(RowMap(((dim, 1, 1),)), near, value, part)
        for dim, spare in self._moved_dims(value, part):
            if direct is None and value.varying and part.shape[dim] <= spare:  # only padding was selected
                nothing = Order(whole.shape[dim], part.shape[dim], (), ())
                return Match(RowMap(((dim, 1, 1),)), nothing, _EQUAL)
        inherited = [match for match in found if match.order in given]
        return min(inherited, key=lambda match: match.found.relative, default=direct)

    def indices(self, value: Value, made: Made) -> Order | None:
        """The order that indices of rows make; it is known from now on."""
        whole, part = value.tensor, made.tensor
        is_list = all(sum(n != 1 for n in t.shape) <= 1 and t.dim() for t in (whole, part))
        if whole.dtype not in (torch.int64, torch.int32) or part.dtype != whole.dtype or not is_list:
            return None
        for base in self._bases(whole.numel()):
            order = by_indices(whole, part, base)
            if order is not None:
                self.know(order)
                return order
        return None

    def know(self, order: Order) -> None:
        if order != self.own and order not in self._orders:
            self._orders.insert(0, order)
            del self._orders[_MOST_ORDERS:]

    def keeps_places(self, order: Order) -> bool:
        """Whether it has the rows where they were given, perhaps with padding behind them."""
        own = self.own
        return {*zip(own.kept, own.places, strict=True)} <= {*zip(order.kept, order.places, strict=True)}

    def put_right(self, value: Value, made: Made, match: Match) -> None:
        """It gets the values of the whole batch."""
        rows, order = match.rows, match.order
        with torch.no_grad(), quiet():
            values = rows.take(value.tensor, order.whole, order.kept)
            right = rows.put(made.tensor, order.part, order.places, values)
            made.memory.detach().copy_(right.reshape(made.memory.shape))

    # -- where rows can be ---------------------------------------------------------------------------------

    def _bases(self, places: int) -> Iterator[Order]:
        """What indices may be indices of: rows, several places of each, or places that rows were moved to."""
        yield self.own
        times, rest = divmod(places, self._size)
        if not rest and times > 1:
            for outer, inner in factors(times):
                yield self.own.expanded(outer, inner)
        yield from list(self._orders)

    def _maps(self, order: Order, value: Value, part: torch.Tensor) -> list[RowMap]:
        """Where a result may hold rows in this order."""
        shape, dims = value.tensor.shape, _row_dims(value)
        maps = candidates(shape, order.whole, part.shape, order.part) or []
        if order.whole == order.part and len(dims) > 1:
            each = [
                [(d, *f) for f in factors(shape[d] // order.whole)]
                for d in dims
                if shape[d] % order.whole == 0
            ]
            maps = [RowMap(tuple(chosen)) for chosen in itertools.product(*each)]
        return [each for each in maps if each.dims and (not dims or {d for d, _, _ in each.dims} == dims)]

    def _moved_dims(self, value: Value, part: torch.Tensor) -> list[tuple[int, int]]:
        """Where there may be rows in another order, and how many places there may be of padding."""
        whole, dims = value.tensor, _row_dims(value)
        if whole.dim() != part.dim():
            return []
        if len(dims) != 1:
            return []
        dim = dims.pop()
        padding = self._selection.size - len(self.own.places)
        times = -(-part.shape[dim] // self._selection.size)
        return [(dim, times * padding)]

    def _match(self, rows: RowMap, order: Order, value: Value, part: torch.Tensor) -> Match:
        return Match(rows, order, difference(*self._taken(rows, order, value.tensor, part)))

    @staticmethod
    def _taken(
        rows: RowMap, order: Order, whole: torch.Tensor, part: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return rows.take(whole, order.whole, order.kept), rows.take(part, order.part, order.places)


def _row_dims(value: Value) -> set[int]:
    """Which dimensions follow the number of rows, or their contents, as far as other runs showed."""
    return {dim for rows in value.maps or [] for dim, _, _ in rows.dims} or set(value.varying)
