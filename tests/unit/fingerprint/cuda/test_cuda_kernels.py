"""The CUDA engine's kernels compile for a GPU, on a machine without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from kernelscope.fingerprint.cuda import planned_layouts  # noqa: E402
from kernelscope.fingerprint.cuda import stats_batches as cuda_stats_batches  # noqa: E402
from kernelscope.fingerprint.cuda.kernels import bits as cuda_kernels  # noqa: E402
from kernelscope.fingerprint.cuda.kernels import nan_scan as scan_kernel  # noqa: E402
from kernelscope.fingerprint.cuda.kernels import numbers as cuda_numbers  # noqa: E402
from kernelscope.fingerprint.cuda.kernels import planned as cuda_plan_kernel  # noqa: E402
from kernelscope.fingerprint.cuda.kernels import records as cuda_records  # noqa: E402
from kernelscope.fingerprint.cuda.kernels import running_sums, sums, words  # noqa: E402
from kernelscope.fingerprint.cuda.kernels import stats as cuda_stats_kernels  # noqa: E402
from kernelscope.fingerprint.definition import DTYPE_CODES  # noqa: E402

STRIDED = {"NUMBER": tl.uint32, "BLOCK": 1024}
KERNELS = [
    ("flat", {"BLOCK": 1024, "MISALIGNED": False}),
    ("flat", {"BLOCK": 1024, "MISALIGNED": True}),
    ("strided", {"WIDTH": 8, "DIMS": 1, **STRIDED}),
    ("strided", {"WIDTH": 4, "DIMS": 3, **STRIDED}),
    ("strided", {"WIDTH": 2, "DIMS": 5, **STRIDED}),
    ("transposed", {"WIDTH": 2, "ROWS": 64, "WORDS": 16}),
    ("transposed", {"WIDTH": 8, "ROWS": 64, "WORDS": 16}),
    ("transposed", {"WIDTH": 2, "ROWS": 32, "WORDS": 16, "PAIRED": True}),
    ("planned", {"BLOCK": 512, "ROWS": 32, "WORDS": 16, "LAST": planned_layouts.FLAT, "HOPPER": True}),
    ("planned", {"BLOCK": 512, "ROWS": 32, "WORDS": 16, "LAST": planned_layouts.BOTH, "HOPPER": True}),
    ("planned", {"BLOCK": 512, "ROWS": 32, "WORDS": 16, "LAST": planned_layouts.STRIDED, "HOPPER": True}),
]


def compiled(kernel: Any, constants: dict[str, Any]) -> str:
    """PTX for Hopper."""
    signature = {n: "constexpr" if n in constants else "i64" for n in kernel.arg_names}
    positions = {(kernel.arg_names.index(n),): value for n, value in constants.items()}
    made = triton.compile(ASTSource(kernel, signature, positions), target=GPUTarget("cuda", 90, 32))
    ptx: str = made.asm["ptx"]
    return ptx


@pytest.mark.parametrize(("name", "constants"), KERNELS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(KERNELS)])
def test_compiles_for_hopper(name: str, constants: dict[str, Any]) -> None:
    ptx = compiled(getattr(cuda_plan_kernel if name == "planned" else cuda_kernels, name), constants)
    width = 32 if constants.get("PAIRED") else 8 * constants.get("WIDTH", 8)
    assert f"ld.global.b{width}" in ptx
    assert "red.global" in ptx or "atom.global" in ptx


FLAT = {"MISALIGNED": False, "BLOCK": cuda_stats_batches.BLOCK, "ROW": 9, "HOPPER": True}


@pytest.mark.parametrize(
    "dtypes", [["float32"], ["bfloat16", "int64"], ["float8_e4m3fn", "bool"], ["complex128"]], ids=str
)
def test_statistics_compile_for_hopper(dtypes: list[str]) -> None:
    ptx = compiled(cuda_stats_kernels.flat, {"KINDS": sum(1 << DTYPE_CODES[d] for d in dtypes), **FLAT})
    assert "atom.global.gpu.acq_rel" in ptx or "atom.acq_rel.gpu.global" in ptx, (
        "the last program must see all"
    )
    assert "ld.global.cg" in ptx, "and not from its own cache"
    assert ".ftz" not in ptx, "subnormal numbers count"
    before, waits, _ = ptx.partition("griddepcontrol.wait")
    assert waits, "started early, it waits for what it reads"
    assert ".global" not in before.partition("{")[2]


@pytest.mark.parametrize(("dtype", "width"), [("float32", 4), ("complex128", 8), ("float8_e5m2", 1)])
def test_strided_statistics_compile_for_hopper(dtype: str, width: int) -> None:
    code = DTYPE_CODES[dtype]
    how = {"KIND": code, "WIDTH": width, "DIMS": 3, "NUMBER": tl.uint32, "BLOCK": cuda_stats_batches.BLOCK}
    how |= {"ROW": 9, "HOPPER": False}
    ptx = compiled(cuda_stats_kernels.strided, how)
    assert f"ld.global.b{8 * width}" in ptx
    assert "griddepcontrol" not in ptx


OTHERS = [
    (cuda_plan_kernel.planned_flat, {"BLOCK": 512, "HOPPER": True}),
    (cuda_records.merge, {"ROW": 9, "HOPPER": True}),
    (scan_kernel.scan, {"BLOCK": 1024, "HOPPER": True}),
]


@pytest.mark.parametrize(("kernel", "constants"), OTHERS, ids=["planned_flat", "merge", "scan"])
def test_others_compile_for_hopper(kernel: Any, constants: dict[str, Any]) -> None:
    ptx = compiled(kernel, constants)
    assert "ld.global" in ptx
    assert "griddepcontrol.wait" in ptx


MODULES = [cuda_kernels, cuda_numbers, cuda_plan_kernel, cuda_records, cuda_stats_kernels, scan_kernel]
MODULES += [running_sums, sums, words]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_no_global_is_unlike_itself(module: Any) -> None:
    """Triton compares a global that several functions use with `!=`: a NaN would be another one each time."""
    values = {name: getattr(value, "value", value) for name, value in vars(module).items()}
    assert [name for name, value in values.items() if isinstance(value, float) and value != value] == []


def test_every_module_of_kernels_is_looked_at() -> None:
    files = Path(cuda_kernels.__file__).parent.glob("*.py")
    with_kernels = {path.stem for path in files if "@triton.jit" in path.read_text()}
    assert with_kernels == {module.__name__.rpartition(".")[2] for module in MODULES}
