"""The CUDA engine's kernels compile for a GPU, on a machine without one."""

from __future__ import annotations

from typing import Any

import pytest

triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from kernelscope.fingerprint import cuda_kernels  # noqa: E402

STRIDED = {"NUMBER": tl.uint32, "BLOCK": 1024}
KERNELS = [
    ("flat", {"BLOCK": 1024, "MISALIGNED": False}),
    ("flat", {"BLOCK": 1024, "MISALIGNED": True}),
    ("strided", {"WIDTH": 8, "DIMS": 1, **STRIDED}),
    ("strided", {"WIDTH": 4, "DIMS": 3, **STRIDED}),
    ("strided", {"WIDTH": 2, "DIMS": 5, **STRIDED}),
    ("transposed", {"WIDTH": 2, "ROWS": 64, "WORDS": 16}),
    ("transposed", {"WIDTH": 8, "ROWS": 64, "WORDS": 16}),
]


@pytest.mark.parametrize(("name", "constants"), KERNELS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(KERNELS)])
def test_compiles_for_hopper(name: str, constants: dict[str, Any]) -> None:
    kernel = getattr(cuda_kernels, name)
    signature = {n: "constexpr" if n in constants else "i64" for n in kernel.arg_names}
    positions = {(kernel.arg_names.index(n),): value for n, value in constants.items()}
    compiled = triton.compile(ASTSource(kernel, signature, positions), target=GPUTarget("cuda", 90, 32))
    width = 8 * constants.get("WIDTH", 8)
    assert f"ld.global.b{width}" in compiled.asm["ptx"]
    assert "red.global" in compiled.asm["ptx"] or "atom.global" in compiled.asm["ptx"]
