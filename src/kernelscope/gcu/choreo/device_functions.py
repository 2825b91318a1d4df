"""Functions that Choreo lacks and generated kernels need: C++ for the `__cok__` part of their file.

They need nothing but the C++ library, so that the file compiles wherever Choreo does. With our own
header, they are its functions, which become vector code.
"""

from __future__ import annotations

import re

# What the public language has. Not `__round` and `__sign`: torch rounds and counts otherwise.
_PUBLIC = (
    "acos", "asin", "atan", "atan2", "ceil", "cos", "cosh", "exp", "expm1", "floor", "gelu", "log",
    "log1p", "pow", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh",
)  # fmt: skip
_CALL = re.compile(r"\b__([a-z]\w*)\(")
_LIBRARY = {
    "acosh": "acosh", "asinh": "asinh", "atanh": "atanh", "erf": "erf", "erfc": "erfc", "exp2": "exp2",
    "lgamma": "lgamma", "log10": "log10", "log2": "log2", "round": "rint", "trunc": "trunc",
}  # fmt: skip
_BOTH = "typename std::common_type<A, B, float>::type"


def _library(name: str, function: str) -> str:
    forms = [
        "\n".join(
            f"__co_device__ inline {kind} dev_{name}({kind} x) {{ return {called}(x); }}"
            for kind in ("float", "double")
        )
        for called in (f"choreo::{name}_", f"std::{function}")
    ]
    return f"#if defined(CHOREO_VECTOR_MATHEMATICS)\n{forms[0]}\n#else\n{forms[1]}\n#endif"


def _of_two(name: str, *lines: str) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"template <class A, class B>\n__co_device__ inline auto dev_{name}(A a, B b) {{\n{body}\n}}"


def _of_one(name: str, returns: str, body: str) -> str:
    return f"template <class T>\n__co_device__ inline {returns} dev_{name}(T x) {{\n  {body}\n}}"


def _extreme(name: str, sign: str) -> str:
    return "// As in torch, NaN wins.\n" + _of_two(
        name,
        "using T = typename std::common_type<A, B>::type;",
        "const T x = static_cast<T>(a), y = static_cast<T>(b);",
        f"const T limit = y {sign} x ? y : x;",
        "return y != y ? y : limit;",
    )


_OF_TWO_NUMBERS = {
    "fmod": _of_two("fmod", f"using T = {_BOTH};", "return std::fmod(static_cast<T>(a), static_cast<T>(b));"),
    "hypot": _of_two(
        "hypot", f"using T = {_BOTH};", "return std::hypot(static_cast<T>(a), static_cast<T>(b));"
    ),
    "remainder": "// The sign of the divisor.\n"
    + _of_two(
        "remainder",
        f"using T = {_BOTH};",
        "const T y = static_cast<T>(b), rest = std::fmod(static_cast<T>(a), y);",
        "return rest != 0 && ((y < 0) != (rest < 0)) ? rest + y : rest;",
    ),
    "floordiv": _of_two(
        "floordiv",
        f"using T = {_BOTH};",
        "const T x = static_cast<T>(a), y = static_cast<T>(b);",
        "if (y == 0) return x / y;",
        "const T rest = std::fmod(x, y);",
        "T quotient = (x - rest) / y;",
        "if (rest != 0 && ((y < 0) != (rest < 0))) quotient -= 1;",
        "if (quotient == 0) return std::copysign(T(0), x / y);",
        "const T down = std::floor(quotient);",
        "return quotient - down > T(0.5) ? down + 1 : down;",
    ),
}
_TEXTS: dict[str, str] = {
    **{name: _library(name, function) for name, function in _LIBRARY.items()},
    "abs": """__co_device__ inline float dev_abs(float x) { return std::fabs(x); }
__co_device__ inline double dev_abs(double x) { return std::fabs(x); }
template <class T>
__co_device__ inline T dev_abs(T x) { return static_cast<T>(x < T(0) ? T(0) - x : x); }""",
    "neg": _of_one("neg", "T", "return static_cast<T>(-x);"),
    "bitnot": _of_one("bitnot", "T", "return static_cast<T>(~x);"),
    "sign": _of_one("sign", "T", "return static_cast<T>((x > T(0)) - (x < T(0)));"),
    "isnan": _of_one("isnan", "int", "return x != x;"),
    "isinf": _of_one("isinf", "int", "return x == x && x - x != T(0);"),
    "max": _extreme("max", ">"),
    "min": _extreme("min", "<"),
    "inf": "__co_device__ inline float dev_inf() { return std::numeric_limits<float>::infinity(); }",
    "nan": "__co_device__ inline float dev_nan() { return std::numeric_limits<float>::quiet_NaN(); }",
    "copysign": _of_two(
        "copysign", f"using T = {_BOTH};", "return std::copysign(static_cast<T>(a), static_cast<T>(b));"
    ),
    **{
        name: f"#if defined(CHOREO_VECTOR_MATHEMATICS)\n{_of_two(name, f'return choreo::{name}_(a, b);')}\n"
        f"#else\n{text}\n#endif"
        for name, text in _OF_TWO_NUMBERS.items()
    },
}
# What these functions are called in a program; they have no effect but their result.
PURE = frozenset(f"dev_{name}" for name in _TEXTS)


def with_device_calls(text: str) -> str:
    """Generated text that calls device functions for what the language lacks."""
    return _CALL.sub(lambda m: m[0] if _is_public(m[1]) else f"call dev_{m[1]}(", text)


def device_part(text: str) -> str:
    """The `__cok__` part that a text with device calls needs; nothing when it has none."""
    used = sorted(set(re.findall(r"\bcall dev_(\w+)\(", text)))
    if not used:
        return ""
    includes = "#include <cmath>\n#include <limits>\n#include <type_traits>"
    parts = "\n".join(_TEXTS[name] for name in used)
    return f"__cok__ {{\n{includes}\n\n{parts}\n}}\n"


def _is_public(name: str) -> bool:
    return name in _PUBLIC or name.startswith("cast_")
