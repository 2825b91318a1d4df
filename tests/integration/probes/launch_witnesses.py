"""Two witnesses say what the launches of a generated wrapper are, neither of them ours.

One is the wrapper's text, read line by line with regular expressions; the other a line trace of the wrapper
while it runs unrecorded.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

GENERATED = re.compile(r"^(\w+) = async_compile\.(\w+)\(", re.MULTILINE)
LAUNCH = re.compile(
    r"\b(?P<name>cpp_\w+|extern_kernels\.\w+|(?:torch\.ops|aten)\.[\w.]+)\("
    r"|(?P<receiver>\w+)\.(?P<method>copy_|zero_|fill_)\("
)
NOT_LAUNCHES = re.compile(r"empty_strided|reinterpret_tensor|\.view\b|as_strided|alias")
NUMBER = re.compile(r"-?(\d|inf|nan|\.)|True|False|None|'")


@dataclass(frozen=True)
class Launch:
    """A launch as the wrapper's text has it."""

    file: str
    line: int
    name: str
    args: tuple[str, ...]


@cache
def launches_in(path: str) -> dict[int, Launch]:
    """By line; a wrapper launches at most once a line."""
    text = Path(path).read_text()
    body = text[: text.index("def get_args")] if "def get_args" in text else text
    generated = {name for name, _ in GENERATED.findall(text)}
    found = {}
    for number, line in enumerate(body.splitlines(), start=1):
        match = LAUNCH.search(line) if line.startswith("  ") and not line.lstrip().startswith("#") else None
        if match is None or NOT_LAUNCHES.search(match[0]):
            continue
        name = match["name"] or f"aten.{match['method']}"
        if name.startswith("cpp_") and name not in generated:
            continue
        args = split(arguments(line[match.end() :]))
        if match["receiver"]:
            args = [match["receiver"], *args]
        found[number] = Launch(path, number, name.removeprefix("torch.ops."), tuple(args))
    return found


def arguments(rest: str) -> str:
    """Up to the parenthesis that closes the call."""
    depth = 1
    for position, character in enumerate(rest):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0:
            return rest[:position]
    raise AssertionError(f"a call that goes on over the line's end: {rest}")


def split(text: str) -> list[str]:
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def variable(text: str) -> str:
    """The variable in an argument: buf3 in `out=reinterpret_tensor(buf3, (2, 3), (3, 1), 0)`."""
    value = text.partition("=")[2] if re.match(r"\w+=", text) else text
    while match := re.match(r"\w+\((.*)\)$", value):
        value = split(match[1])[0]
    return "" if NUMBER.match(value) else value


def variables(launch: Launch) -> Iterator[str]:
    for text in launch.args:
        found = variable(text)
        if found.startswith(("[", "(")):
            yield from filter(None, map(variable, split(found[1:-1])))
        elif found:
            yield found


def parameters(kernel: str, path: str) -> list[str]:
    """The names in the C++ signature of a kernel that a wrapper defines."""
    text = Path(path).read_text()
    source = text[text.index(f"\n{kernel} = async_compile.") :]
    signature = source[source.index('extern "C"') :]
    inside = signature[signature.index("(") + 1 : signature.index(")")]
    return [re.findall(r"\w+", parameter)[-1] for parameter in inside.split(",")]


def traced(step: Callable[[], None]) -> list[Launch]:
    """The launches in order of execution, from the lines that an unrecorded run goes through."""
    seen: list[Launch] = []

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return line if frame.f_code.co_qualname == "Runner.call" else None

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            launch = launches_in(frame.f_code.co_filename).get(frame.f_lineno)
            seen.extend([launch] if launch is not None else [])
        return line

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        step()
    finally:
        sys.settrace(before)
    return seen
