"""The kernel for planned fingerprints, through Triton's interpreter on CPU memory."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from tests.interpreted.fingerprint.test_cuda_engine import InterpretedEngine

from kernelscope.fingerprint.cuda import engine as cuda
from kernelscope.fingerprint.cuda import planned_layouts
from kernelscope.fingerprint.cuda import plans as cuda_plans
from kernelscope.fingerprint.cuda.kernels import planned as cuda_plan_kernel
from kernelscope.fingerprint.definition import MASK64, reference_sum


class Chunk:
    writes = 0


class InterpretedKernel:
    function = packed_metadata = None

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def run(self, programs: int, *rest: Any) -> None:
        self._kernel[(programs,)](*rest[8:])


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(kernel: Any, programs: int, stream: int, args: tuple[int, ...]) -> None:
        kernel[(programs,)](*args)

    planned, flat = (
        InterpretedKernel(kernel) for kernel in (cuda_plan_kernel.planned, cuda_plan_kernel.planned_flat)
    )
    monkeypatch.setattr(cuda_plans, "_kernel", lambda device, last: planned)
    monkeypatch.setattr(cuda_plans, "_flat_kernel", lambda device: flat)
    monkeypatch.setattr(cuda, "engine", lambda device: InterpretedEngine())
    monkeypatch.setattr(cuda, "launch", launch)
    monkeypatch.setattr(cuda, "is_hopper", lambda device: False)
    for name, value in {
        "_BLOCK": 32, "_WORDS_A_PROGRAM": 64, "_PROGRAMS_AT_MOST": 3, "_TILE_ROWS": 4, "_TILE_WORDS": 2,
    }.items():  # fmt: skip
        monkeypatch.setattr(cuda, name, value)
    monkeypatch.setattr(cuda_plans, "_PROGRAMS_AT_MOST", 2)


def layouts(tensors: list[torch.Tensor]) -> list[cuda.Layout]:
    return [cuda.Layout(t.shape, t.stride(), t.itemsize) for t in tensors]


def sums(tensors: list[torch.Tensor], views: dict[int, int] | None = None) -> list[int]:
    """`views` are read in the same pass as others, by their places."""
    views = views or {}
    rows = [i for i in range(len(tensors)) if i not in views.values()]
    parts = list(cuda_plans.parts_of_flush(list(enumerate(rows)), layouts(tensors), views))
    tables = [torch.tensor(part.table, dtype=torch.int64) for part in parts]
    log = torch.zeros(len(tensors), dtype=torch.int64)
    chunk = Chunk()
    for part, table in zip(parts, tables, strict=True):
        addresses = [tensors[row].data_ptr() for row in rows]
        part.bind(table.data_ptr(), 0)((log.data_ptr(), 0, chunk, 0), *addresses)
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
    kinds = {next(iter(cuda_plans.numbers_of(layout)), None) for layout in layouts(tensors)}
    assert planned_layouts.RUNS in kinds
    assert (planned_layouts.PAIRED in kinds) == (dtype.itemsize == 2)
    assert sums(tensors) == [expected(t) for t in tensors]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_weights_of_convolutions_with_the_channels_last(dtype: torch.dtype) -> None:
    base = torch.arange(20_000).to(dtype)
    weights = [
        base[start:][: o * i * h * w].view(o, h, w, i).permute(0, 3, 1, 2)
        for start, o, i, h, w in [(0, 8, 8, 3, 3), (8, 5, 12, 3, 3), (16, 7, 3, 2, 3), (24, 4, 6, 5, 5)]
    ]
    kinds = {cuda_plans.numbers_of(layout)[0] for layout in layouts(weights)}
    assert planned_layouts.STRIDED_2 in kinds
    tensors = [*weights, base[:64].view(8, 8).t(), base[:80], base[::5], weights[1][:, ::2], *weights]
    assert sums(tensors) == [expected(t) for t in tensors]


def test_one_alone_and_many_together() -> None:
    base = torch.arange(500, dtype=torch.int32)
    for count in range(1, 12):
        tensors = [base[i : i + 40 * i + 1] for i in range(count)]
        assert sums(tensors) == [expected(t) for t in tensors]
        tensors = [base[2 * i : 42 * i + 1] for i in range(count)]  # all aligned
        assert sums(tensors) == [expected(t) for t in tensors]
        assert sums([*tensors, base[::3]]) == [expected(t) for t in [*tensors, base[::3]]]


def test_small_tensors_of_all_layouts_in_one_launch() -> None:
    base = torch.arange(4000, dtype=torch.int32)
    kinds = [
        base[:80],
        base[:96].view(8, 12).t(),
        base[:96].view(8, 12)[:, :8],
        base[:288].view(8, 3, 3, 4).permute(0, 3, 1, 2),
    ]
    tensors = [kinds[i % 4] for i in range(planned_layouts.TENSORS_AT_ONCE)]
    assert parts(tensors) == ["Together"]
    assert sums(tensors) == [expected(t) for t in tensors]
    assert parts([*tensors, base[:80]]) == ["Contiguous", "Together"]
    assert parts([base[:80]] * 9) == ["Contiguous", "Contiguous"]
    flat = [torch.empty(1 << 20, dtype=torch.int32, device="meta")] * 8
    assert parts([*flat, kinds[1]]) == ["Contiguous", "Together"], "read faster by the kernel that knows less"
    assert parts([*flat[:7], kinds[1]]) == ["Together"]


def parts(tensors: list[torch.Tensor]) -> list[str]:
    """The launches that read them."""
    wanted = list(enumerate(range(len(tensors))))
    return [type(part).__name__ for part in cuda_plans.parts_of_flush(wanted, layouts(tensors), {})]


SHAPES = [(4, 4), (8, 12), (24, 4), (4, 100), (36, 40), (2, 8, 12), (3, 4, 20), (5, 16, 4)]


@pytest.mark.parametrize("start", [0, 1])
def test_as_it_lies_and_swapped_in_one_pass(start: int) -> None:
    base = torch.randint(0, 256, (1 << 14,), generator=torch.Generator().manual_seed(2)).to(torch.uint8)
    tensors: list[torch.Tensor] = []
    for shape in SHAPES:
        tensor = base.view(torch.bfloat16)[start:][: torch.Size(shape).numel()].view(shape)
        tensors += [tensor, tensor.transpose(-1, -2)]
    tensors.append(base[: 8 * 99])
    views = {i: i + 1 for i in range(0, 2 * len(SHAPES), 2)}
    laid_out = layouts(tensors)
    assert all(cuda_plans.can_be_swapped(laid_out[i], laid_out[view]) for i, view in views.items())
    assert sums(tensors, views) == [expected(t) for t in tensors]


def test_what_takes_a_pass_of_its_own() -> None:
    base = torch.zeros(1 << 12, dtype=torch.bfloat16)
    for tensor, view in [
        (base[:96].view(8, 12), base[:96].view(8, 12)),
        (base[:80].view(8, 10), base[:80].view(8, 10).t()),
        (base[:84].view(6, 14), base[:84].view(6, 14).t()),
        (base[:96].view(8, 12), base[:192].view(8, 24)[:, ::2].t()),
        (base[:96].view(8, 12), base[:128].view(8, 16)[:, :12].t()),
        (base[:192].view(2, 8, 12), base[:288].view(2, 12, 12)[:, :8].transpose(1, 2)),
        (base[:192].view(2, 8, 12), base[:192].view(2, 8, 12).permute(2, 1, 0)),
        (base.view(torch.int32)[:96].view(8, 12), base.view(torch.int32)[:96].view(8, 12).t()),
    ]:
        assert not cuda_plans.can_be_swapped(*layouts([tensor, view])), (view.shape, view.stride())


def test_launches_for_layouts_of_their_own_are_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of convolutions and masks, with the channels last: C++ launches them, too."""
    monkeypatch.setattr(cuda_plans, "_NARROW_AT_MOST", 0)
    monkeypatch.setattr(cuda_plans, "prepared", lambda *given: given)
    monkeypatch.setattr(torch.cuda, "device", lambda index: nullcontext())
    numbers = torch.arange(8 * 8 * 9).view(8, 8, 3, 3)
    for dtype in (torch.bfloat16, torch.float32, torch.bool, torch.int64):
        tensor = numbers.to(dtype).to(memory_format=torch.channels_last)
        [layout] = layouts([tensor])
        [part] = cuda_plans.parts_of_flush([(2, 1)], [layout, layout], {})
        made: Any = part.prepare(0, 0)
        kernel, programs, given, of_execution, of_tensors = made
        log = torch.zeros(2, dtype=torch.int64)
        for places, found in ((of_execution, [log.data_ptr()]), (of_tensors, [0, 0, tensor.data_ptr()])):
            for number, which, more in places:
                given[number] = found[which] + more
        constants = InterpretedEngine().for_layout(layout, 0)[2]  # type: ignore[index]
        kernel[(programs,)](*given, *constants)
        assert [total & MASK64 for total in log.tolist()] == [0, expected(tensor)]
