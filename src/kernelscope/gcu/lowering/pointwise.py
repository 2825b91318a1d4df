"""Lowering of what is computed element by element."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import partialmethod
from typing import Any

import torch
import torch.fx
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes
from torch.utils._python_dispatch import _disable_current_modes

from .dag import ELEMENT, Access
from .fx_tensors import Refused, Strided
from .operator_texts import BOOL_TO_LONG, DEFAULT, POINTWISE, TO_FLOAT, Pointwise, kind_of, number
from .sizes import Size, literal, size_of, supported, symbols_in

_WIDE = {"f16": "f32", "bf16": "f32"}  # what is computed in a wider type inside a kernel
_ROUNDED = re.compile(r"__cast_f32\(__cast_b?f16\((__cast_f32\()?\$0\)?\)\)")


def compute_type(dtype: torch.dtype) -> str:
    element = ELEMENT[dtype]
    return _WIDE.get(element, element)


def cast(text: str, given: torch.dtype, wanted: torch.dtype) -> str:
    """A value of one dtype as another, as torch converts it."""
    if wanted is torch.bool and given is not torch.bool:
        return f"__cast_bool({text})"
    have, want = ELEMENT[given], compute_type(wanted)
    return text if have == want else f"__cast_{want}({text})"


def converted(text: str, given: torch.dtype, wanted: torch.dtype) -> str:
    """An operand as eager gets it: what was no half before is rounded to one before anything is computed."""
    text = cast(text, given, wanted)
    return text if given in (wanted, torch.bool) else rounded(text, wanted)


def rounded(text: str, dtype: torch.dtype) -> str:
    """Half precision is rounded after every operator, as eager does, though it is computed in single."""
    element = ELEMENT[dtype]
    if element not in _WIDE or _ROUNDED.fullmatch(text):
        return text
    return f"__cast_f32(__cast_{element}({text}))"


def _effective(function: str, limit: Any, dtype: torch.dtype) -> Any:
    """A limit that the dtype does not hold, as eager takes it: it wraps, or in newer torch saturates."""
    if dtype.is_floating_point or dtype is torch.bool or not isinstance(limit, int):
        return limit
    info = torch.iinfo(dtype)
    if info.min <= limit <= info.max:
        return limit
    try:
        with _disable_current_modes():
            if function == "__max":
                return torch.tensor(info.min, dtype=dtype).clamp(min=limit).item()
            return torch.tensor(info.max, dtype=dtype).clamp(max=limit).item()
    except RuntimeError as error:
        raise Refused("eager does not accept this limit") from error


class PointwiseLowering:
    """Element by element, with broadcasting and torch's type promotion."""

    out: Any
    hint: Any
    view_of: Any
    add: Any
    geometry: Any

    def pointwise(self, node: torch.fx.Node, name: str) -> None:
        rule = POINTWISE.get(name)
        if rule is None:
            raise Refused("no lowering")
        operands = [a for a in node.args if not isinstance(a, torch.dtype)]
        if node.kwargs or len(operands) != (2 if "$1" in rule.body else 1):
            raise Refused("no lowering for these arguments")
        self.elementwise(node, name, rule, operands)

    def elementwise(self, node: torch.fx.Node, name: str, rule: Pointwise, operands: Sequence[Any]) -> None:
        """One node that computes `rule.body` of its operands."""
        compute = self._promoted(rule.promotion, operands)
        if kind_of(compute) not in rule.kinds:
            raise Refused(f"no lowering for {compute}")
        body = rule.boolean if compute is torch.bool and rule.boolean else rule.body
        # A number that a product is taken with is not rounded to half precision, in eager neither.
        self.emit(node, name, body, [(o, compute) for o in operands], (0, 1) if name == "mul" else ())

    def _promoted(self, promotion: str, operands: Sequence[Any]) -> torch.dtype:
        """The dtype that eager converts operands to."""
        values = [o.meta["val"] if isinstance(o, torch.fx.Node) else o for o in operands]
        # Not what it computes in: operands become halves first, and are widened then.
        _, common = elementwise_dtypes(*values, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.NO_OPMATH)
        if promotion == TO_FLOAT and kind_of(common) != "f":
            common = torch.get_default_dtype()
        if promotion == BOOL_TO_LONG and common is torch.bool:
            common = torch.int64
        if common not in ELEMENT:
            raise Refused(f"no element type for {common}")
        return common

    def emit(
        self,
        node: torch.fx.Node,
        name: str,
        body: str,
        operands: Sequence[tuple[Any, torch.dtype]],
        exact: Sequence[int] = (),
    ) -> None:
        """Each operand is a tensor, a number or a symbolic size, with the dtype it is computed in.

        Numbers at the places `exact` are not rounded to half precision.
        """
        shape, stride, dtype = self.geometry(node)
        inputs: list[Access] = []
        symbols: set[str] = set()
        for place, (operand, wanted) in enumerate(operands):
            if isinstance(operand, torch.fx.Node) and isinstance(operand.meta.get("val"), torch.Tensor):
                view: Strided = self.view_of(operand)
                keep = place in exact and not view.shape
                text = (cast if keep else converted)(f"${len(inputs)}", view.dtype, wanted)
                inputs.append(view.over(shape))
            else:
                text, used = self.scalar(operand, wanted, exact=place in exact)
                symbols |= used
            body = body.replace(f"${place}", f"@{place}@").replace(f"@{place}@", text.replace("$", "\x00"))
        body = body.replace("\x00", "$")
        if dtype is torch.bool and not _is_truth(body, operands):
            body = f"__cast_bool({body})"
        body = rounded(body, dtype)
        self.out.views[node.name] = self.add(
            node.name,
            name,
            "pointwise",
            shape,
            inputs,
            (shape, stride, dtype),
            stride,
            body=body,
            compute=compute_type(dtype),
            symbols=frozenset(symbols),
        )

    def scalar(self, value: Any, wanted: torch.dtype, exact: bool = False) -> tuple[str, set[str]]:
        if isinstance(value, torch.fx.Node):
            value = value.meta.get("val")
        if isinstance(value, torch.SymInt):
            size: Size = size_of(value)
            if not supported(size):
                raise Refused("its operand is not a polynomial of the inputs' shapes")
            if not isinstance(size, int):
                text = cast(literal(size), torch.int64, wanted)
                return text if exact else rounded(text, wanted), symbols_in(size)
            value = size
        if isinstance(value, bool | int | float):
            if wanted is torch.bool:
                value = bool(value)
            if not wanted.is_floating_point and isinstance(value, float) and not math.isfinite(value):
                raise Refused(f"converting {value} to an integer must raise an error")
            return number(value, compute_type(wanted) if exact else ELEMENT[wanted]), set()
        raise Refused(f"its operand {value!r} is not a number")

    # -- operators with arguments of their own ---------------------------------------------------------

    def op_add(self, node: torch.fx.Node, sign: str = "+") -> None:
        first, second = node.args[:2]
        alpha = node.kwargs.get("alpha", 1)
        compute = self._promoted(DEFAULT, (first, second))
        if compute is torch.bool:
            if sign == "-" or alpha != 1:
                raise Refused("no lowering for booleans")
            self.emit(node, "add", "($0 | $1)", [(first, compute), (second, compute)])
            return
        name = "add" if sign == "+" else "sub"
        if alpha == 1:
            self.emit(node, name, f"($0 {sign} $1)", [(first, compute), (second, compute)])
            return
        body = f"($0 {sign} $1 * $2)"
        self.emit(node, name, body, [(first, compute), (second, compute), (alpha, compute)], (2,))

    op_sub = partialmethod(op_add, sign="-")

    def op_div(self, node: torch.fx.Node) -> None:
        mode = node.kwargs.get("rounding_mode")
        operands = node.args[:2]
        promotion = TO_FLOAT if mode is None else DEFAULT
        compute = self._promoted(promotion, operands)
        if not compute.is_floating_point:
            raise Refused("integer division must raise an error on zero")
        bodies = {None: "($0 / $1)", "floor": "__floordiv($0, $1)", "trunc": "__trunc($0 / $1)"}
        self.emit(node, "div", bodies[mode], [(o, compute) for o in operands], (1,))  # type: ignore[index]

    def op_where(self, node: torch.fx.Node) -> None:
        condition, then, other = node.args
        compute = self._promoted(DEFAULT, (then, other))
        self.emit(
            node, "where", "($0 != 0 ? $1 : $2)", [(condition, torch.bool), (then, compute), (other, compute)]
        )

    def op_clamp(self, node: torch.fx.Node) -> None:
        given = [*node.args, None, None][:3]
        given = [given[0], node.kwargs.get("min", given[1]), node.kwargs.get("max", given[2])]
        compute = self._promoted(DEFAULT, [g for g in given if g is not None])
        body, operands = "$0", [given[0]]
        for function, limit in (("__max", given[1]), ("__min", given[2])):
            if limit is not None:
                limit = _effective(function, limit, compute)
                body = f"{function}({body}, ${len(operands)})"
                operands.append(limit)
        self.emit(node, "clamp", body, [(o, compute) for o in operands])

    def op_gelu(self, node: torch.fx.Node) -> None:
        compute = self._promoted(TO_FLOAT, node.args[:1])
        self.emit(node, "gelu", "__gelu($0)", [(node.args[0], compute)])

    def op_pow(self, node: torch.fx.Node) -> None:
        base, exponent = node.args
        compute = self._promoted(BOOL_TO_LONG, (base, exponent))
        short = {0: "1", 1: "$0", 2: "($0 * $0)", 3: "($0 * $0 * $0)"}
        if not isinstance(exponent, torch.fx.Node) and exponent in short:
            self.emit(node, "pow", short[exponent], [(base, compute)])  # type: ignore[index]
            return
        if not compute.is_floating_point:
            raise Refused("a power of integers")
        special = {0.5: "__sqrt($0)", -0.5: "__rsqrt($0)", -1: "(1 / $0)", -2: "(1 / ($0 * $0))"}
        is_half = node.meta["val"].dtype is torch.float16  # there eager calls pow()
        if not isinstance(exponent, torch.fx.Node) and exponent in special and not is_half:
            self.emit(node, "pow", special[exponent], [(base, compute)])  # type: ignore[index]
            return
        self.emit(node, "pow", "__pow($0, $1)", [(base, compute), (exponent, compute)])

    def op_threshold_backward(self, node: torch.fx.Node) -> None:
        gradient, given, limit = node.args
        compute = self._promoted(DEFAULT, (gradient, given))
        body = "($1 <= $2 ? 0 : $0)"
        self.emit(node, "threshold_backward", body, [(o, compute) for o in (gradient, given, limit)])

    def op_clone(self, node: torch.fx.Node) -> None:
        dtype = node.args[0].meta["val"].dtype  # type: ignore[union-attr]
        self.emit(node, "clone", "$0", [(node.args[0], dtype)])

    op_lift_fresh_copy = op_clone
    op_contiguous = op_clone

    def _filled(self, node: torch.fx.Node, name: str, place: int) -> None:
        """Every element is what one argument says."""
        self.emit(node, name, "$0", [(node.args[place], node.meta["val"].dtype)])

    op_copy = partialmethod(_filled, name="copy", place=1)
    op_fill = partialmethod(_filled, name="fill", place=1)
    op_full = op_full_like = partialmethod(_filled, name="full", place=1)
    op_scalar_tensor = partialmethod(_filled, name="full", place=0)
    op__to_copy = op_convert_element_type = partialmethod(_filled, name="to", place=0)

    def op_zeros(self, node: torch.fx.Node, value: int = 0) -> None:
        self.emit(node, "full", "$0", [(value, node.meta["val"].dtype)])

    op_zeros_like = op_new_zeros = op_empty = op_new_empty = op_empty_like = op_empty_strided = op_zeros
    op_new_empty_strided = op_zeros
    op_ones = op_ones_like = op_new_ones = partialmethod(op_zeros, value=1)


def _is_truth(body: str, operands: Sequence[tuple[Any, torch.dtype]]) -> bool:
    """Whether a body gives 0 or 1 as it stands."""
    compares = any(f" {sign} " in body for sign in ("==", "!=", "<", "<=", ">", ">=", "&&", "||"))
    return all(wanted is torch.bool for _, wanted in operands) or (compares and "?" not in body)
