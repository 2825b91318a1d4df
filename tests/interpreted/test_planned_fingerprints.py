"""The kernel for planned fingerprints, through Triton's interpreter on CPU memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.interpreted.test_cuda_engine import InterpretedEngine

from kernelscope.fingerprint import cuda, cuda_plan_kernel, cuda_plans
from kernelscope.fingerprint.definition import MASK64, reference_sum


class Chunk:
    writes = 0


class InterpretedKernel:
    function = packed_metadata = None

    def run(self, programs: int, *rest: Any) -> None:
        cuda_plan_kernel.planned[(programs,)](*rest[8:])


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(kernel: Any, programs: int, stream: int, args: tuple[int, ...]) -> None:
        kernel[(programs,)](*args)

    monkeypatch.setattr(cuda_plans, "_kernel", lambda device, only_flat: InterpretedKernel())
    monkeypatch.setattr(cuda, "engine", lambda device: InterpretedEngine())
    monkeypatch.setattr(cuda, "_launch", launch)
    for name, value in {
        "_BLOCK": 32, "_WORDS_A_PROGRAM": 64, "_PROGRAMS_AT_MOST": 3, "_TILE_ROWS": 4, "_TILE_WORDS": 2,
    }.items():  # fmt: skip
        monkeypatch.setattr(cuda, name, value)


def sums(tensors: list[torch.Tensor]) -> list[int]:
    layouts = [cuda.Layout(t.shape, t.stride(), t.itemsize) for t in tensors]
    parts = list(cuda_plans.parts_of_flush(range(len(tensors)), layouts))
    tables = [torch.tensor(part.table, dtype=torch.int64) for part in parts]
    log = torch.zeros(len(tensors), dtype=torch.int64)
    chunk = Chunk()
    for part, table in zip(parts, tables, strict=True):
        part.bind(table.data_ptr(), 0)((log.data_ptr(), 0, chunk, 0), *(t.data_ptr() for t in tensors))
    assert not parts or chunk.writes
    return [total & MASK64 for total in log.tolist()]


def expected(tensor: torch.Tensor) -> int:
    return reference_sum(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def layouts_of(base: torch.Tensor) -> list[torch.Tensor]:
    return [
        base,
        base[1:],
        base[3:-2],
        base[::2],
        base[:0],
        base[0],
        base[:96].view(8, 12).t(),
        base[:96].view(8, 12)[:, :8],
        base[:96].view(2, 6, 8).transpose(1, 2),
        base[:96].view(2, 3, 2, 8).permute(0, 2, 1, 3),
        base[1:97].view(2, 3, 2, 8).permute(0, 2, 1, 3),
        base[:96].view(2, 4, 3, 4)[:, ::2, 1:, ::3],
        base[:8].view(1, 8).expand(3, 8),
    ]


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int8, torch.bool], ids=str
)
def test_every_layout(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    base = torch.randint(-90, 90, (1024,)).to(torch.int8).view(torch.uint8)
    base = base % 2 if dtype == torch.bool else base
    tensors = layouts_of(base.view(dtype)[:101])
    assert sums(tensors) == [expected(t) for t in tensors]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int8], ids=str)
def test_runs_and_rows_that_are_read_several_at_once(dtype: torch.dtype) -> None:
    base = torch.randint(0, 256, (1 << 13,), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
    base = base.view(dtype)
    run = 64 // base.itemsize
    wide = base[: 96 * run].view(4, 3, 2, 4, run)
    tensors = [
        wide[:, 1],
        wide.permute(1, 0, 3, 2, 4)[:, 1:],
        wide.flatten(3).permute(2, 1, 0, 3),
        wide.view(4, 3, 2, 2, 2 * run).permute(2, 0, 3, 1, 4),
        wide.flatten(0, 3)[::3],
        wide.view(8, 12, run)[1::2, 1:11:3],
        wide.flatten(1).t(),
        wide.flatten(1)[:, :-1].t(),
        wide.view(4, 12, 2 * run).transpose(1, 2),
        wide.view(4, 12, 2 * run)[:, :, 1:].transpose(1, 2),
        base[2 : 2 + 8 * 24].view(8, 24).t(),
        base[1 : 1 + 8 * 24].view(8, 24).t(),
    ]
    layouts = [cuda.Layout(t.shape, t.stride(), t.itemsize) for t in tensors]
    kinds = {next(iter(cuda_plans._numbers(layout)), None) for layout in layouts}
    assert cuda_plan_kernel.RUNS in kinds
    assert (cuda_plan_kernel.PAIRED in kinds) == (dtype.itemsize == 2)
    assert sums(tensors) == [expected(t) for t in tensors]


def test_one_alone_and_many_together() -> None:
    base = torch.arange(500, dtype=torch.int32)
    for count in range(1, 10):
        tensors = [base[i : i + 40 * i + 1] for i in range(count)]
        assert sums(tensors) == [expected(t) for t in tensors]
