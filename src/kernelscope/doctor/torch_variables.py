"""Which environment variables the installed torch reads, found in its files without importing it."""

from __future__ import annotations

import difflib
import mmap
import re
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path

_NAME = re.compile(rb"[\"']((?:TORCH|PYTORCH|INDUCTOR|TRITON|AOT_INDUCTOR|AOTINDUCTOR)[A-Z0-9_]*)[\"']")


def unread_variables(names: list[str]) -> dict[str, str]:
    """Those of `names` that appear nowhere in torch or triton, each with the nearest that does, or ""."""
    if not names:
        return {}
    roots = [root for package in ("torch", "triton") if (root := _root(package)) is not None]
    known = set(_names_in(roots))
    missing = [name for name in names if name not in known]
    if missing:
        found = set(_in_libraries(roots, missing))
        missing = [name for name in missing if name not in found]
    return {name: next(iter(difflib.get_close_matches(name, known, 1, 0.8)), "") for name in missing}


def _root(package: str) -> Path | None:
    spec = PathFinder.find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _names_in(roots: list[Path]) -> Iterator[str]:
    for root in roots:
        for path in root.rglob("*.py"):
            try:
                text = path.read_bytes()
            except OSError:
                continue
            yield from (name.decode() for name in _NAME.findall(text))


def _in_libraries(roots: list[Path], names: list[str]) -> Iterable[str]:
    """Compiled code has its names as plain strings."""
    wanted = {name: name.encode() + b"\0" for name in names}
    for root in roots:
        for path in [*root.rglob("*.so"), *root.rglob("*.so.*")]:
            try:
                with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    yield from (name for name, text in wanted.items() if data.find(text) >= 0)
            except (OSError, ValueError):
                continue
