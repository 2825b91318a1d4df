"""The kernels that generated Python defines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GeneratedKernel:
    """A kernel as defined in a wrapper: `name = async_compile.maker(…, source)`."""

    name: str
    maker: str  # cpp_pybinding, triton, …
    source: str
    line: int = 0  # of the definition
    about: str = ""  # what else the maker is given that is not a text: Halide's description of the arguments

    @property
    def language(self) -> str:
        return self.maker.removesuffix("_pybinding")


def parsed(code: str) -> ast.Module:
    """The syntax tree of this text; an empty one if the text is not Python."""
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def kernels_in(code: str | ast.Module) -> Iterator[GeneratedKernel]:
    """The kernels that a Python wrapper defines."""
    for statement in (parsed(code) if isinstance(code, str) else code).body:
        match statement:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Attribute(value=ast.Name(id="async_compile"), attr=maker), args=args),
            ):
                texts = [a.value for a in args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                about = next((ast.unparse(a) for a in args if isinstance(a, ast.Call)), "")
                source = max(texts, key=len, default="")
                yield GeneratedKernel(name, maker, source, statement.lineno, about)


def cpp_wrapper_in(code: str) -> str:
    """The C++ of the wrapper, which the Python file holds as a string (`cpp_wrapper`); "" without it."""
    for statement in parsed(code).body if "cpp_wrapper_src" in code else ():
        match statement:
            case ast.Assign(targets=[ast.Name(id="cpp_wrapper_src")], value=ast.Constant(value=str(text))):
                return text
    return ""
