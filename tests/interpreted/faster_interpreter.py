"""Triton's interpreter with two answers remembered, which it works out anew for every operation.

Neither changes what a kernel computes. They took more than a third of the time of these tests.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime import interpreter


def install() -> None:
    """A Triton whose interpreter is another one stays as it is."""
    if hasattr(interpreter, "_get_np_dtype"):
        interpreter._get_np_dtype = _remembering(interpreter._get_np_dtype)
    if hasattr(interpreter, "_patch_lang") and hasattr(interpreter, "_LangPatchScope"):
        interpreter._patch_lang = _unless_patched(interpreter._patch_lang, interpreter._LangPatchScope)


def _remembering(numpy_dtype: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The dtype in NumPy of a scalar type of Triton's: each question built a dictionary of all of them."""
    known: dict[str, Any] = {}

    def remembered(dtype: Any) -> Any:
        if type(dtype) is not tl.dtype:
            return numpy_dtype(dtype)
        if dtype.name not in known:
            known[dtype.name] = numpy_dtype(dtype)
        return known[dtype.name]

    return remembered


def _unless_patched(patch: Callable[[Any], Any], nothing: Callable[[], Any]) -> Callable[[Any], Any]:
    """A launch replaces the functions of `tl`; each function that the kernel calls then looked for more."""

    @functools.cache
    def languages(fn: Any) -> list[Any]:
        modules = filter(inspect.ismodule, fn.__globals__.values())
        return [module for module in modules if module in (tl, tl.core)]

    def is_patched(language: Any) -> bool:
        parts = [(language, "load"), (language.tensor, "__add__")]
        parts += [(tl.math, "exp")] if language is tl else []
        return not any(tl.core.is_builtin(getattr(part, name)) for part, name in parts)

    def patch_once(fn: Any) -> Any:
        found = languages(fn)
        return nothing() if found and all(map(is_patched, found)) else patch(fn)

    return patch_once
