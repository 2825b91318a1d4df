"""Loops over blocks of numbers, for functions that take a block at once, as C++."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from kernelscope.gcu.choreo.cpp.shapes import Dim
from kernelscope.gcu.choreo.cpp.transfers import Transfers
from kernelscope.gcu.choreo.cpp.values import Bounded, Data, Future, LoopHead, Scalar, cpp_type
from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.walk import root

from .blocks import Part


class BlockLoops(Transfers):
    """The part of a function's body that calls functions of blocks."""

    in_blocks: bool = False  # whether that is wanted
    one_loop: Any

    def of_everything(self, divided: list[Part], header: LoopHead) -> bool:
        """One call and no loop, where numbers that lie side by side become others that do."""
        stored, call = divided[-1].statements, divided[0].call
        if len(divided) != 2 or divided[0].statements or call is None or len(stored) != 1:
            return False
        put = stored[0]
        if not isinstance(put, tree.Store) or put.op != "=" or put.value != tree.Name(call.name):
            return False
        if not isinstance(call.argument, tree.At) or {
            self.type_of(call.argument),
            self.type_of(put.target),
        } != {"f32"}:
            return False
        texts = [self.expressions.text(each) for each in (call.argument, put.target)]
        plain = [re.fullmatch(rf"(\w+)\[{header.variable}\]", text) for text in texts]
        if not all(plain):
            return False
        source, target = (found[1] for found in plain if found)
        self.emit(f"choreo::{call.function}_block({source}, {target}, {header.high});")
        return True

    def over_blocks(self, divided: list[Part], header: LoopHead) -> None:
        """A loop over blocks; in it, a loop for each part of the body, and a call for each block."""
        first, end = self._own("first"), self._own("end")
        at = f"[{header.variable} - {first}]"
        self.emit(f"for (int64_t {first} = 0; {first} < {header.high}; {first} += choreo::BLOCK) {{")
        self._depth += 1
        self.emit(f"const int64_t {end} = choreo::min_({first} + choreo::BLOCK, int64_t({header.high}));")
        outer, self.expressions.scope = self.scope, self.scope.inner()
        for part in divided:
            arrays = {kept.name: (self._own(kept.name), kept.type) for kept in part.kept}
            if part.call is not None:
                arrays[part.call.name] = (self._own(part.call.function), "f32")
            for array, kind in arrays.values():
                self.emit(f"alignas(64) {cpp_type(kind)} {array}[choreo::BLOCK];")
            within = LoopHead(header.variable, first, end, "1")
            self.one_loop(part.statements, within, True, partial(self._keep, part, arrays, at))
            if part.call is not None:
                array, _ = arrays[part.call.name]
                self.emit(f"choreo::{part.call.function}_block({array}, {array}, {end} - {first});")
            for name, (array, kind) in arrays.items():
                self.scope.names[name] = Scalar(f"{array}{at}", kind)
        self.expressions.scope = outer
        self._depth -= 1
        self.emit("}")

    def _own(self, stem: str) -> str:
        """A name that no name of a program becomes."""
        return str(self.fresh(f"choreo_{stem}"))

    def _keep(self, part: Part, arrays: dict[str, tuple[str, str]], at: str) -> None:
        """What the following parts need of one number, put into arrays."""
        for kept in part.kept:
            self.emit(f"{arrays[kept.name][0]}{at} = {self.expressions.text(tree.Name(kept.name))};")
        if part.call is not None:
            argument = self.expressions.text(part.call.argument)
            self.emit(f"{arrays[part.call.name][0]}{at} = static_cast<float>({argument});")

    def type_of(self, e: tree.Expr) -> str:
        known = self.scope.find(root(e))
        if isinstance(known, Future):
            known = known.data
        if isinstance(e, tree.At):
            return known.element if isinstance(known, Data) else ""
        return known.type if isinstance(known, Scalar) else "int" if isinstance(known, Bounded | Dim) else ""
