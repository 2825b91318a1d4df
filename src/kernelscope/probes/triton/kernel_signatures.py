"""Names and declared roles of a kernel's arguments, from its source or its metadata."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

from kernelscope.events import Role
from kernelscope.probes.describe import plain

from .pointer_roles import Use, roles_in_source, uses_in_source

_CPP_SIGNATURE = re.compile(r'extern\s+"C"[^(]*?\w+\s*\((?P<params>[^)]*)\)\s*\{', re.DOTALL)
_INDUCTORS_NAME = re.compile(r"(in_|out_|in_out_|ws_)ptr|[xyzr]\d*_?numel|ks\d|seed|load_seed")

# With atomics, or, where Inductor compiled for one thread, with += and its vector form.
_CPP_ACCUMULATES = (
    r"\batomic_\w+(<[^()]*>)?\(\s*&?\s*NAME\b|\bNAME\[[^;=]*\]\s*\+=|\+ [\w:<>,]*\bloadu\(NAME\b"
)


@lru_cache(maxsize=4096)
def cpp_arguments(source: str) -> tuple[tuple[str, Role], ...]:
    """Names and roles from the `extern "C"` signature of an Inductor C++ kernel."""
    found = _CPP_SIGNATURE.search(source)
    return cpp_parameters(found["params"], source) if found is not None else ()


def cpp_parameters(text: str, source: str) -> tuple[tuple[str, Role], ...]:
    """Names and roles of the parameters of a C function, whose body is in `source`."""
    params = [" ".join(p.split()) for p in text.split(",")]
    return tuple(_cpp_argument(p, source) for p in params if p and p != "void")


def _cpp_argument(param: str, source: str) -> tuple[str, Role]:
    name = re.split(r"[\s*&]+", param)[-1]
    if "*" not in param:
        return name, "scalar"
    if re.match(r"const\b", param):
        return name, "in"
    accumulates = _CPP_ACCUMULATES.replace("NAME", re.escape(name))
    if name.startswith("in_out_ptr") or re.search(accumulates, source):
        return name, "inout"
    return name, "out"


def triton_arguments(kernel: Any, source: str = "") -> tuple[tuple[str, Role], ...]:
    """Names and roles of what a `CachingAutotuner` is launched with: all but the declared constexprs."""
    signature: dict[str, Any] = kernel.triton_meta["signature"]
    constexprs = declared_constexprs(kernel.fn)
    kinds = {name: str(kind) for name, kind in signature.items() if name not in constexprs}
    if is_users_own(kernel):  # Inductor does not say what it writes, and its names need not either
        roles = roles_in_source(source, kernel.fn.__name__)
        return tuple(
            (n, roles.get(n, "inout") if _is_pointer(kind) else "scalar") for n, kind in kinds.items()
        )
    mutated = set(getattr(kernel, "mutated_arg_names", ()) or ())
    text = source or str(getattr(kernel.fn, "src", ""))
    roles = inductor_roles(text, kernel.fn.__name__, list(kinds), mutated)
    return tuple((n, roles[n] if _is_pointer(kind) else "scalar") for n, kind in kinds.items())


def inductor_roles(
    source: str, function: str, names: Sequence[str], mutated: Collection[str]
) -> dict[str, Role]:
    """The roles of these arguments of a Triton kernel that Inductor wrote, as if all of them were pointers.

    Inductor's own kernels tell by their names. A template has names of its own, its outputs among them, and
    adds gradients to what it calls an input: there the code tells.
    """
    is_template = not all(map(_INDUCTORS_NAME.match, names))
    uses = uses_in_source(source, function) if is_template else {}
    roles = {name: _triton_role(name, mutated, source) for name in names}
    for name, use in uses.items():
        if name in roles and (roles[name] == "in" or not _INDUCTORS_NAME.match(name)):
            roles[name] = _template_role(use, is_mutated=name in mutated)
    return roles


def _template_role(use: Use, *, is_mutated: bool) -> Role:
    if use.is_written or is_mutated:
        return "out" if use.is_written and not use.is_read else "inout"
    return "in" if use.is_read or not use.is_followed else "unused"


def is_users_own(kernel: Any) -> bool:
    """Whether a `CachingAutotuner` runs a kernel that the user wrote."""
    return bool(getattr(kernel, "custom_kernel", False))


def triton_constants(kernel: Any) -> dict[str, Any]:
    """The constexprs of a `CachingAutotuner` that are the same in all of its configs."""
    constants: dict[str, Any] = kernel.triton_meta.get("constants", {})
    return {
        name: plain(constants[name]) for name in sorted(declared_constexprs(kernel.fn) & constants.keys())
    }


def launcher_arguments(kernel: Any) -> list[str]:
    """What a `CachingAutotuner` is passed after the kernel's own arguments, to compute the grid from."""
    return list(kernel.inductor_meta.get("extra_launcher_args", ()))


def declared_constexprs(kernel: Any) -> set[str]:
    """The parameters that a `@triton.jit` function, compiled or interpreted, annotates as constexpr."""
    if hasattr(kernel, "params"):  # also after the function itself was dropped on its way between processes
        return {p.name for p in kernel.params if p.is_constexpr}
    return {name for name, kind in kernel.fn.__annotations__.items() if "constexpr" in str(kind)}


def _is_pointer(kind: str) -> bool:
    return kind.startswith(("*", "tensordesc")) or kind == "nvTmaDesc"


def _triton_role(name: str, mutated: Collection[str], source: str) -> Role:
    if name.startswith("out_ptr") and not re.search(rf"tl\.atomic_\w+\(\s*{name}\b", source):
        return "out"
    if name in mutated or name.startswith(("in_out_ptr", "out_ptr", "ws_ptr")):
        return "inout"
    return "in"
