"""Bounded variables that a `with` or a `foreach` declares, and those that always have the same value."""

from __future__ import annotations

from typing import Any

from kernelscope.gcu.choreo.cpp.shapes import Dim, dim, same, shown
from kernelscope.gcu.choreo.cpp.values import Bounded, Several
from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError

from .block_loops import BlockLoops


class Binds(BlockLoops):
    """The part of a function's body that declares bounded variables."""

    chunking: list[str]
    _part_names: dict[str, tuple[str, ...]]  # of a variable that stands for several
    _tied: dict[str, set[str]]  # `where i <-> j`: variables that have the same value
    block: Any
    nested: Any

    def bind(self, bind: tree.Bind) -> list[tuple[str, Dim]]:
        dims = self.expressions.dims_of(bind.domain)
        self.chunking.append(f"{', '.join(bind.names)} in {shown(dims)}")
        if len(bind.names) == len(dims):
            return list(zip(bind.names, dims, strict=True))
        if len(bind.names) == 1 and not bind.braced:
            return [(f"{bind.names[0]}__{i}", extent) for i, extent in enumerate(dims)]
        raise ChoreoError(f"{len(bind.names)} names for a span of rank {len(dims)}", bind.span)

    def name_whole(self, bind: tree.Bind, parts: list[tuple[str, Dim]]) -> None:
        """A single name for several dimensions, or the name before `=`."""
        whole = bind.whole or (bind.names[0] if len(bind.names) == 1 and len(parts) != 1 else "")
        if whole:
            self._part_names[whole] = tuple(name for name, _ in parts)
            items = tuple(self.scope.find(name) for name, _ in parts)
            self.scope.declare(whole, Several(items), bind.span)

    def with_variables(self, s: tree.With) -> None:
        with self.nested(""):
            for bind in s.binds:
                parts = self.bind(bind)
                for name, extent in parts:
                    self.scope.declare(name, Bounded(dim(0), extent, 0, 0), bind.span)
                self.name_whole(bind, parts)
            outer, self._tied = self._tied, dict(self._tied)
            for first, second in s.tied:
                self._tie(first, second, s)
            self.block(s.body)
            self._tied = outer

    def _tie(self, first: str, second: str, s: tree.With) -> None:
        both = [self.scope.names.get(name) for name in (first, second)]
        bounds = [b.items if isinstance(b, Several) else (b,) for b in both]
        if not all(isinstance(x, Bounded) for b in bounds for x in b) or len(bounds[0]) != len(bounds[1]):
            message = f"{first} <-> {second} needs two bounded variables of this `with`, of one rank"
            raise ChoreoError(message, s.span)
        for a, b in zip(*bounds, strict=True):
            assert isinstance(a, Bounded)
            assert isinstance(b, Bounded)
            equal = same(a.bound, b.bound)
            message = f"{first} <-> {second}: the bounds {a.bound} and {b.bound} differ"
            if equal is False:
                raise ChoreoError(message, s.span)
            if equal is None:
                self.hold(f"{a.bound.text} == {b.bound.text}", message, s.span)
        self._tied[first] = self._tied.get(first, set()) | {second}
        self._tied[second] = self._tied.get(second, set()) | {first}

    def follow(self, name: str, value: Several | Bounded) -> None:
        """Give the variables that are tied to one its value."""
        seen, left = {name}, set(self._tied.get(name, ()))
        while left:
            other = left.pop()
            seen.add(other)
            left |= self._tied.get(other, set()) - seen
            self.scope.names[other] = value
            if isinstance(value, Several):
                names = self._part_names.get(other, ())
                self.scope.names.update(zip(names, value.items, strict=True))  # type: ignore[arg-type]
