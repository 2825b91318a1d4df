"""Level "stats" on the CPU against NumPy in float64, and what must not change it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.stats_reference import assert_close, reference, sample

from kernelscope.fingerprint import Fingerprinter, Stats, fingerprint, reference_bits
from kernelscope.fingerprint import torch_bits as hashes
from kernelscope.fingerprint import torch_stats as stats_ops
from kernelscope.fingerprint.cpu import bits as cpu_bits
from kernelscope.fingerprint.cpu import stats as cpu_stats
from kernelscope.fingerprint.stats import NUMBERLESS, ROW_LENGTH
from kernelscope.native.load import OnDemand

DTYPES = [dtype for dtype, name in hashes.DTYPE_NAMES.items() if name not in NUMBERLESS]
# From record.h and stats.cpp.
BLOCK_BYTES, CHUNK_BYTES = 16 << 10, 64 << 10

Engine = Callable[[torch.Tensor], Stats]


def compiled(tensor: torch.Tensor) -> Stats:
    found = cpu_stats.accumulate(tensor)
    assert found is not None
    return Stats.from_row(found[1], tensor.numel())


def plain(tensor: torch.Tensor) -> Stats:
    row = torch.zeros(ROW_LENGTH, dtype=torch.float64)
    stats_ops.stats_into(tensor, row)
    return Stats.from_row(row.tolist(), tensor.numel())


@pytest.fixture(params=[compiled, plain], ids=["compiled", "torch"])
def engine(request: pytest.FixtureRequest) -> Engine:
    made: Engine = request.param
    return made


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def random_bytes(dtype: torch.dtype, numel: int, seed: int = 0) -> torch.Tensor:
    """Any pattern, but for float64 so large or small that sums of squares leave their range."""
    generator = torch.Generator().manual_seed(seed)
    high = 2 if dtype == torch.bool else 256
    raw = torch.randint(0, high, (numel * dtype.itemsize,), dtype=torch.uint8, generator=generator)
    tensor = raw.view(dtype)
    if dtype in (torch.float64, torch.complex128):
        flat = tensor.view(torch.float64)
        size = flat.abs()
        flat[(size < math.inf) & ((size > 1e140) | (size < 1e-140))] = 0.0
    return tensor


def check(engine: Engine, tensor: torch.Tensor) -> None:
    assert_close(engine(tensor), reference(tensor), tensor)


# --- the numbers ---


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["finite", "wild", "bytes"])
def test_every_dtype_and_layout(engine: Engine, dtype: torch.dtype, kind: str) -> None:
    base = random_bytes(dtype, 1200) if kind == "bytes" else sample(dtype, 1200, wild=kind == "wild")
    layouts = [
        base,
        base[:0],
        base.view(30, 40).t()[:, :0],
        base[3],
        base[3:706],
        base[::3],
        base.view(20, 60).t(),
        base.view(20, 5, 12).permute(2, 0, 1),
        base.view(2, 10, 10, 6).permute(0, 3, 1, 2),
        base.view(12, 100)[1:11, 3:98],
        base[:5].view(5, 1).expand(5, 90),
        base[2].expand(3, 11),
    ]
    for tensor in layouts:
        check(engine, tensor)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.itemsize == 1 and d != torch.bool], ids=str)
def test_every_byte(engine: Engine, dtype: torch.dtype) -> None:
    every = torch.arange(256, dtype=torch.uint8)
    check(engine, every.view(dtype))
    for byte in every:
        check(engine, byte.view(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int16, torch.uint16], ids=str)
def test_every_pattern_of_two_bytes(engine: Engine, dtype: torch.dtype) -> None:
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype)
    check(engine, every)
    finite = every[torch.isfinite(every.double())]
    check(engine, finite)
    # Each alone has itself as every number, so a pattern that is misread cannot hide among the others.
    seen = [engine(element).min for element in finite[:: 1 if engine is compiled else 97]]
    assert seen == finite[:: 1 if engine is compiled else 97].double().tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.complex128], ids=str)
def test_sizes_around_each_boundary(engine: Engine, dtype: torch.dtype) -> None:
    for unit in (8 * dtype.itemsize, BLOCK_BYTES, CHUNK_BYTES, 8 * stats_ops.PIECE):
        if engine is plain and unit < 8 * stats_ops.PIECE:
            continue
        for extra in (-1, 0, 1, 7):
            check(engine, sample(dtype, unit // dtype.itemsize + extra, wild=extra == 7))


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Any dtype, strides and offset; ordinary numbers, wild ones, or any bytes."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 9), max_size=4))
    strides = [draw(st.integers(0, 9)) for _ in shape]
    offset = draw(st.integers(0, 9))
    extent = offset + sum((max(n, 1) - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
    seed = draw(st.integers(0, 9))
    kind = draw(st.sampled_from(["finite", "wild", "bytes"]))
    base = (
        random_bytes(dtype, extent, seed)
        if kind == "bytes"
        else sample(dtype, extent, seed=seed, wild=kind == "wild")
    )
    return base.as_strided(shape, strides, offset)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tensor=tensors())
def test_any_strides(engine: Engine, tensor: torch.Tensor) -> None:
    check(engine, tensor)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(
        st.floats(-1e140, 1e140)
        | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e15, 1e15 + 1, 5e-324, 2.0**-1022]),
        max_size=60,
    ),
    repeated=st.integers(1, 300),
)
def test_any_numbers(engine: Engine, values: list[float], repeated: int) -> None:
    tensor = torch.tensor(values * repeated, dtype=torch.float64)
    check(engine, tensor)
    check(engine, tensor.float())


@pytest.mark.parametrize("value", [1e6 + 0.1, -3.3e30, 1e-30, 0.1])
def test_a_constant_has_no_deviation(engine: Engine, value: float) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        tensor = torch.full((100_003,), value, dtype=dtype)
        exact = tensor[0].double().item()
        seen = engine(tensor)
        assert (seen.mean, seen.std, seen.min, seen.max) == (exact, 0.0, exact, exact)


def test_a_small_deviation_far_from_zero(engine: Engine) -> None:
    # Σx² − (Σx)²/n would have no correct digit here.
    tensor = 1e9 + (torch.arange(100_000, dtype=torch.float64) % 2) * 1e-3
    half = (tensor[1] - tensor[0]).item() / 2
    assert engine(tensor).std == pytest.approx(half, rel=1e-9)
    tensor[0] = math.nan
    assert engine(tensor).std == pytest.approx(half, rel=1e-6)  # one more of the upper than of the lower


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("wild", [False, True])
def test_one_number_far_from_all_others(engine: Engine, dtype: torch.dtype, wild: bool) -> None:
    # Around the first of a block the squares of the others would be all but equal, and leave mostly rounding.
    tensor = torch.randn(20_001, generator=torch.Generator().manual_seed(0)).mul(100).to(dtype)
    tensor[0] = tensor[BLOCK_BYTES // dtype.itemsize] = 30_000
    if wild:
        tensor[[7, 19_000]] = math.inf
    exact = [Fraction(x) for x in tensor[tensor.isfinite()].double().tolist()]
    mean = sum(exact) / len(exact)
    std = math.sqrt(sum((x - mean) ** 2 for x in exact) / len(exact))
    seen = engine(tensor)
    assert seen.std == pytest.approx(std, rel=1e-13)
    assert seen.mean == pytest.approx(float(mean), rel=1e-12)
    assert (seen.min, seen.max) == (float(min(exact)), float(max(exact)))


# --- what stays the same ---


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.complex64], ids=str
)
def test_the_number_of_threads_changes_nothing(engine: Engine, dtype: torch.dtype) -> None:
    base = sample(dtype, 700_001 if engine is compiled else 300_001)
    layouts = [base, base[1:], base[::3], base[:300_000].view(300, 1000).t()]
    seen = []
    for threads in (1, 2, 3, 5):
        torch.set_num_threads(threads)
        seen.append([engine(tensor) for tensor in layouts])
    assert all(each == seen[0] for each in seen)


def test_the_layout_changes_nothing_where_there_is_a_compiler() -> None:
    base = sample(torch.float32, 120_000).view(300, 400)
    turned = base.t().contiguous().t()
    assert not turned.is_contiguous()
    assert compiled(turned) == compiled(base)


def test_bits_are_those_of_level_hash() -> None:
    for dtype in DTYPES:
        for numel in (0, 1, 7, 5000, 70_001 // dtype.itemsize):
            tensor = random_bytes(dtype, numel)
            assert fingerprint(tensor).bits == fingerprint(tensor, level="hash").bits
        strided = random_bytes(dtype, 3000).view(50, 60)[1:, ::2].t()
        assert fingerprint(strided).bits == fingerprint(strided, level="hash").bits
    small = random_bytes(torch.float32, 9)
    assert fingerprint(small).bits == reference_bits(small.numpy().tobytes(), "float32")


def test_several_threads_at_once() -> None:
    tensors = [sample(torch.float32, n) for n in (40, 5000, 100_000)]
    wanted = [compiled(tensor) for tensor in tensors]
    wrong: list[int] = []

    def work() -> None:
        for _ in range(10):
            wrong.extend(i for i, t in enumerate(tensors) if compiled(t) != wanted[i])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- the rest ---


def test_lazy_conjugates_and_negations_are_resolved() -> None:
    base = torch.view_as_complex(torch.randn(150, 2))
    for lazy in (base.conj(), base.conj()[1:], base.view(10, 15).conj().t(), base.conj().imag):
        assert lazy.is_conj() or lazy.is_neg()
        stats = fingerprint(lazy).stats
        assert stats is not None
        assert_close(stats, reference(lazy), lazy)


def test_norm_follows_from_the_statistics() -> None:
    assert (
        Stats(3, 1.0, 2.0, 1.5, 0.5, 3.0, 1, 0, 0, 0).norm != Stats(3, 1, 2, 1.5, 0.5, 3.0, 0, 0, 0, 0).norm
    )
    assert math.isnan(compiled(torch.tensor([1.0, math.nan, math.inf])).norm)
    assert compiled(torch.tensor([1.0, -math.inf])).norm == math.inf
    assert compiled(torch.tensor([1.0, -2.0])).norm == 3.0


def test_text() -> None:
    wild = torch.tensor([1.0, 2.0, 0.0, math.nan, math.inf, -math.inf, -math.inf])
    assert str(fingerprint(wild).stats) == "0…2 mean 1 std 0.8165 nan 1 +inf 1 -inf 2 zeros 1"
    assert str(fingerprint(torch.empty(0)).stats) == "empty"
    assert str(fingerprint(torch.tensor([math.nan])).stats) == "nothing finite nan 1"


def test_only_level_stats_has_statistics() -> None:
    taken = Fingerprinter()
    [slot] = taken.take([torch.ones(2)])
    with pytest.raises(ValueError, match='level="stats"'):
        taken.stats(slot)
    taken = Fingerprinter(level="stats")
    [slot, other] = taken.take([torch.ones(2), torch.zeros(1, dtype=torch.uint8).view(torch.bits8)])
    assert taken.read(slot) == fingerprint(torch.ones(2)).bits
    assert taken.stats(slot) == Stats(2, 1.0, 1.0, 1.0, 0.0, 2.0, 0, 0, 0, 0)
    assert taken.stats(other) is None
    with pytest.raises(IndexError, match="no fingerprint"):
        taken.stats(5)


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [fingerprint(sample(dtype, 100, wild=True)) for dtype in DTYPES]
    monkeypatch.setattr(cpu_stats, "LIBRARY", OnDemand(cpu_stats.StatsLibrary))
    monkeypatch.setattr(cpu_bits, "LIBRARY", OnDemand(cpu_bits.BitsLibrary))
    monkeypatch.setattr("kernelscope.config.compilers", lambda: ("no-such-c++",))
    assert "no-such-c++" in cpu_stats.LIBRARY.unavailable()
    for dtype, want in zip(DTYPES, wanted, strict=True):
        tensor = sample(dtype, 100, wild=True)
        seen = fingerprint(tensor)
        assert seen.bits == want.bits
        assert seen.stats is not None
        assert want.stats is not None
        assert_close(seen.stats, want.stats, tensor)
