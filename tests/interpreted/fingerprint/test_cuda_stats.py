"""The CUDA engine's statistics through Triton's interpreter on CPU memory, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl
from tests.interpreted.fingerprint.test_cuda_engine import InterpretedEngine as HashingEngine
from tests.interpreted.fingerprint.test_planned_fingerprints import InterpretedKernel
from tests.support.stats_reference import assert_close, reference, sample

from kernelscope.fingerprint.cuda import engine as cuda
from kernelscope.fingerprint.cuda import plans as cuda_plans
from kernelscope.fingerprint.cuda import stats as cuda_stats
from kernelscope.fingerprint.cuda import stats_batches as cuda_stats_batches
from kernelscope.fingerprint.cuda import stats_plans as cuda_stats_plans
from kernelscope.fingerprint.cuda.kernels import planned as cuda_plan_kernel
from kernelscope.fingerprint.cuda.kernels import records as cuda_records
from kernelscope.fingerprint.cuda.kernels import stats as cuda_stats_kernels
from kernelscope.fingerprint.definition import MASK64, reference_sum
from kernelscope.fingerprint.log import DeviceLog
from kernelscope.fingerprint.stats import ROW_LENGTH, Stats

DTYPES = list(cuda_stats.CODES)


class InterpretedEngine(cuda_stats.Engine):
    """The same kernels, launched by the interpreter."""

    def __init__(self) -> None:
        self._hopper = False
        self._flat = lambda **how: cuda_stats_kernels.flat
        self._strided = lambda **how: cuda_stats_kernels.strided
        self._merge = lambda **how: cuda_records.merge


class HostMemory(DeviceLog):
    """A log whose device is the CPU, because that is where the interpreter works."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu", 0), stats=True)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(kernel: Any, programs: int, stream: int, args: tuple[int, ...]) -> None:
        kernel[(programs,)](*args)

    monkeypatch.setattr(cuda_stats, "engine", lambda device: InterpretedEngine())
    monkeypatch.setattr(cuda, "engine", lambda device: HashingEngine())
    monkeypatch.setattr(cuda, "launch", launch)
    monkeypatch.setattr(cuda, "is_hopper", lambda device: False)
    planned, flat = map(InterpretedKernel, (cuda_plan_kernel.planned, cuda_plan_kernel.planned_flat))
    monkeypatch.setattr(cuda_plans, "_kernel", lambda device, last: planned)
    monkeypatch.setattr(cuda_plans, "_flat_kernel", lambda device: flat)
    monkeypatch.setattr(cuda_records, "_MERGED_AT_ONCE", tl.constexpr(8))  # each takes the interpreter long
    monkeypatch.setattr(cuda_stats_batches, "BLOCK", 32)
    monkeypatch.setattr(cuda_stats_batches, "BYTES_A_PROGRAM", 512)
    monkeypatch.setattr(cuda_stats_batches, "PROGRAMS_AT_MOST", 3)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)


def measured(tensors: list[torch.Tensor]) -> list[tuple[int, Stats]]:
    log = HostMemory()
    log.reserve([0] * len(tensors), [t.numel() for t in tensors])
    assert cuda_stats.accumulate(tensors, log, 0) == [True] * len(tensors)
    found = []
    for i, tensor in enumerate(tensors):
        rows = log.stats_entry(i)
        assert len(rows) == ROW_LENGTH
        found.append((int(log.sum_entry(i)) & MASK64, Stats.from_row(rows.tolist(), tensor.numel())))
    for scratch in log._scratch.values():
        assert not scratch[: cuda_stats_batches.COUNTERS].any(), (
            "counters are left as zero for the next launch"
        )
    return found


def check(tensors: list[torch.Tensor]) -> None:
    for tensor, (total, stats) in zip(tensors, measured(tensors), strict=True):
        assert total == reference_sum(logical_bytes(tensor)), (tensor.dtype, tensor.shape, tensor.stride())
        assert_close(stats, reference(tensor), tensor)


def logical_bytes(tensor: torch.Tensor) -> bytes:
    if tensor.itemsize == 16:
        tensor = torch.view_as_real(tensor)
    carrier = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize]
    flat: bytes = np.asarray(tensor.view(carrier).contiguous().reshape(-1)).tobytes()
    return flat


def layouts(base: torch.Tensor) -> list[torch.Tensor]:
    return [
        base,
        base[1:],
        base[::2],
        base[:96].view(8, 12).t(),
        base[:96].view(8, 12)[:, 2:10],
        base[:96].view(2, 6, 8).transpose(1, 2),
        base[:96].view(2, 4, 3, 4)[:, ::2, 1:, ::3],
        base[:96].view(2, 4, 3, 4).permute(3, 1, 0, 2),
        base[:96].view(12, 8)[:, :4].t(),
        base[:6].view(2, 3, 1).expand(2, 3, 5),
        base[:0],
        base[5],
    ]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("wild", [False, True], ids=["finite", "wild"])
def test_layouts(dtype: torch.dtype, wild: bool) -> None:
    check(layouts(sample(dtype, 97, wild=wild)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.complex128], ids=str)
def test_sizes_around_blocks_and_programs(dtype: torch.dtype) -> None:
    size = dtype.itemsize
    sizes = {max((n + d) // size, 1): n == 1024 for n in (256, 1024, 2048) for d in (-size, 0, size)}
    check([sample(dtype, n, seed=n, wild=wild) for n, wild in sizes.items()])


def test_one_wild_number_anywhere() -> None:
    for number in (float("nan"), float("inf"), float("-inf")):
        for place in (0, 64, 299):
            for dtype in (torch.float32, torch.float8_e4m3fn):
                tensor = sample(dtype, 300, wild=False)
                tensor[place] = torch.tensor(number).to(dtype)  # infinity becomes a NaN where there is none
                check([tensor])


def test_more_records_than_are_merged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_stats_batches, "PROGRAMS_AT_MOST", 1000)
    tensor = sample(torch.float32, 140 * 512 // 4 + 3, wild=False)
    assert cuda_stats_batches.programs_for(tensor.nbytes) == 140
    tensor[5000] = float("nan")
    check([tensor])


def test_a_constant_far_from_zero_has_no_deviation() -> None:
    for value in (1e6 + 0.1, -3.3e30, 1e-30):
        for dtype in (torch.float32, torch.float64):
            tensor = torch.full((700,), value, dtype=dtype)
            [(_, stats)] = measured([tensor])
            exact = tensor[0].double().item()
            assert (stats.mean, stats.std, stats.min, stats.max) == (exact, 0.0, exact, exact)


ALMOST_CONSTANT = {torch.uint16: (65535, 65534), torch.float16: (2046, 2047), torch.uint8: (255, 254)}


@pytest.mark.parametrize("dtype", ALMOST_CONSTANT, ids=str)
def test_one_number_unlike_the_others(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of squares that agree in all but their last digits."""
    monkeypatch.setattr(cuda_stats_batches, "PROGRAMS_AT_MOST", 1)
    most, one = ALMOST_CONSTANT[dtype]
    tensor = torch.full((9001,), most, dtype=torch.int32).to(dtype)
    tensor[4000] = one
    want = reference(tensor)
    [(_, stats)] = measured([tensor])
    assert stats.std == pytest.approx(want.std, rel=1e-12, abs=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_an_outlier_is_what_the_others_are_not_summed_up_around(dtype: torch.dtype) -> None:
    tensor = torch.full((9001,), 100 / 3, dtype=torch.float64).to(dtype)
    tensor[0] = 10**9
    check([tensor])


def test_records_unlike_the_first_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight are merged at once: of nine, the first have no number, or one that is far from the others'."""
    monkeypatch.setattr(cuda_stats_batches, "PROGRAMS_AT_MOST", 9)
    tensor = sample(torch.float64, 9 * 32 * 4) * 1e-3 + 1e6
    tensor.view(4, 9, 32)[:, :8] = float("nan")
    check([tensor])
    tensor.view(4, 9, 32)[0, :8, 0] = 3e15
    check([tensor])


def test_floating_point_numbers_share_a_launch_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel is compiled for each set of dtypes in a launch: of all sets there would be too many."""
    launches = []
    launch = cuda.launch
    monkeypatch.setattr(cuda, "launch", lambda *args: (launches.append(args), launch(*args)))
    floats = [torch.float16, torch.bfloat16, torch.float32]
    for dtypes, count in (
        ([floats[n % 3] for n in range(8)], 1),
        ([floats[n % 3] for n in range(9)], 2),
        ([torch.int64, torch.bfloat16, torch.bool, torch.float32, torch.int64], 3),
    ):
        launches.clear()
        check([sample(dtype, 40 + n) for n, dtype in enumerate(dtypes)])
        assert len(launches) == count


class Chunk:
    writes = 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.complex128], ids=str)
def test_as_planned(dtype: torch.dtype) -> None:
    """Several launches leave records, one at the end merges them; views have the numbers of their tensors."""
    base = sample(dtype, 97 * 6, wild=True)
    tensors = [*layouts(base[:97]), base, base[:96].view(8, 12).t(), base[: 97 * 4].view(97, 4)]
    views = {len(tensors) - 1: len(tensors)}  # the last, and the same transposed
    tensors.append(tensors[-1].t())
    described = [cuda.Layout(t.shape, t.stride(), t.itemsize) for t in tensors]
    records, rows = cuda_stats_plans.Records(), range(len(tensors) - 1)
    codes = [cuda_stats.CODES[dtype]] * len(tensors)
    flushes = [
        list(cuda_stats_plans.parts_of_flush(some, described, codes, views, records))
        for some in (rows[:5], rows[5:])
    ]
    room = torch.zeros(cuda_stats_batches.words_of_records(records.count), dtype=torch.float64)
    log = HostMemory()
    log.reserve([0] * len(tensors), [t.numel() for t in tensors])
    chunks = Chunk(), Chunk()
    execution = (log.address(0), 0, chunks[0], log.stats_address(0), room.data_ptr(), chunks[1], None, 0)
    for flush, places in zip(flushes, (rows[:5], rows[5:]), strict=True):
        for part in flush:
            table = torch.tensor(part.table, dtype=torch.int64)
            part.bind(table.data_ptr(), 0)(execution, *(tensors[i].data_ptr() for i in places))
    table = torch.tensor(records.table, dtype=torch.int64)
    records.bind(table.data_ptr(), 0)(execution)
    assert chunks[0].writes
    assert chunks[1].writes == 1
    looked_at = measured(tensors)
    for i, tensor in enumerate(tensors):
        if tensor.numel():
            stats = Stats.from_row(log.stats_entry(i).tolist(), tensor.numel())
            assert (int(log.sum_entry(i)) & MASK64, stats) == looked_at[i]
    assert looked_at[-1][1] == looked_at[-2][1]


def test_numberless_dtypes_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[torch.Tensor]] = []
    monkeypatch.setattr(cuda, "accumulate", lambda tensors, log, device: seen.append(tensors) or [True])
    bare = torch.zeros(3, dtype=torch.uint8).view(torch.bits8)
    measured([torch.ones(2), bare, torch.ones(2)])
    assert [t.dtype for [t] in seen] == [torch.bits8]


def test_lazy_conjugates_are_left_to_the_caller() -> None:
    log = HostMemory()
    log.reserve([0], [3])
    assert cuda_stats.accumulate([torch.ones(3, dtype=torch.complex64).conj()], log, 0) == [False]


def test_the_scratch_grows() -> None:
    log = HostMemory()
    small = log.scratch(0, 1)
    assert log.scratch(0, 1) == small != log.scratch(1, 1)
    log.scratch(0, 1 << 20)
    assert len(log._scratch[0]) == cuda_stats_batches.words_of_records(1 << 20)
    assert [t.data_ptr() for t in log._outgrown] == [small]


def test_programs_depend_on_the_size_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert [cuda_stats_batches.programs_for(n) for n in (0, 1, 16 << 10, 32 << 10)] == [0, 1, 1, 2]
    most = cuda_stats_batches.PROGRAMS_AT_MOST
    assert cuda_stats_batches.programs_for(1 << 30) == most
    assert cuda_stats_batches.programs_for(most * cuda_stats_batches.BYTES_AT_MOST + 1) == 2 * most
    # Squares of bytes are summed in 32 bits a lane.
    nbytes = 140 << 30
    in_a_lane = nbytes / cuda_stats_batches.programs_for(nbytes) / cuda_stats_batches.BLOCK
    assert in_a_lane * 255**2 < 2**31


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.itemsize == 1 and d != torch.bool], ids=str)
def test_every_byte(dtype: torch.dtype) -> None:
    every = torch.arange(256, dtype=torch.uint8)
    finite = every[torch.isfinite(every.view(dtype).double())]
    # With full tiles, of finite numbers and of all; then some alone, NaNs of several dtypes among them.
    check([finite.repeat(2).view(dtype), every.repeat(2).view(dtype)])
    check([byte.view(dtype) for byte in every[[0, 1, 8, 126, 127, 128, 129, 255]]])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int16, torch.uint16], ids=str)
def test_many_short_patterns(dtype: torch.dtype) -> None:
    every = torch.arange(-(1 << 15), 1 << 15, 97, dtype=torch.int32).to(torch.int16)
    wild = every.view(dtype)
    check([wild, every[torch.isfinite(wild.double())].view(dtype)])
