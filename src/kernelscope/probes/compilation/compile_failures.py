"""A failed compilation: the stage it reached, the node or line at fault, and the compiler's message."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernelscope.events import Frame
from kernelscope.generated_code.kernels import kernels_in
from kernelscope.probes.origins import frames_of_trace
from kernelscope.stages.graphs import user_lines
from kernelscope.stages.records import Compilation, Incident, Provenance, Record, Stage

# "file.cpp:12:5: error: …" of g++ and clang, "file.py:12:4: error: …" of Triton.
_ERROR = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:(?P<column>\d+):)? *(?:fatal )?error: (?P<what>.+)$", re.M
)
_AROUND = 6  # lines shown before and after the one that is wrong
_LONGEST = 200_000


@dataclass(frozen=True, slots=True)
class CompilerError:
    """The first thing that a C++ or Triton compiler did not like."""

    file: str
    line: int
    column: int  # 0: it said none
    what: str


def compiler_error(text: str) -> CompilerError | None:
    found = _ERROR.search(text)
    if found is None:
        return None
    return CompilerError(found["file"], int(found["line"]), int(found["column"] or 0), found["what"])


def incident_of(graph: Compilation, error: BaseException, known: Sequence[Record]) -> Incident:
    """`known` is what is known of the graph so far."""
    errors = list(_chain(error))
    reached = next((r.name for r in reversed(known) if isinstance(r, Stage)), "")
    detail = max((_words(each) for each in errors), key=len)[:_LONGEST]
    reason = f"{type(errors[-1]).__name__}: {first_line(errors[-1])}"
    found = compiler_error(detail)
    if found is not None:
        kernel, frames = _kernel_in(found.file, known)
        source = marked(found.file, found.line, found.column)
        reason = f"{kernel or os.path.basename(found.file)}, line {found.line}: {found.what}"
        return Incident("failure", graph.id, graph.compile_id, reason, frames, detail, source, "kernel")
    node = next((found for each in errors if (found := _node_of(each)) is not None), None)
    if node is None:
        return Incident("failure", graph.id, graph.compile_id, reason, (), detail, "", reached)
    frames = frames_of_trace(node.meta.get("stack_trace") or "")
    reason += f" (lowering {node.name}: {node.target})"
    return Incident("failure", graph.id, graph.compile_id, reason, frames, detail, "", "lowering")


def _kernel_in(file: str, known: Sequence[Record]) -> tuple[str, tuple[Frame, ...]]:
    """Which kernel a file that did not compile was made of, and the lines that it computes."""
    code = next((r.text for r in reversed(known) if isinstance(r, Stage) and r.name == "output_code"), "")
    text = _read(file)
    body = text[text.find("{") :].strip()  # the name before it is another one in the file
    for kernel in kernels_in(code):
        if body and kernel.source[kernel.source.find("{") :].strip() in text:
            launches = [r for r in known if isinstance(r, Provenance) and r.kernel == kernel.name]
            return kernel.name, tuple(dict.fromkeys(f for p in launches for f in user_lines(p)))
    return "", ()


def _read(file: str) -> str:
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:
            return opened.read(_LONGEST * 10)
    except OSError:
        return ""


def marked(file: str, line: int, column: int = 0) -> str:
    """The lines around one of a file, that one marked."""
    return marked_in(_read(file), line, column)


def marked_in(text: str, line: int, column: int = 0) -> str:
    lines = text.splitlines()
    shown = []
    for number in range(max(1, line - _AROUND), min(len(lines), line + _AROUND) + 1):
        shown.append(f"{'>' if number == line else ' '} {number:5d} | {lines[number - 1]}")
        if number == line and column:
            shown.append(f"        | {' ' * (column - 1)}^")
    return "\n".join(shown)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from, the first cause last."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _node_of(error: BaseException) -> Any:
    """The FX node that was being lowered, from the frames that the error passed through."""
    found = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "run_node":
            node = frame.f_locals.get("n")
            if hasattr(node, "meta") and hasattr(node, "target"):
                found = node
    return found


def _words(error: BaseException) -> str:
    output = getattr(error, "output", None)  # of a C++ compiler
    return str(output) if isinstance(output, str) and output else str(error)


def first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")
