"""One recorded run of a command, in a process of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kernelscope.startup.recorded_child import watch


def record_once(
    command: list[str], path: Path, options: str, *, recompile: bool, environ: Mapping[str, str]
) -> tuple[int, list[int]]:
    """Its exit status, as `watch` has it, and the signals that came for this process meanwhile."""
    heard: list[int] = []
    with _cache(recompile) as cache:
        status = watch(command, path, options, aside=True, environ={**cache, **environ}, heard=heard)
    return status, heard


@contextmanager
def _cache(recompile: bool) -> Iterator[dict[str, str]]:
    """With `recompile`, the environment of an empty compile cache."""
    if not recompile:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="kernelscope-cache-") as path:
        yield {"TORCHINDUCTOR_CACHE_DIR": path}
