"""The CUDA engine's arithmetic and its bookkeeping of layouts, through Triton's interpreter on CPU memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelscope.fingerprint.cuda import engine as cuda
from kernelscope.fingerprint.cuda.kernels import bits as cuda_kernels
from kernelscope.fingerprint.definition import MASK64, reference_sum


class InterpretedEngine(cuda.Engine):
    """The same kernels, launched by the interpreter."""

    def __init__(self) -> None:
        self.at_once = cuda_kernels.TENSORS_AT_ONCE
        self._flat = lambda **how: cuda_kernels.flat
        self._strided = lambda **how: cuda_kernels.strided
        self._transposed = lambda **how: cuda_kernels.transposed


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(kernel: Any, programs: int, stream: int, args: tuple[int, ...]) -> None:
        kernel[(programs,)](*args)

    monkeypatch.setattr(cuda, "engine", lambda device: InterpretedEngine())
    monkeypatch.setattr(cuda, "launch", launch)
    monkeypatch.setattr(cuda, "_BLOCK", 32)
    monkeypatch.setattr(cuda, "_WORDS_A_PROGRAM", 64)
    monkeypatch.setattr(cuda, "_PROGRAMS_AT_MOST", 3)
    monkeypatch.setattr(cuda, "_TILE_ROWS", 4)
    monkeypatch.setattr(cuda, "_TILE_WORDS", 2)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)


def sums(tensors: list[torch.Tensor]) -> list[int]:
    log = torch.zeros(len(tensors), dtype=torch.int64)
    assert cuda.accumulate(tensors, log.data_ptr(), 0) == [True] * len(tensors)
    return [total & MASK64 for total in log.tolist()]


def expected(tensor: torch.Tensor) -> int:
    return reference_sum(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def layouts(base: torch.Tensor) -> list[torch.Tensor]:
    return [
        base,
        base[1:],
        base[3:-2],
        base[::2],
        base[:96].view(8, 12).t(),
        base[:96].view(8, 12)[:, 2:10],
        base[:96].view(2, 6, 8).transpose(1, 2),
        base[:100].view(5, 20)[:4, 3:17].t(),
        base[:96].view(2, 4, 3, 4)[:, ::2, 1:, ::3],
        base[:96].view(2, 4, 3, 4).permute(3, 1, 0, 2),
        base[:1].expand(17),
        base[:6].view(2, 3, 1).expand(2, 3, 5),
        base[:0],
        base[5],
    ]


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.float64, torch.complex128], ids=str
)
def test_layouts(dtype: torch.dtype) -> None:
    base = torch.randint(0, 256, (101 * dtype.itemsize,), dtype=torch.uint8).view(dtype)
    assert sums(layouts(base)) == [expected(each) for each in layouts(base)]


def test_sizes_around_blocks_and_programs() -> None:
    tensors = [
        torch.randint(0, 256, (n,), dtype=torch.uint8) for n in (1, 7, 8, 9, 255, 256, 257, 511, 513, 2000)
    ]
    assert sums(tensors) == [expected(each) for each in tensors]


def test_too_many_dimensions_and_lazy_conjugates_are_left_to_the_caller() -> None:
    many = torch.zeros(4, 4, 4, 4, 4, 4, 4)[::2, ::2, ::2, ::2, ::2, ::2, ::2]
    lazy = torch.ones(3, dtype=torch.complex64).conj()
    log = torch.zeros(2, dtype=torch.int64)
    assert cuda.accumulate([many, lazy], log.data_ptr(), 0) == [False, False]
    assert log.tolist() == [0, 0]
