"""A wrapper of dynamic shapes: for each set of sizes, what a wrapper of fixed shapes has.

Its functions become dispatchers: each graph call goes to the functions of its own sizes, which its thread has
been told. So two threads may execute one wrapper with different sizes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Any, TypeAlias

import torch

from kernelscope.generated_code.syntax import put_at, uncollected, walk
from kernelscope.generated_code.wrapper import Wrapper, program_functions
from kernelscope.probes.bus import BUS
from kernelscope.probes.own_work import own_fault

from .hooked_source import Codes, Hook, bind, compiled
from .hooked_wrapper import HookedWrapper, functions_in
from .multi_kernels import unhook_kernel
from .wrapper_launches import WrapperLaunches

_SIZES_AT_MOST = 64  # sets of sizes that are kept; others are looked at
_SYMBOL = re.compile(r"[su]\d+|zuf\d+")  # a size, or another number, that varies
_DISPATCH = "_kernelscope_dispatch"
DISPATCHER = "<kernelscope dispatcher>"  # file name of the code that chooses: not a line of the wrapper's
_Key: TypeAlias = tuple[str, int]  # of a function: qualified name and first line


def names_of_sizes(source: str) -> frozenset[str] | None:
    """Variables whose values follow from numbers that the graph is given; None if other sizes vary too."""
    found: set[str] = set()
    others: set[str] = set()
    for function in program_functions(ast.parse(source)):
        given = {arg.arg for arg in function.args.args}
        for node in walk(function):
            if isinstance(node, ast.Attribute) and node.attr == "item":
                return None
            if not isinstance(node, ast.Assign):
                continue
            assigned = {n.id for target in node.targets for n in walk(target) if isinstance(n, ast.Name)}
            used = {n.id for n in walk(node.value) if isinstance(n, ast.Name)}
            if used <= given and isinstance(node.value, ast.Name):
                given |= assigned  # what the graph was given, taken apart; a symbol is a number
                found |= {name for name in assigned if _SYMBOL.fullmatch(name)}
            elif used and used <= found and not any(isinstance(n, ast.Call) for n in walk(node.value)):
                found |= assigned
            else:
                others |= assigned
    return None if any(map(_SYMBOL.fullmatch, others)) or not found else frozenset(found - others)


class ShapedWrapper:
    """One wrapper module of dynamic shapes while its launches are watched."""

    def __init__(
        self,
        namespace: dict[str, Any],
        text: Wrapper,
        launches: Callable[[frozenset[str]], WrapperLaunches],
        make: Callable[[WrapperLaunches], HookedWrapper],
    ) -> None:
        """`launches(names)` makes the hooks for one set of sizes, which these variables follow from."""
        self.namespace = namespace
        self.aot_name = text.aot_name
        self._launches, self._make = launches, make
        self._originals = [(function, function.__code__) for function in functions_in(namespace)]
        self._any_sizes = self._hooked(frozenset())
        self._by_sizes: dict[tuple[Any, ...], HookedWrapper] = {}
        with uncollected():
            names = None if self._any_sizes.sub_kernels else names_of_sizes(text.source)
            self._names = names or frozenset()
            self._dispatch(text.source)

    def _hooked(self, names: frozenset[str]) -> HookedWrapper:
        made = self._make(self._launches(names))
        made.owner = self
        made.hook_apart(self._originals)
        return made

    def of(self, inputs: Sequence[Any]) -> HookedWrapper:
        """What is known for the sizes of these inputs."""
        if not self._names:
            return self._any_sizes
        sizes = tuple([value for value in inputs if not isinstance(value, torch.Tensor)])
        known = self._by_sizes.get(sizes)
        if known is None:
            if len(self._by_sizes) >= _SIZES_AT_MOST or not all(type(size) is int for size in sizes):
                return self._any_sizes
            try:
                known = self._by_sizes[sizes] = self._hooked(self._names)
            except Exception:
                BUS.finding(own_fault("preparing a graph for the sizes of its inputs"))
                self._names = frozenset()
                return self._any_sizes
        return known

    def follow(self, ended: int = -1) -> None:
        for wrapper in [self._any_sizes, *self._by_sizes.values()]:
            wrapper.follow(ended)

    def _dispatch(self, source: str) -> None:
        here, any_sizes = BUS.here, self._any_sizes

        def function_of(key: _Key) -> FunctionType:
            wrapper = here.wrapper
            chosen = wrapper if wrapper is not None and wrapper.owner is self else any_sizes
            return chosen.apart[key]

        codes = bind(_dispatchers(source, str(self.namespace.get("__file__", "<wrapper>"))), {
            _DISPATCH: Hook(function_of)
        })  # fmt: skip
        for function, original in self._originals:
            code = codes.get((original.co_qualname, original.co_firstlineno))
            if code is not None:
                function.__code__ = code

    def restore(self) -> None:
        for function, code in self._originals:
            function.__code__ = code
        for kernel in self._any_sizes.sub_kernels:
            unhook_kernel(kernel)


def _dispatchers(source: str, filename: str) -> Codes:
    """Each function of the wrapper, as a call of the one that is to be executed."""
    tree = ast.parse(source, filename)
    for function in program_functions(tree):
        arguments = ", ".join(arg.arg for arg in function.args.args)
        text = f"return {_DISPATCH!r}.launch({_key_name(function.lineno)!r})({arguments})"
        [statement] = ast.parse(text).body
        put_at(statement, function.body[0])
        function.body = [statement]
    codes = compiled(tree, filename)
    named = {_key_name(key[1]): key for key in codes}
    bound = {key: _with_key(code, named) for key, code in codes.items()}
    return {key: code for key, code in bound.items() if code is not codes[key]}


def _key_name(line: int) -> str:
    return f"_kernelscope_function_{line}"


def _with_key(code: CodeType, named: dict[str, _Key]) -> CodeType:
    constants = tuple(named.get(c, c) if type(c) is str else c for c in code.co_consts)
    if constants == code.co_consts:
        return code
    return code.replace(co_consts=constants, co_filename=DISPATCHER)
