"""Generated wrapper code as text: its kernels, and which launch stands on which line. Needs no torch."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .records import FxOrigin, Provenance

_HANDLE = re.compile(r"(?:#|//) \[Provenance debug handles\] (?P<names>.+)$")


@dataclass(frozen=True, slots=True)
class GeneratedKernel:
    """One kernel that a wrapper defines."""

    name: str
    language: str  # cpp, triton, …: the method of async_compile that makes it
    source: str
    line: int  # in the wrapper


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch in a wrapper, as the comment before it names it."""

    kernel: str
    handle: int
    line: int  # of the launch


def kernels_in(code: str) -> list[GeneratedKernel]:
    """The kernels that a Python wrapper defines; none of one that is no Python."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return []
    found = []
    for node in tree.body:
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        call = node.value
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("async_compile."):
            texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            language = ast.unparse(call.func).partition(".")[2].removesuffix("_pybinding")
            source = max(texts, key=len, default="").strip("\n")
            found.append(GeneratedKernel(node.targets[0].id, language, source, node.lineno))
    return found


def launches_in(code: str) -> list[Launch]:
    """Every launch that has a handle, with its line."""
    found: list[Launch] = []
    waiting: list[tuple[str, int]] = []
    for number, line in enumerate(code.splitlines(), start=1):
        handle = _HANDLE.search(line)
        if handle is not None:
            waiting = [_named(name) for name in handle["names"].split(",")]
        for name, n in list(waiting):
            # Between the comment and the launch may stand what the launch needs, such as its stream.
            if handle is None and (name in line or name.rpartition(".")[2] in line):
                found.append(Launch(name, n, number))
                waiting.remove((name, n))
    return found


def call_name(kernel: str) -> str:
    """A kernel as recorded calls name it: an operator without the namespace of all operators."""
    return kernel.removeprefix("torch.ops.")


def _named(text: str) -> tuple[str, int]:
    name, _, handle = text.strip().rpartition(":")
    return call_name(name), int(handle) if handle.isdigit() else -1


def provenance_in(compilation: int, mapping: str | None) -> Iterator[Provenance]:
    """Inductor's own mapping, as its cache keeps it: kernel:handle to nodes.

    Its stacks are left out: they are those of whoever compiled an equal graph first.
    """
    nodes = _object(mapping)
    to_pre = nodes.get("postToPre") or {}
    for name, post in (nodes.get("cppCodeToPost") or nodes.get("pyCodeToPost") or {}).items():
        kernel, _, handle = name.rpartition(":")
        if handle.isdigit():
            origins = tuple(FxOrigin(str(n), "", tuple(map(str, to_pre.get(n, ())))) for n in post)
            yield Provenance(compilation, call_name(kernel), int(handle), (), origins)


def _object(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
