"""The functions that a Choreo program can call (`__exp` and the like), without their underscores."""

from __future__ import annotations

from kernelscope.gcu.choreo.syntax.tree import ELEMENTS

_OF_ONE = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan",
    "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc",
    "floor", "ceil", "round", "trunc", "abs", "sign", "sigmoid", "isnan", "isinf", "lgamma", "neg",
    "bitnot",
)  # fmt: skip
_OF_TWO = (
    "max", "min", "pow", "atan2", "fmod", "remainder", "floordiv", "copysign",
)  # fmt: skip

# name → how many arguments
BUILTINS = {
    **dict.fromkeys(_OF_ONE, 1),
    **dict.fromkeys(_OF_TWO, 2),
    **{f"cast_{element}": 1 for element in (*ELEMENTS, "bool")},
    "inf": 0,
    "nan": 0,
}
