"""What a compiled graph calls its inputs. Needs no torch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from kernelscope.events import GraphCall
from kernelscope.probes.cpp_wrappers.cpp_text import input_names as cpp_input_names

_CPP = "steal_from_raw_handles_to_raii_handles("
_UNPACKING = re.compile(r"^\s+([\w, ()]+?),?\s*=\s*args$", re.MULTILINE)


def named_inputs(graph_call: GraphCall, inputs: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    names = input_names(graph_call.graph.source)
    if len(names) != len(inputs):  # a graph without a wrapper of that form
        names = tuple(f"input{i}" for i in range(len(inputs)))
    yield from zip(names, list(inputs), strict=True)


@lru_cache(maxsize=256)
def input_names(source: str) -> tuple[str, ...]:
    """Inductor's wrapper begins with `arg0_1, arg1_1 = args`; one in C++ takes them one by one."""
    if _CPP in source:
        return tuple(cpp_input_names(source))
    found = _UNPACKING.search(source)
    return tuple(name for name in re.findall(r"\w+", found[1])) if found else ()
