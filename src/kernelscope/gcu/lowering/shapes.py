"""Lowering of reductions, matrix products, and what only moves elements."""

from __future__ import annotations

from functools import partialmethod
from typing import Any

import torch
import torch.fx

from .dag import INDEX, Access
from .fx_tensors import Refused, Strided
from .operator_texts import REDUCTIONS
from .operator_texts import number as number_literal
from .pointwise import cast, compute_type, rounded
from .sizes import Size, is_one, is_zero, literal, product, symbols_in, times


class ShapeLowering:
    out: Any
    hint: Any
    matmul_limit: int
    view_of: Any
    add: Any
    geometry: Any
    emit: Any

    # -- reductions ------------------------------------------------------------------------------------

    def op_sum(self, node: torch.fx.Node, name: str = "sum") -> None:
        args = [*node.args, None, None]
        self.reduce(node, name, args[0], args[1], bool(args[2] or node.kwargs.get("keepdim", False)))

    op_mean = partialmethod(op_sum, name="mean")
    op_amax = partialmethod(op_sum, name="amax")
    op_amin = partialmethod(op_sum, name="amin")
    op_any = partialmethod(op_sum, name="any")
    op_all = partialmethod(op_sum, name="all")
    op_prod = partialmethod(op_sum, name="prod")

    def op_var(self, node: torch.fx.Node) -> None:
        """The mean of squared distances from the mean, in two passes."""
        dims: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        correction = node.args[2] if len(node.args) > 2 else node.kwargs.get("correction", 1)
        correction = 1 if correction is None else correction
        given: Strided = self.view_of(node.args[0])
        rank = len(given.shape)
        listed: list[Any] = list(dims) if dims else list(range(rank))
        reduced = sorted({d % rank for d in listed}) if rank else []
        shape, stride, dtype = self.geometry(node)
        keep = len(shape) == rank and rank > 0
        counted = product(given.shape[d] for d in reduced)
        if not isinstance(correction, int | float) or not dtype.is_floating_point or not reduced:
            raise Refused("no lowering for these arguments")
        if any(is_zero(s) for s in given.shape) or self.hint(counted) < 2:
            raise Refused("a variance of fewer than two numbers")
        compute = compute_type(dtype)
        wide = {"f32": torch.float32, "f64": torch.float64}[compute]
        stores = self._stores(given.shape, reduced, stride, keep)
        row = (shape, stride, wide)
        common: dict[str, Any] = {"compute": compute, "reduced": tuple(reduced), "how": "sum"}
        number_of = _counted(counted, compute)
        less = number_literal(correction, compute)
        symbols = frozenset(symbols_in(counted))
        name, source = node.name, given.over(given.shape)
        text = cast("$0", given.dtype, dtype)
        total = self.add(
            f"{name}_sum", "sum", "reduce", given.shape, [source], row, stores, body=text, **common
        )
        mean = self.add(
            f"{name}_mean", "mean", "pointwise", shape, [total.over(shape)], row, stride,
            body=f"($0 / {number_of})", compute=compute, symbols=symbols,
        )  # fmt: skip
        again = Access(mean.buffer, stores)
        squares = self.add(
            f"{name}_squares", "sum", "reduce", given.shape, [source, again], row, stores,
            body=f"(({text} - $1) * ({text} - $1))", **common,
        )  # fmt: skip
        self.out.views[name] = self.add(
            name, "var", "pointwise", shape, [squares.over(shape)], (shape, stride, dtype), stride,
            body=rounded(f"($0 / __max(__cast_{compute}(0), {number_of} - {less}))", dtype),
            compute=compute, symbols=symbols,
        )  # fmt: skip

    def _of_all(self, node: torch.fx.Node, name: str) -> None:
        if len(node.args) != 1 or not isinstance(node.meta["val"], torch.Tensor):
            raise Refused("these arguments are not lowered")
        self.op_sum(node, name)

    op_max = partialmethod(_of_all, name="amax")
    op_min = partialmethod(_of_all, name="amin")

    def reduce(self, node: torch.fx.Node, name: str, operand: Any, dims: Any, keep: bool) -> None:
        given: Strided = self.view_of(operand)
        rank = len(given.shape)
        listed = [dims] if isinstance(dims, int) else list(dims) if dims else list(range(rank))
        reduced = sorted({d % rank for d in listed}) if rank else []
        out_shape, out_stride, dtype = self.geometry(node)
        counted = product(given.shape[d] for d in reduced)
        how = REDUCTIONS[name]
        text = cast("$0", given.dtype, torch.bool if name in ("any", "all") else dtype)
        if all(is_one(given.shape[d]) for d in reduced):
            self._copied(node, name, given, keep, reduced, text)
            return
        if any(is_zero(s) for s in given.shape):
            raise Refused("a reduction over no elements")
        stores = self._stores(given.shape, reduced, out_stride, keep)
        compute = compute_type(dtype)
        made = (out_shape, out_stride, dtype)
        if name != "mean":
            view = self.add(
                node.name, name, "reduce", given.shape, [given.over(given.shape)], made, stores,
                body=text, compute=compute, reduced=tuple(reduced), how=how,
            )  # fmt: skip
            self.out.views[node.name] = view
            return
        if not dtype.is_floating_point:
            raise Refused("the mean of integers")
        # The sum stays in the type it is computed in; only the mean is rounded.
        wide = {"f32": torch.float32, "f64": torch.float64}[compute]
        total = self.add(
            f"{node.name}_sum", "sum", "reduce", given.shape, [given.over(given.shape)],
            (out_shape, out_stride, wide), stores,
            body=text, compute=compute, reduced=tuple(reduced), how=how,
        )  # fmt: skip
        symbols = frozenset(symbols_in(counted))
        self.out.views[node.name] = self.add(
            node.name, "mean", "pointwise", out_shape, [total.over(out_shape)], made, out_stride,
            body=rounded(f"($0 / {_counted(counted, compute)})", dtype), compute=compute, symbols=symbols,
        )  # fmt: skip

    def _stores(
        self, shape: tuple[Size, ...], reduced: list[int], stride: tuple[Size, ...], keep: bool
    ) -> tuple[Size, ...]:
        """Where a result belongs, over the dimensions that were reduced into it."""
        if keep:
            return tuple(0 if d in reduced else s for d, s in enumerate(stride))
        left = iter(stride)
        return tuple(0 if d in reduced else next(left) for d in range(len(shape)))

    def _copied(
        self, node: torch.fx.Node, name: str, given: Strided, keep: bool, reduced: list[int], text: str
    ) -> None:
        """A reduction over dimensions of size 1."""
        shape, stride, dtype = self.geometry(node)
        source = given.over(given.shape)
        strides = source.strides
        if not keep:
            strides = tuple(s for d, s in enumerate(strides) if d not in reduced)
        self.out.views[node.name] = self.add(
            node.name, name, "pointwise", shape, [Access(source.buffer, strides, source.offset)],
            (shape, stride, dtype), stride, body=rounded(text, dtype), compute=compute_type(dtype),
        )  # fmt: skip

    # -- matrix products -------------------------------------------------------------------------------

    def op_mm(self, node: torch.fx.Node, name: str = "mm") -> None:
        self._matmul(node, node.args[0], node.args[1], None, name)

    op_bmm = partialmethod(op_mm, name="bmm")

    def op_addmm(self, node: torch.fx.Node) -> None:
        if node.kwargs.get("alpha", 1) != 1 or node.kwargs.get("beta", 1) != 1:
            raise Refused("addmm with factors")
        self._matmul(node, node.args[1], node.args[2], node.args[0], "addmm")

    def _matmul(self, node: torch.fx.Node, left: Any, right: Any, bias: Any, name: str) -> None:
        a, b = self.view_of(left), self.view_of(right)
        shape, stride, dtype = self.geometry(node)
        work = self.hint(times(product(a.shape), b.shape[-1]))
        if work > self.matmul_limit:
            raise Refused(f"a large matmul ({work} products); ATen is faster")
        if work == 0 or self.hint(product(shape)) == 0:
            raise Refused("a matmul without elements")
        if a.dtype != b.dtype or not dtype.is_floating_point:
            raise Refused(f"no lowering for {dtype}")
        # Over [batch…, m, n, k], with the sum over k.
        domain = (*shape, a.shape[-1])
        batch = a.stride[:-2]
        first = Access(a.buffer, (*batch, a.stride[-2], 0, a.stride[-1]), a.offset)
        second = Access(b.buffer, (*b.stride[:-2], 0, b.stride[-1], b.stride[-2]), b.offset)
        inputs = [first, second]
        if bias is not None:
            extra = self.view_of(bias).over(shape)
            inputs.append(Access(extra.buffer, (*extra.strides, 0), extra.offset))
        self.out.views[node.name] = self.add(
            node.name, name, "matmul", domain, inputs, (shape, stride, dtype), (*stride, 0),
            body="$0 * $1", compute=compute_type(dtype),
        )  # fmt: skip

    # -- moving elements -------------------------------------------------------------------------------

    def op_cat(self, node: torch.fx.Node) -> None:
        parts = [self.view_of(p) for p in node.args[0]]  # type: ignore[union-attr]
        shape, stride, dtype = self.geometry(node)
        given: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        axis = int(given) % len(shape)
        parts = [p for p in parts if not (len(p.shape) == 1 and p.shape[0] == 0 and len(shape) != 1)]
        if any(p.dtype != dtype for p in parts):
            raise Refused("cat of several dtypes")
        start: Size = 0
        pieces = []
        for p in parts:
            pieces.append((p.shape, times(start, stride[axis]) if start else 0))
            start = start + p.shape[axis]
        self.out.views[node.name] = self.add(
            node.name, "cat", "cat", shape, [p.over(p.shape) for p in parts], (shape, stride, dtype), stride,
            body="$0", compute=compute_type(dtype), metadata={"pieces": pieces, "axis": axis},
        )  # fmt: skip

    def op_arange(self, node: torch.fx.Node) -> None:
        args = list(node.args)
        if any(not isinstance(a, int | float) for a in args):
            raise Refused("a range of symbolic size")
        start, step = (0, 1) if len(args) == 1 else (args[0], args[2] if len(args) > 2 else 1)
        if not (isinstance(start, int) and isinstance(step, int)):
            raise Refused("a range of fractions")
        self._range(node, start, step)

    def op_iota(self, node: torch.fx.Node) -> None:
        start, step = node.kwargs.get("start", 0), node.kwargs.get("step", 1)
        if not isinstance(start, int) or not isinstance(step, int):
            raise Refused("a range of symbolic size")
        self._range(node, start, step)

    def _range(self, node: torch.fx.Node, start: Any, step: Any) -> None:
        shape, stride, dtype = self.geometry(node)
        element = compute_type(dtype)
        self.out.views[node.name] = self.add(
            node.name, "arange", "pointwise", shape, [Access(INDEX, (1,))], (shape, stride, dtype), stride,
            body=f"__cast_{element}({start} + $0 * {step})", compute=element,
        )  # fmt: skip


def _counted(size: Size, compute: str) -> str:
    if isinstance(size, int):
        return number_literal(size, compute)
    return f"__cast_{compute}({literal(size)})"
