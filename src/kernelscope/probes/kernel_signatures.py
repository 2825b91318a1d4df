"""Names and declared roles of a kernel's arguments, from its source or its metadata."""

from __future__ import annotations

import re
from typing import Any

from ..events import Role

_CPP_SIGNATURE = re.compile(r'extern\s+"C"[^(]*?\w+\s*\((?P<params>[^)]*)\)\s*\{', re.DOTALL)


def cpp_arguments(source: str) -> list[tuple[str, Role]]:
    """Names and roles from the `extern "C"` signature of an Inductor C++ kernel."""
    found = _CPP_SIGNATURE.search(source)
    if found is None:
        return []
    params = [" ".join(p.split()) for p in found["params"].split(",")]
    return [_cpp_argument(p, source) for p in params if p and p != "void"]


def _cpp_argument(param: str, source: str) -> tuple[str, Role]:
    name = re.split(r"[\s*&]+", param)[-1]
    if "*" not in param:
        return name, "scalar"
    if re.match(r"const\b", param):
        return name, "in"
    # It accumulates with atomics, or with += where Inductor compiled for one thread.
    accumulates = rf"\batomic_\w+(<[^()]*>)?\(\s*&?\s*{name}\b|\b{name}\[[^;=]*\]\s*\+="
    if name.startswith("in_out_ptr") or re.search(accumulates, source):
        return name, "inout"
    return name, "out"


def triton_arguments(kernel: Any, source: str = "") -> list[tuple[str, Role]]:
    """Names and roles of what a `CachingAutotuner` is launched with.

    Its signature also lists constexprs, which are not passed: leaving them in shifts every later name.
    """
    signature: dict[str, Any] = dict(kernel.triton_meta["signature"])
    constants = kernel.triton_meta.get("constants", {})
    names = [n for n, kind in signature.items() if kind != "constexpr" and n not in constants]
    extra = [n for n in kernel.inductor_meta.get("extra_launcher_args", []) if n not in names]
    mutated = set(getattr(kernel, "mutated_arg_names", ()) or ())
    text = source or str(getattr(kernel.fn, "src", ""))
    return [(n, _triton_role(n, str(signature.get(n, "")), mutated, text)) for n in [*names, *extra]]


def _triton_role(name: str, kind: str, mutated: set[str], source: str) -> Role:
    if not (kind.startswith(("*", "tensordesc")) or kind in ("nvTmaDesc",)):
        return "scalar"
    if name.startswith("out_ptr") and not re.search(rf"tl\.atomic_\w+\(\s*{name}\b", source):
        return "out"
    if name in mutated or name.startswith(("in_out_ptr", "out_ptr", "ws_ptr")):
        return "inout"
    return "in"
