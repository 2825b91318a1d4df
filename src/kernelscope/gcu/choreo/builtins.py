"""The functions that a Choreo program can call (`__exp` and the like), without their underscores."""

from __future__ import annotations

from kernelscope.gcu.choreo.syntax.tree import ELEMENTS

_OF_ONE = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan",
    "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc",
    "floor", "ceil", "round", "trunc", "abs", "sign", "sigmoid", "isnan", "isinf", "lgamma", "neg",
    "bitnot", "gelu", "softplus", "isfinite",
)  # fmt: skip
_OF_TWO = (
    "max", "min", "pow", "atan2", "fmod", "hypot", "remainder", "floordiv", "copysign", "fmax",
    "fmin", "alignup", "aligndown",
)  # fmt: skip

# name → how many arguments
BUILTINS = {
    **dict.fromkeys(_OF_ONE, 1),
    **dict.fromkeys(_OF_TWO, 2),
    **{f"cast_{element}": 1 for element in (*ELEMENTS, "bool")},
    "inf": 0,
    "nan": 0,
}

# What changes an element that several threads may change → how many arguments.
ATOMICS = {**dict.fromkeys(("add", "sub", "max", "min", "and", "or", "xor", "exch"), 2), "cas": 3}

# Integers in, an integer out.
OF_INTEGERS = ("alignup", "aligndown", "cdiv")
_OTHER_NAMES = {"fabs": "abs"}
# Single precision, as in C: __expf, __sqrtf, …
_OTHER_NAMES |= {f"{name}f": name for name in (*_OF_ONE, *_OF_TWO) if name not in OF_INTEGERS}
_OTHER_NAMES |= {"fabsf": "abs"}


def builtin(name: str) -> str:
    """The name under which a builtin is known here; empty when there is none."""
    bare = name.removeprefix("__")
    if not name.startswith("__"):
        return "cdiv" if name == "cdiv" else ""
    return bare if bare in BUILTINS and bare != "cdiv" else _OTHER_NAMES.get(bare, "")


BUILTINS["cdiv"] = 2
