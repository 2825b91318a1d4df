"""Level "stats" on CUDA: against NumPy, the same on every run and stream, in one launch, without copies."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from tests.support.stats_reference import assert_close, reference, sample
from torch.profiler import ProfilerActivity, profile

import kernelscope
from kernelscope.fingerprint import Fingerprinter, Stats, fingerprint
from kernelscope.fingerprint.cuda import stats as cuda_stats
from kernelscope.fingerprint.cuda import stats_batches as cuda_stats_batches

DTYPES = list(cuda_stats.CODES)


def measured(*tensors: torch.Tensor) -> list[tuple[object, Stats]]:
    taken = Fingerprinter(level="stats")
    slots = taken.take(list(tensors))
    found = [(taken.read(slot), taken.stats(slot)) for slot in slots]
    return [(bits, stats) for bits, stats in found if stats is not None]


def check(hosts: list[torch.Tensor], devices: list[torch.Tensor]) -> None:
    for host, device, (bits, stats) in zip(hosts, devices, measured(*devices), strict=True):
        assert bits == fingerprint(host, level="hash").bits, (host.dtype, host.shape, host.stride())
        assert_close(stats, reference(host), device)


def layouts(base: torch.Tensor) -> list[torch.Tensor]:
    return [
        base,
        base[1:],
        base[3:-2],
        base[::2],
        base[:96].view(8, 12).t(),
        base[:96].view(8, 12)[:, 2:10],
        base[:96].view(2, 6, 8).transpose(1, 2),
        base[:96].view(2, 4, 3, 4).permute(3, 1, 0, 2),
        base[:1].expand(17),
        base[:6].view(2, 3, 1).expand(2, 3, 5),
        base[:0],
        base[5],
    ]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("wild", [False, True], ids=["finite", "wild"])
def test_every_dtype_and_layout(dtype: torch.dtype, wild: bool) -> None:
    host = sample(dtype, 203, wild=wild)
    check(layouts(host), layouts(host.cuda()))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.itemsize == 1 and d != torch.bool], ids=str)
def test_every_byte(dtype: torch.dtype) -> None:
    every = torch.arange(256, dtype=torch.uint8)
    finite = every[torch.isfinite(every.view(dtype).double())]
    # Full tiles of finite numbers, of all; and each alone.
    hosts = [finite.repeat(40).view(dtype), every.repeat(40).view(dtype), *(b.view(dtype) for b in every)]
    check(hosts, [h.cuda() for h in hosts])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_pattern_of_two_bytes(dtype: torch.dtype) -> None:
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
    hosts = [every.view(dtype), every[torch.isfinite(every.view(dtype).double())].view(dtype)]
    check(hosts, [h.cuda() for h in hosts])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.uint8], ids=str)
def test_sizes_around_blocks_and_programs(dtype: torch.dtype) -> None:
    block = 8 * cuda_stats_batches.BLOCK
    share = cuda_stats_batches.BYTES_A_PROGRAM
    sizes = [block, share, 2 * share, 130 * share, cuda_stats_batches.PROGRAMS_AT_MOST * share]
    for nbytes in sizes:
        for extra in (-1, 0, 1):
            host = sample(dtype, nbytes // dtype.itemsize + extra + 1)
            device = host.cuda()
            check([host[:-1], host[1:]], [device[:-1], device[1:]])


def test_one_wild_number_in_a_large_tensor() -> None:
    host = sample(torch.float32, 3_000_001)
    for place in (0, 1_234_567, 3_000_000):
        for number in (math.nan, math.inf, -math.inf):
            wild = host.clone()
            wild[place] = number
            check([wild], [wild.cuda()])


def test_subnormal_numbers_count() -> None:
    host = torch.tensor([1e-40, -3e-42, 0.0], dtype=torch.float32).repeat(5000)
    check([host], [host.cuda()])


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2, torch.complex64], ids=str
)
def test_the_same_tensor_gives_the_same_numbers(dtype: torch.dtype) -> None:
    device = sample(dtype, 5_000_003).cuda()
    tensors = [device, device[1:], device[::3], device[:4_000_000].view(2000, 2000).t()]
    first = measured(*tensors)
    for _ in range(20):
        assert measured(*tensors) == first
    # Others at the same time, and another stream, change nothing.
    noise = torch.randn(1 << 24, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(10):
            noise.mul_(1.0001)
    assert measured(*tensors) == first
    with torch.cuda.stream(side):
        assert measured(*tensors) == first
    assert measured(*[tensors[1], tensors[0]])[1] == first[0]


def test_streams_do_not_disturb_each_other() -> None:
    taken = Fingerprinter(level="stats")
    tensors = [sample(torch.float32, 2_000_000 + n).cuda() for n in range(4)]
    wanted = [measured(t)[0] for t in tensors]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in tensors]
    slots: list[list[int]] = [[] for _ in tensors]
    for _ in range(25):
        for i, (stream, tensor) in enumerate(zip(streams, tensors, strict=True)):
            with torch.cuda.stream(stream):
                slots[i] += taken.take([tensor])
    for i, want in enumerate(wanted):
        assert {(taken.read(slot), taken.stats(slot)) for slot in slots[i]} == {want}


def test_one_launch_for_all_contiguous_tensors_of_a_call() -> None:
    """Floating point numbers of common dtypes share one; any other dtype has its own."""
    floats = (torch.float32, torch.bfloat16, torch.float16, torch.float32)
    assert names_of_launches(floats) == ["flat"]
    assert names_of_launches((*floats, torch.int64)) == ["flat", "flat"]


def names_of_launches(dtypes: Sequence[torch.dtype]) -> list[str]:
    tensors = [sample(dtype, 10_000).cuda() for dtype in dtypes]
    taken = Fingerprinter(level="stats")
    taken.take(tensors)  # compiles
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
        taken.take(tensors)
        torch.cuda.synchronize()
    kernels = [e for e in trace.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    return [e.name for e in kernels if "-> Pinned" not in e.name]  # the log may drain just then


def test_strided_tensors_are_not_copied() -> None:
    base = torch.randn(8192, 8192, device="cuda")
    taken = Fingerprinter(level="stats")
    tensors = [base.t(), base[:, ::2], base[1:, 1:]]
    for tensor in tensors:
        taken.take([tensor])
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    for tensor in tensors:
        taken.take([tensor])
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before < 1 << 20


def test_more_than_two_to_the_31_elements() -> None:
    big = torch.ones((1 << 31) + 5, dtype=torch.uint8, device="cuda")
    big[-1], big[0] = 255, 0
    [(_, stats)] = measured(big)
    n = (1 << 31) + 5
    assert (stats.numel, stats.min, stats.max, stats.zeros, stats.l1) == (n, 0.0, 255.0, 1, n - 2 + 255)
    assert stats.std == pytest.approx(math.sqrt((254**2 + 1) / n - (253 / n) ** 2), rel=1e-9)
    wide = torch.zeros(((1 << 30) + 3, 4), dtype=torch.uint8, device="cuda")
    wide[-1, 1] = 7
    [(_, stats)] = measured(wide[:, :2])
    assert (stats.numel, stats.max, stats.l1, stats.zeros) == (2 * ((1 << 30) + 3), 7.0, 7.0, stats.numel - 1)


def test_in_a_recording() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x.sin() @ w).sqrt().log()

    x, w = torch.randn(64, 128, device="cuda"), torch.randn(128, 32, device="cuda")
    compiled = torch.compile(program)
    with torch.no_grad():
        compiled(x, w)
        with kernelscope.record(values="stats") as run:
            compiled(x, w)
    assert run.calls[0].pre_stats[0] == fingerprint(x).stats
    assert all(call.post_stats.keys() == call.post_hashes.keys() for call in run)
    assert [f.kind for f in run.findings] == ["inf"], "log(0)"
