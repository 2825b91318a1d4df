"""How a script launches a kernel: by the wrapper's own text, or by the operator's name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from keyword import iskeyword
from typing import Any

from kernelscope.generated_code.wrapper import Wrapper
from kernelscope.model.call import KernelCall

from .gcu_launch import gcu_launch
from .launch_code import LaunchCode, binds, launch_at, needed
from .script_parts import literal, unreproducible

_BUILTINS = frozenset({"True", "False", "None", "torch", "inf", "nan", "math", "float", "int"})


@dataclass(slots=True)
class Launching:
    """Code that makes the kernel, and code that launches it."""

    before: list[str]
    lines: list[str]
    wrapper: Wrapper = field(default_factory=lambda: Wrapper(""))
    text: LaunchCode = field(default_factory=lambda: LaunchCode(""))
    first: list[str] = field(default_factory=list)  # what the script does before it launches
    variables: list[str] = field(default_factory=list)  # of the wrapper, that arguments are made of


def launching(call: KernelCall, names: dict[int, str]) -> Launching:
    if call.kind == "gcu":
        before, lines = gcu_launch(call, names)
        return Launching(before, lines, first=["LIBRARY = built(CPP, HEADER)"])
    if call.producer == "user" and call.graph is None:
        return _of_user(call, names)
    if call.graph is None or not call.graph.source:
        return _of_operator(call, names)
    return _of_wrapper(call, names)


def _of_wrapper(call: KernelCall, names: dict[int, str]) -> Launching:
    assert call.graph is not None
    wrapper = Wrapper.of_any_text(call.graph.source)
    generated = call.kind in ("cpp", "triton")
    pairs = [
        (arg.wrapper_name, names[i] if arg.tensor is not None else "")
        for i, arg in enumerate(call.arguments)
        if not arg.returned and (generated or arg.tensor is not None)
    ]
    text = launch_at(wrapper, call.wrapper_line[1], pairs, positional=generated)
    if text is None:
        raise unreproducible(call, f"its launch is not on line {call.wrapper_line[1]} of the wrapper")
    before = needed(wrapper, text.free)
    scalars = {
        arg.wrapper_name: value
        for arg, value in zip(call.arguments, call.args, strict=True)
        if arg.tensor is None and arg.wrapper_name
    }
    variables: list[str] = []
    for name in text.free:
        if name in scalars:
            before.append(f"{name} = {literal(scalars[name])}")
        elif not (
            name in _BUILTINS or binds(wrapper, name) or any(s.startswith(f"{name} =") for s in text.setup)
        ):
            variables.append(name)
    settled = [f"settle({text.call.partition('.')[0]}, {call.config!r})"] if call.kind == "triton" else []
    lines = [*text.setup, f"returned = {text.call}"]
    return Launching(before, lines, wrapper, text, settled, variables)


def _of_operator(call: KernelCall, names: dict[int, str]) -> Launching:
    """An eager operator: by the names of its schema."""
    parts: dict[str, str] = {}
    lists: dict[str, list[str]] = {}
    for i, (arg, value) in enumerate(zip(call.arguments, call.args, strict=True)):
        if arg.returned:
            continue
        text = names[i] if arg.tensor is not None else _written(call, arg.name, value)
        name, bracket, _ = arg.name.partition("[")  # tensors[0] is the first in the list `tensors`
        if not name.isidentifier():
            raise unreproducible(call, f"{arg.name} is a part of a tensor")
        if bracket:
            lists.setdefault(name, []).append(text)
            text = f"[{', '.join(lists[name])}]"
        parts[name] = text
    given = ", ".join(f"{n}={v}" if not iskeyword(n) else f"**{{{n!r}: {v}}}" for n, v in parts.items())
    words = call.kernel_name.split(".")
    if len(words) < 2 or not all(word.isidentifier() for word in words):
        raise unreproducible(call, "its name is not that of an operator")
    space, name, *overload = words
    operator = f"torch.ops.{space}.{name}" + "".join(f".{part}" for part in overload if not iskeyword(part))
    operator = next((f"getattr({operator}, {part!r})" for part in overload if iskeyword(part)), operator)
    return Launching([], [f"returned = {operator}({given})"])


def _written(call: KernelCall, name: str, value: Any) -> str:
    """An argument that is not a tensor; dtypes, layouts and the like were recorded by their names."""
    if isinstance(value, str) and re.fullmatch(r"torch\.\w+", value):
        return value
    if isinstance(value, tuple | list):
        return f"[{', '.join(_written(call, name, each) for each in value)}]"
    if isinstance(value, str) and re.fullmatch(r"<[^<>]*>", value):
        raise unreproducible(call, f"a script cannot contain {name}, which is {value}")
    return literal(value)


def _of_user(call: KernelCall, names: dict[int, str]) -> Launching:
    """A Triton kernel of the user's, launched outside of compiled code."""
    if not call.source:
        raise unreproducible(call, "the source of the kernel was not recorded")
    parts = [
        f"{arg.name}={names[i] if arg.tensor is not None else literal(value)}"
        for i, (arg, value) in enumerate(zip(call.arguments, call.args, strict=True))
        if not arg.returned
    ]
    parts += [f"{key}={value!r}" for key, value in call.config.items()]
    # Decorators that choose a config are left out: the config is known.
    start = call.source.find(f"def {call.kernel_name}(")
    source = f"@triton.jit\n{call.source[start:].strip()}" if start >= 0 else call.source.strip()
    before = ["import triton\nimport triton.language as tl", source]
    launch = f"returned = {call.kernel_name}[{call.grid!r}]({', '.join(parts)})"
    return Launching(before, [launch])
