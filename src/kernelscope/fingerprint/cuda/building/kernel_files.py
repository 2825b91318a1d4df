"""Which kernel it is, and where its file lies. Needs no torch and no Triton."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernelscope.native.library_cache import content_of

_SOURCES = (
    *("cuda/kernels/*.py", "cuda/stats_batches.py", "cuda/planned_layouts.py", "definition.py"),
    *("cuda/building/builder.py", "cuda/building/kernel_files.py"),
)  # below `fingerprint`: what decides how a kernel is built


@dataclass(frozen=True, slots=True)
class Spec:
    """One kernel with its constants and options."""

    module: str  # below `kernels`
    kernel: str
    numbers: int  # 64-bit arguments that are given at each launch; then come the constants
    constants: tuple[tuple[str, int | str], ...]  # a word is the name of a type
    num_warps: int
    maxnreg: int | None = None

    @classmethod
    def of(cls, module: str, kernel: str, numbers: int, how: Mapping[str, Any], num_warps: int) -> Spec:
        """`how` has the constants, and perhaps the most registers of a thread."""
        constants = tuple(
            (name, int(value) if isinstance(value, int) else str(value).rpartition(".")[2])
            for name, value in sorted(how.items())
            if name != "maxnreg"
        )
        return cls(module, kernel, numbers, constants, num_warps, how.get("maxnreg"))

    @classmethod
    def from_json(cls, known: dict[str, Any]) -> Spec:
        known["constants"] = tuple((name, value) for name, value in known["constants"])
        return cls(**known)

    @property
    def name(self) -> str:
        return f"{self.module}.{self.kernel}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def file(self, folder: Path, arch: int, triton: str) -> Path:
        """Named by the hash of everything that goes into it."""
        parts = [sources(), triton, arch, self.to_json()]
        key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        return folder / f"{self.name}-sm{arch}-{key[:24]}.kernel"


@dataclass(frozen=True, slots=True)
class KernelFile:
    """A built kernel."""

    symbol: str
    shared: int  # bytes
    threads: int
    image: bytes


@cache
def sources() -> str:
    """The hash of the code of the kernels."""
    folder = Path(__file__).parents[2]
    found = hashlib.sha256()
    for pattern in _SOURCES:
        for path in sorted(folder.glob(pattern)):
            found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def read(file: Path) -> KernelFile | None:
    """None where there is none that is intact."""
    content = content_of(file)
    if content is None:
        return None
    head, _, image = content.partition(b"\n")
    about = json.loads(head)
    return KernelFile(about["symbol"], about["shared"], about["threads"], image)


def as_bytes(built: KernelFile) -> bytes:
    about = {"symbol": built.symbol, "shared": built.shared, "threads": built.threads}
    return json.dumps(about).encode() + b"\n" + built.image
