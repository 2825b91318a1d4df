"""Which nodes each launch computes, as Inductor's cache keeps it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from kernelscope.generated_code.launch_comments import call_name

from .records import FxOrigin, Provenance


def provenance_in(compilation: int, mapping: str | None) -> Iterator[Provenance]:
    """Inductor's own mapping: "kernel:handle" to nodes.

    Its stacks are left out: they belong to the program that compiled an equal graph first.
    """
    try:
        nodes = json.loads(mapping or "{}")
    except ValueError:
        return
    if not isinstance(nodes, dict):
        return
    to_pre = nodes.get("postToPre") or {}
    for name, post in (nodes.get("cppCodeToPost") or nodes.get("pyCodeToPost") or {}).items():
        kernel, _, handle = name.rpartition(":")
        if handle.isdigit():
            origins = tuple(FxOrigin(str(n), "", tuple(map(str, to_pre.get(n, ())))) for n in post)
            yield Provenance(compilation, call_name(kernel), int(handle), (), origins)
