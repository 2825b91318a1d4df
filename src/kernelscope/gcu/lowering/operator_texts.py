"""What each operator computes, as Choreo text: `$0`, `$1` are its operands in the type it computes in."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import torch

DEFAULT, TO_FLOAT, TO_BOOL, BOOL_TO_LONG = "default", "integers to float", "to bool", "bool to integer"


@dataclass(frozen=True)
class Pointwise:
    body: str
    promotion: str = DEFAULT
    boolean: str = ""  # the body when the operands are booleans
    kinds: str = "bif"  # which operands it lowers: boolean, integer, floating


def _float(names: str) -> dict[str, Pointwise]:
    return {name: Pointwise(f"__{name}($0)", TO_FLOAT) for name in names.split()}


def _compare(**signs: str) -> dict[str, Pointwise]:
    return {name: Pointwise(f"($0 {sign} $1)", TO_BOOL) for name, sign in signs.items()}


POINTWISE: dict[str, Pointwise] = {
    **_float(
        "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh"
        " atanh erf erfc sigmoid lgamma"
    ),
    **_compare(eq="==", ne="!=", lt="<", le="<=", gt=">", ge=">="),
    "reciprocal": Pointwise("(1 / $0)", TO_FLOAT),
    "silu": Pointwise("($0 / (1 + __exp(__neg($0))))", kinds="f"),
    "abs": Pointwise("__abs($0)", kinds="if"),
    "neg": Pointwise("__neg($0)", kinds="if"),
    "sign": Pointwise("__sign($0)", kinds="f"),
    "sgn": Pointwise("__sign($0)", kinds="f"),
    "floor": Pointwise("__floor($0)", kinds="f"),
    "ceil": Pointwise("__ceil($0)", kinds="f"),
    "round": Pointwise("__round($0)", kinds="f"),
    "trunc": Pointwise("__trunc($0)", kinds="f"),
    "frac": Pointwise("($0 - __trunc($0))", kinds="f"),
    "square": Pointwise("($0 * $0)", kinds="if"),
    "relu": Pointwise("__max($0, 0)", kinds="if"),
    "isnan": Pointwise("(__isnan($0) != 0)", TO_BOOL),
    "isinf": Pointwise("(__isinf($0) != 0)", TO_BOOL, kinds="f"),
    "logical_not": Pointwise("($0 == 0)", TO_BOOL),
    "logical_and": Pointwise("($0 != 0 && $1 != 0)", TO_BOOL),
    "logical_or": Pointwise("($0 != 0 || $1 != 0)", TO_BOOL),
    "logical_xor": Pointwise("(($0 != 0) != ($1 != 0))", TO_BOOL),
    "bitwise_not": Pointwise("__bitnot($0)", boolean="($0 == 0)", kinds="bi"),
    "bitwise_and": Pointwise("($0 & $1)", kinds="bi"),
    "bitwise_or": Pointwise("($0 | $1)", kinds="bi"),
    "bitwise_xor": Pointwise("($0 ^ $1)", kinds="bi"),
    "mul": Pointwise("($0 * $1)", boolean="($0 & $1)"),
    "maximum": Pointwise("__max($0, $1)"),
    "minimum": Pointwise("__min($0, $1)"),
    "atan2": Pointwise("__atan2($0, $1)", TO_FLOAT, kinds="f"),
    "hypot": Pointwise("__hypot($0, $1)", kinds="f"),
    "copysign": Pointwise("__copysign($0, $1)", TO_FLOAT, kinds="f"),
    "fmod": Pointwise("__fmod($0, $1)", kinds="f"),
    "remainder": Pointwise("__remainder($0, $1)", kinds="f"),
}

_VIEWS_WORDS = (
    "view", "_unsafe_view", "reshape", "_reshape_alias", "expand", "permute", "transpose", "t",
    "unsqueeze", "squeeze", "select", "slice", "alias", "detach", "as_strided", "diagonal",
    "unfold", "broadcast_in_dim",
)  # fmt: skip
VIEWS = frozenset(_VIEWS_WORDS)

LISTS_OF_VIEWS = frozenset({"split", "split_with_sizes", "unbind", "chunk"})

# name → how it reduces, and the value of nothing
REDUCTIONS = {
    "sum": "sum",
    "mean": "sum",
    "amax": "max",
    "amin": "min",
    "any": "max",
    "all": "min",
    "prod": "prod",
}

DECOMPOSED = [
    "native_layer_norm", "native_layer_norm_backward", "native_group_norm",
    "native_group_norm_backward", "_softmax", "_softmax_backward_data", "_log_softmax",
    "_log_softmax_backward_data", "gelu", "gelu_backward", "silu_backward", "sigmoid_backward",
    "tanh_backward", "threshold_backward", "leaky_relu", "leaky_relu_backward", "elu",
    "elu_backward", "hardtanh", "hardtanh_backward", "hardsigmoid", "hardsigmoid_backward",
    "hardswish", "hardswish_backward", "softplus", "softplus_backward", "log_sigmoid_forward",
    "log_sigmoid_backward", "mse_loss", "mse_loss_backward", "l1_loss", "huber_loss",
    "huber_loss_backward", "smooth_l1_loss", "smooth_l1_loss_backward", "addcmul", "addcdiv",
    "addcmul_", "addcdiv_", "lerp", "var", "std", "var_mean", "std_mean", "masked_fill",
    "masked_fill_", "nll_loss_forward", "nll_loss_backward", "embedding_dense_backward",
    "select_backward", "slice_backward", "unsafe_split", "split", "unbind", "stack", "mish",
    "mish_backward", "rsub", "dot", "vdot", "norm", "linalg_vector_norm", "native_dropout_backward",
    "nan_to_num", "isfinite", "clamp_min", "clamp_max", "new_zeros", "new_ones", "new_full",
    "zeros_like", "ones_like", "full_like", "rand_like", "_to_copy", "baddbmm", "addmv", "mv",
    "logsumexp", "logit", "xlogy", "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training", "_native_batch_norm_legit_functional",
    "native_batch_norm_backward", "native_batch_norm", "upsample_nearest2d", "cudnn_batch_norm",
    "glu", "glu_backward", "binary_cross_entropy", "binary_cross_entropy_backward", "sinc",
    "heaviside", "rot90", "trace",
]  # fmt: skip


def number(value: Any, compute: str) -> str:
    """A Python number as a Choreo literal of an element type."""
    if isinstance(value, bool):
        value = int(value)
    if compute in ("f32", "f16", "bf16", "f64"):
        single = compute != "f64"
        real = float(value)
        if math.isnan(real):
            return "__nan()" if single else "__cast_f64(__nan())"
        if single and math.isfinite(real):
            real = _to_half(_to_single(real), compute)
        if math.isinf(real):
            text = "__inf()" if single else "__cast_f64(__inf())"
            return text if real > 0 else f"__neg({text})"
        text = repr(abs(real)) + ("f" if single else "")
        return text if math.copysign(1.0, real) > 0 else f"(-{text})"
    whole = _wrapped(int(value), compute)
    if whole == -(2**63):
        return "(-9223372036854775807 - 1)"
    return str(whole) if whole >= 0 else f"(-{-whole})"


def _wrapped(value: int, element: str) -> int:
    """A number in an integer type: what does not fit wraps, as eager's numbers do."""
    bits = int(element[1:])
    value %= 1 << bits
    return value - (1 << bits) if element[0] == "s" and value >> (bits - 1) else value


def _to_half(value: float, element: str) -> float:
    """A single rounded to f16 or bf16; other types as they are."""
    if element == "f16":
        try:
            return float(struct.unpack("e", struct.pack("e", value))[0])
        except OverflowError:
            return math.copysign(math.inf, value)
    if element == "bf16" and math.isfinite(value):
        bits = struct.unpack("I", struct.pack("f", value))[0]
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return float(struct.unpack("f", struct.pack("I", bits))[0])
    return value


def _to_single(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def kind_of(dtype: torch.dtype) -> str:
    if dtype is torch.bool:
        return "b"
    return "f" if dtype.is_floating_point else "i"


def decompositions() -> dict[Any, Any]:
    """The operators that are taken apart before they come here."""
    from torch._decomp import core_aten_decompositions, get_decompositions

    aten = torch.ops.aten
    packets = [getattr(aten, name) for name in DECOMPOSED if hasattr(aten, name)]
    table = {**core_aten_decompositions(), **get_decompositions(packets)}
    # The last one's decomposition does not fit its own backward.
    for kept in (
        *(aten.relu, aten.silu, aten.square, aten.reciprocal, aten.sgn, aten.frac),
        aten._scaled_dot_product_flash_attention_for_cpu,
    ):
        for overload in kept.overloads():  # type: ignore[no-untyped-call]
            table.pop(getattr(kept, overload), None)
    taken_apart = table[aten.gelu.default]

    def gelu(x: torch.Tensor, *, approximate: str = "none") -> Any:
        """Only its approximation is taken apart."""
        return NotImplemented if approximate == "none" else taken_apart(x, approximate=approximate)

    table[aten.gelu.default] = gelu
    return table
