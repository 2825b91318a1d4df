"""The generated modules that are loaded, and what they are made of."""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import Any

from torch._inductor.codecache import PyCodeCache


def wrapper_modules() -> list[Any]:
    return [m for m in PyCodeCache.modules if hasattr(m, "call")]


def contents(module: Any) -> dict[str, int]:
    """What a generated module is made of: its globals and its functions' code, by identity."""
    found = {name: id(value) for name, value in vars(module).items()}
    for name, value in vars(module).items():
        if isinstance(value, FunctionType):
            found[f"{name}.__code__"] = id(value.__code__)
        elif isinstance(value, type) and value.__module__ == module.__name__:
            methods = {n: m for n, m in vars(value).items() if isinstance(m, FunctionType)}
            found |= {f"{name}.{n}": id(m) for n, m in methods.items()}
            found |= {f"{name}.{n}.__code__": id(m.__code__) for n, m in methods.items()}
    return found


def wrapper_codes() -> dict[Any, CodeType]:
    """The code of every function of every wrapper."""
    found = {}
    for module in PyCodeCache.modules:
        for value in list(vars(module).values()):
            members = vars(value).values() if isinstance(value, type) else [value]
            found |= {f: f.__code__ for f in members if isinstance(f, FunctionType)}
    return found
