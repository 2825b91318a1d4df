"""The engine against the reference, the definition's claims, and the contexts it is called in."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from kernelscope.fingerprint import (
    DTYPE_CODES,
    Fingerprinter,
    HashFailure,
    NotFingerprintable,
    fingerprint,
    reference_bits,
    why_not,
)
from kernelscope.fingerprint import torch_bits as hashes
from kernelscope.fingerprint import torch_stats as stats_ops
from kernelscope.fingerprint.cpu import bits as cpu
from kernelscope.fingerprint.cpu import stats as cpu_stats
from kernelscope.fingerprint.cuda import engine as cuda
from kernelscope.fingerprint.log import CHUNK_ROWS, DeviceLog
from kernelscope.fingerprint.stats import ROW_LENGTH

ROOT = Path(__file__).parents[3]
DOC = (ROOT / "docs" / "fingerprint.md").read_text()
DTYPES = list(hashes.DTYPE_NAMES)
NUMBERLESS = re.compile(r"bits|u?int[1-7]$|float4")
# Small enough that a tensor of a few hundred bytes has many chunks; 128 is the unit that chunks come in.
SMALL_CHUNK = 128


@pytest.fixture(autouse=True)
def _torch_operations_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small CPU tensors would otherwise be hashed by the reference, and prove nothing."""
    monkeypatch.setattr(hashes, "CPU_SMALL_BYTES", 0)


@pytest.fixture(params=[SMALL_CHUNK, hashes.CPU_CHUNK_BYTES], ids=["many-chunks", "one-chunk"])
def _chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "CPU_CHUNK_BYTES", request.param)


def random_tensor(dtype: torch.dtype, numel: int, seed: int = 0) -> torch.Tensor:
    """A flat tensor of random bytes, NaNs and all; a bool of zeros and ones."""
    generator = torch.Generator().manual_seed(seed)
    high = 2 if dtype == torch.bool else 256
    raw = torch.randint(0, high, (numel * dtype.itemsize,), dtype=torch.uint8, generator=generator)
    return raw.view(dtype)


def logical_bytes(tensor: torch.Tensor) -> bytes:
    """The row-major bytes, element by element, independently of the engine's own walk."""
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    if tensor.numel() == 0:
        return b""
    flat = torch.arange(tensor.numel()).view(tensor.shape)
    size = tensor.itemsize
    raw = bytes(tensor.untyped_storage().tolist())
    offsets = torch.full_like(flat, tensor.storage_offset())
    for dim, stride in enumerate(tensor.stride()):
        steps = torch.arange(tensor.shape[dim]).view([-1 if d == dim else 1 for d in range(tensor.dim())])
        offsets += steps * stride
    return b"".join(raw[o * size : (o + 1) * size] for o in offsets.flatten().tolist())


def expected(tensor: torch.Tensor) -> int:
    return reference_bits(logical_bytes(tensor), str(tensor.dtype).removeprefix("torch."))


def bits(tensor: torch.Tensor) -> int:
    taken = Fingerprinter()
    value = taken.read(taken.take([tensor])[0])
    assert isinstance(value, int)
    return value


def norm(tensor: torch.Tensor) -> float:
    taken = Fingerprinter(["norm"])
    value = taken.read(taken.take([tensor])[0])
    assert isinstance(value, float), value
    return value


# --- against the reference ---


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_and_layout(dtype: torch.dtype) -> None:
    base = random_tensor(dtype, 240)
    layouts = {
        "flat": base,
        "empty": base[:0],
        "scalar": base[3],
        "odd": base[:7],
        "misaligned": base[1:],
        "misaligned-odd": base[3:36],
        "stepped": base[::3],
        "transposed": base.view(12, 20).t(),
        "permuted": base.view(4, 5, 12).permute(2, 0, 1),
        "sliced": base.view(12, 20)[1:11, 3:18],
        "expanded": base[:5].view(5, 1).expand(5, 9),
        "expanded-scalar": base[2].expand(3, 11),
        "ones": base[5:10].view(1, 5, 1).transpose(0, 2),
    }
    for name, tensor in layouts.items():
        assert bits(tensor) == expected(tensor), name


@st.composite
def strided(draw: st.DrawFn) -> torch.Tensor:
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 7), max_size=4))
    strides = [draw(st.integers(0, 9)) for _ in shape]
    offset = draw(st.integers(0, 9))
    extent = offset + sum((max(n, 1) - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
    return random_tensor(dtype, extent, draw(st.integers(0, 3))).as_strided(shape, strides, offset)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tensor=strided(), units=st.integers(1, 3))
def test_any_strides(tensor: torch.Tensor, units: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashes, "CPU_CHUNK_BYTES", units * SMALL_CHUNK)
        assert bits(tensor) == expected(tensor)


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128], ids=str)
def test_conjugate_and_negative_bits_are_resolved(dtype: torch.dtype) -> None:
    base = torch.randn(150, dtype=torch.complex128).to(dtype)
    lazy = [
        base.conj(),
        base.conj()[1:],
        base.view(10, 15).conj().t(),
        base.conj().imag,
        base.conj().imag[3:],
    ]
    assert all(t.is_conj() or t.is_neg() for t in lazy)
    for tensor in lazy:
        assert bits(tensor) == expected(tensor)
        assert bits(tensor) != bits(tensor.conj() if tensor.is_conj() else torch._neg_view(tensor))


@pytest.mark.parametrize("numel", [0, 1, 15, 16, 17, 127, 128, 129, 130])
def test_small_cpu_tensors_take_the_short_way_to_the_same_number(
    numel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor = random_tensor(torch.float32, numel)
    long_way = [bits(tensor), bits(tensor[1:]), bits(tensor[::2])]
    monkeypatch.setattr(hashes, "CPU_SMALL_BYTES", 512)
    assert [bits(tensor), bits(tensor[1:]), bits(tensor[::2])] == long_way


def test_a_base_that_is_not_aligned_in_memory() -> None:
    tensor = torch.frombuffer(bytearray(range(250)), dtype=torch.int16, offset=2, count=100)
    assert tensor.storage_offset() == 0
    assert bits(tensor) == reference_bits(bytes(range(2, 202)), "int16")
    # Most CPUs forgive an unaligned load, so the number alone does not show that there was none.
    assert hashes._flat_words(tensor) is None
    assert hashes._flat_words(tensor.clone()) is not None
    assert hashes._flat_words(tensor.clone()[1:]) is None


def test_the_words_of_a_large_tensor_keep_their_positions_across_chunks() -> None:
    tensor = random_tensor(torch.int64, 3 * hashes.CPU_CHUNK_BYTES // 8 + 5)
    assert bits(tensor) == reference_bits(bytes(tensor.view(torch.uint8).numpy()), "int64")


# --- what the definition promises ---


def test_what_bits_is_sensitive_to() -> None:
    x = torch.linspace(-1, 2, 100)
    swapped, flipped, ulp = x.clone(), x.clone(), x.clone()
    swapped[[3, 70]] = x[[70, 3]]
    flipped[5] = -flipped[5]
    ulp[50] = torch.nextafter(ulp[50], torch.tensor(9.0))
    same_bytes = x.view(torch.int32)
    longer = torch.cat([x, torch.zeros(1)])
    changed = [swapped, flipped, ulp, same_bytes, longer, x.flip(0), -x]
    assert len({bits(t) for t in [x, *changed]}) == len(changed) + 1


@pytest.mark.parametrize("compiled", [True, False])
def test_a_flip_of_any_bit_is_seen(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(cpu, "accumulate", lambda tensor: None)
    base = random_tensor(torch.uint8, 61)  # whole words, and a piece of one
    seen = {bits(base)}
    for byte in range(61):
        for bit in range(8):
            changed = base.clone()
            changed[byte] ^= 1 << bit
            seen.add(bits(changed))
    assert len(seen) == 1 + 61 * 8


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=70), st.randoms(use_true_random=False))
def test_the_order_counts(values: list[int], random: Any) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)
    for dtype in (torch.uint8, torch.float16, torch.float32, torch.int64, torch.complex128):
        one, other = (torch.tensor(v, dtype=torch.int32).to(dtype) for v in (values, shuffled))
        assert (bits(one) == bits(other)) == (values == shuffled)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, (1 << 31) - 1), st.integers(0, (1 << 31) - 1))
def test_a_division_in_the_kernels_is_exact(divisor: int, number: int) -> None:
    magic = cuda.magic(divisor)
    for n in (number, number // divisor * divisor, max(number // divisor * divisor - 1, 0), (1 << 31) - 1):
        product = n * (magic & 0xFFFFFFFFF)
        assert product < 1 << 64
        assert product >> (magic >> 40) == n // divisor


def test_no_two_of_many_random_tensors_collide() -> None:
    """16,000 tensors are more than 10⁸ pairs. Most differ little from one another, as real ones do."""
    generator = torch.Generator().manual_seed(0)
    near = torch.zeros(8000, 12, dtype=torch.int32)
    near.scatter_(1, torch.randint(0, 12, (8000, 2), generator=generator), 1)
    near[:, -1] = torch.arange(8000)
    far = torch.randint(-(1 << 31), (1 << 31) - 1, (8000, 12), generator=generator, dtype=torch.int64)
    rows = [*near, *far.to(torch.int32)]
    taken = Fingerprinter()
    assert len({taken.read(slot) for slot in taken.take(rows)}) == len(rows)


def test_zero_signs_and_nan_payloads_count() -> None:
    assert bits(torch.tensor([0.0])) != bits(torch.tensor([-0.0]))
    quiet, payload, signalling = (
        torch.tensor([pattern], dtype=torch.int32).view(torch.float32)
        for pattern in (0x7FC00000, 0x7FC00001, 0x7F800001)
    )
    assert len({bits(quiet), bits(payload), bits(signalling)}) == 3
    spread = torch.cat([signalling, quiet]).view(2, 1).expand(2, 3).t()
    assert bits(spread) == expected(spread)


def test_shape_and_strides_do_not_count() -> None:
    x = torch.randn(6, 4)
    assert len({bits(t) for t in (x, x.view(2, 12), x.reshape(-1), x.t().contiguous().t(), x[None])}) == 1
    assert bits(torch.empty(0, 3)) == bits(torch.empty(0)) != bits(torch.empty(0, dtype=torch.int32))


# --- norm ---


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_norm_is_as_torchs_own_or_says_that_there_is_none(dtype: torch.dtype) -> None:
    tensor = random_tensor(dtype, 24)
    taken = Fingerprinter(["bits", "norm"])
    seen_bits, seen_norm = taken.read(taken.take([tensor])[0])  # type: ignore[misc]
    assert seen_bits == expected(tensor)
    if NUMBERLESS.match(str(dtype).removeprefix("torch.")):
        assert isinstance(seen_norm, HashFailure)
        assert str(dtype) in seen_norm.message
        assert "use bits" in seen_norm.message
        return
    exact = tensor.to(torch.complex128 if dtype.is_complex else torch.float64)
    want = exact.norm(p=1).item()
    # The order of addition is ours, so the last digit may be.
    assert seen_norm == pytest.approx(want, rel=1e-15 * 24, nan_ok=True)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "torch"])
def test_norm_of_any_layout(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(30, 40, dtype=torch.float64)
    z = torch.randn(30, 40, dtype=torch.complex64)
    monkeypatch.setattr(stats_ops, "PIECE", 128)
    if not compiled:
        monkeypatch.setattr(cpu_stats, "accumulate", lambda tensor: None)
    for tensor in (x, x.t(), x[1:, 3:], x.float(), x.bfloat16().t(), z, z.conj().t(), (x * 100).long()):
        exact = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
        assert norm(tensor) == pytest.approx(exact.norm(p=1).item(), rel=1e-13)
        if not (compiled and tensor.is_conj()):  # a lazy one always goes through torch, its copy does not
            assert norm(tensor) == norm(tensor.clone(memory_format=torch.contiguous_format))
    assert norm(torch.zeros(0)) == 0.0


def test_norm_passes_nan_and_inf_and_keeps_large_integers() -> None:
    assert norm(torch.tensor([1.0, float("-inf")])) == float("inf")
    nan = norm(torch.tensor([1.0, float("nan")]))
    assert math.isnan(nan)
    assert nan == norm(torch.tensor([float("nan"), 2.0]))  # two hashes of the same are equal
    assert nan != 1.0
    assert nan != "nan"
    assert norm(torch.tensor([2**24 + 1])) == 2**24 + 1
    assert norm(torch.tensor([True, False, True])) == 2.0


# --- cost ---


def peak_temporaries(work: Any) -> int:
    """The most bytes that torch's CPU allocator held during `work`, beyond what it held before."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        work()
    held = most = 0
    assert profile.profiler is not None
    events = profile.profiler.kineto_results.events()
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


@pytest.mark.parametrize("layout", ["contiguous", "misaligned", "transposed", "conjugate", "expanded"])
def test_temporaries_are_bounded(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "CPU_CHUNK_BYTES", hashes.DEVICE_CHUNK_BYTES)
    base = torch.ones(8 << 20, dtype=torch.bfloat16)
    tensor = {
        "contiguous": lambda: base.repeat(4),
        "misaligned": lambda: base.repeat(4)[1:],
        "transposed": lambda: base.repeat(4).view(1 << 10, -1).t(),
        "conjugate": lambda: base.repeat(4).view(torch.complex64).conj(),
        "expanded": lambda: base.view(1, -1).expand(4, -1),
    }[layout]()
    assert tensor.numel() * tensor.itemsize > 60 << 20
    slot = torch.zeros(1, dtype=torch.int64)
    peak = peak_temporaries(lambda: hashes.sum_into(tensor, slot))
    # The lower bound shows that the allocations were seen at all.
    assert hashes.DEVICE_CHUNK_BYTES < peak < 48 << 20
    row = torch.zeros(ROW_LENGTH, dtype=torch.float64)
    part = tensor[: max(len(tensor) // 16, 1)]  # many pieces still
    assert part.numel() >= 4 * stats_ops.PIECE
    peak = peak_temporaries(lambda: stats_ops.stats_into(part, row))
    assert 8 * stats_ops.PIECE <= peak < 16 << 20


# --- the contexts it is called in ---


class Spy(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class FunctionSpy(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def everything(tensor: torch.Tensor, taken: Fingerprinter | None = None) -> object:
    taken = taken or Fingerprinter(["bits", "norm", lambda t: t.abs().sum()])
    return taken.read(taken.take([tensor])[0])


def test_no_mode_sees_anything() -> None:
    x = torch.randn(9, 5).t()
    want = everything(x)
    with Spy() as spy, FunctionSpy() as functions:
        assert everything(x) == want
        assert why_not(x) is None
        assert spy.seen == []
        assert functions.seen == []
        x + 1
        assert spy.seen
        assert functions.seen
    assert _get_current_dispatch_mode_stack() == []


def test_inside_torch_dispatch_with_another_mode_around() -> None:
    x, found = torch.randn(7), []
    want = everything(x)

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found.append(everything(x))
            return func(*args, **(kwargs or {}))

    with Spy() as outer, Recorder():
        x + 1
    assert found == [want]
    assert outer.seen == ["aten.add.Tensor"]


CONTEXTS = {
    "inference": lambda: torch.inference_mode(),
    "fake": lambda: FakeTensorMode(),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default-device": lambda: torch.device("meta"),
    "no-grad": lambda: torch.no_grad(),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_the_same_numbers_in_any_context(name: str) -> None:
    x = torch.randn(11, 3, requires_grad=True)
    want = everything(x)
    begun_outside = Fingerprinter(["bits", "norm", lambda t: t.abs().sum()])
    assert everything(x, begun_outside) == want
    with CONTEXTS[name]():
        grad = torch.is_grad_enabled()
        assert everything(x, begun_outside) == want
        begun_inside = Fingerprinter(["bits", "norm", lambda t: t.abs().sum()])
        assert everything(x, begun_inside) == want
        assert torch.is_grad_enabled() is grad
    assert everything(x, begun_inside) == everything(x, begun_outside) == want

    assert not begun_inside.failures(0)
    assert torch.is_grad_enabled()


def test_inference_tensors_and_subclasses_outside_inference_mode() -> None:
    with torch.inference_mode():
        x = torch.randn(6, 5)
    assert x.is_inference()
    assert (bits(x.t()), norm(x.t())) == (bits(x.t().contiguous()), norm(x.t().contiguous()))
    assert everything(x) == everything(x.clone())

    class Named(torch.Tensor):
        pass

    plain = torch.randn(5)
    assert everything(plain.as_subclass(Named)) == everything(plain) == everything(torch.nn.Parameter(plain))


def test_inside_vmap_a_plain_tensor_works_and_a_batched_one_is_refused() -> None:
    x, found = torch.randn(4), []

    def body(row: torch.Tensor) -> torch.Tensor:
        found.append((bits(x), why_not(row)))
        return row

    torch.vmap(body)(torch.randn(2, 3))
    assert found[0][0] == bits(x)
    assert "functorch" in str(found[0][1])


def test_the_tensor_is_left_alone() -> None:
    x = torch.randn(8, requires_grad=True)
    version = x._version
    everything(x)
    assert (x._version, x.grad_fn, x.requires_grad) == (version, None, True)
    lazy = torch._lazy_clone(x.detach())
    everything(lazy)
    assert torch._C._is_cow_tensor(lazy)


# --- what cannot be fingerprinted ---


def freed() -> torch.Tensor:
    tensor = torch.ones(8)[2:]
    tensor.untyped_storage().resize_(0)
    return tensor


def wrapper() -> torch.Tensor:
    from torch.testing._internal.two_tensor import TwoTensor

    return TwoTensor(torch.ones(2), torch.ones(2))


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.ones(2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: torch.ones(2, device="meta"), "meta"),
        (fake, "fake"),
        (lambda: torch.eye(3).to_sparse(), "sparse_coo"),
        (lambda: torch.eye(3).to_sparse_csr(), "sparse_csr"),
        (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "quantized"),
        (lambda: torch.ones(3).to_mkldnn(), "mkldnn"),
        (wrapper, "TwoTensor"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
        (lambda: torch._to_functional_tensor(torch.ones(2)), "functionalization"),
        (lambda: torch._efficientzerotensor(3), "zero tensor"),
        (freed, "freed"),
        (lambda: [1.0, 2.0], "a list, not a tensor"),
        (lambda: None, "not a tensor"),
    ],
)
def test_why_not(make: Any, reason: str) -> None:
    tensor = make()
    said = why_not(tensor)
    assert said is not None
    assert reason in said
    taken = Fingerprinter()
    with pytest.raises(NotFingerprintable, match=reason):
        taken.take([torch.ones(2), tensor])
    assert taken.take([torch.ones(2)]) == [0], "a refused batch leaves no slots behind"


# --- kinds, slots, threads ---


def test_unknown_kinds_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'sha'.*bits, norm"):
        Fingerprinter(["bits", "sha"])
    with pytest.raises(ValueError, match="at least one"):
        Fingerprinter([])


def test_callables_and_their_failures() -> None:
    x = torch.tensor([3.0, -4.0], requires_grad=True)

    def broken(t: torch.Tensor) -> float:
        raise RuntimeError("no such luck")

    def grad(t: torch.Tensor) -> bool:
        return torch.is_grad_enabled()

    def shaped(t: torch.Tensor) -> torch.Tensor:
        return t.view(2, 1)

    taken = Fingerprinter([lambda t: t[0], "norm", broken, grad, shaped, lambda t: "text", "norm"])
    [slot] = taken.take([x])
    with torch.no_grad():
        x.zero_()
    first, seven, failure, enabled, shape, text, again = taken.read(slot)  # type: ignore[misc]
    assert (first, seven, enabled, text, again) == (3.0, 7.0, False, "text", 7.0)
    assert failure == HashFailure("broken", "RuntimeError: no such luck")
    assert str(failure) == "<broken failed: RuntimeError: no such luck>"
    assert shape.message == "returned a tensor of shape (2, 1); return a number or a string"
    assert taken.read(slot) == (first, seven, failure, enabled, shape, text, again)


def test_slots_keep_their_values_as_the_log_grows() -> None:
    taken = Fingerprinter(["bits", "norm"])
    x = torch.zeros(3)
    want = {}
    for value in range(11):
        x.fill_(value)
        [slot] = taken.take([x])
        want[slot] = (expected(x), 3.0 * value)
    assert list(want) == list(range(11))
    assert {slot: taken.read(slot) for slot in reversed(want)} == want
    for slot in (-1, 11, 1 << 40):
        with pytest.raises(IndexError, match="no fingerprint"):
            taken.read(slot)


class LogWithoutDevice(Fingerprinter):
    """Logs CPU tensors as if they lay on a device: nothing but the engines would differ on a real one."""

    def log_of(self, device: torch.device) -> tuple[int, DeviceLog]:
        if not self._devices:
            self._devices.append(DeviceLog(torch.device("cpu")))
        return 1, self._devices[0]


def test_more_tensors_at_once_than_a_piece_of_the_log_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device: None)
    tensors = [torch.tensor([i]) for i in range(CHUNK_ROWS + 5)]
    taken = LogWithoutDevice()
    slots = taken._take_on(torch.device("meta"), tensors[:3])
    slots += taken._take_on(torch.device("meta"), tensors)
    assert len(set(slots)) == len(slots) == len(tensors) + 3
    some = [0, 2, 3, 4, CHUNK_ROWS, CHUNK_ROWS + 2, CHUNK_ROWS + 3, CHUNK_ROWS + 7]
    assert [taken.read(slots[i]) for i in some] == [bits([*tensors[:3], *tensors][i]) for i in some]
    log = taken._devices[0]
    first = log.reserve([0] * (CHUNK_ROWS + 1))  # neighbours, in two pieces of memory
    assert (first % CHUNK_ROWS, log.rows) == (0, first + CHUNK_ROWS + 1)


def test_a_failure_on_the_device_does_not_hold_up_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*args: Any) -> None:
        raise torch.OutOfMemoryError("no memory for temporaries")

    taken = LogWithoutDevice()
    monkeypatch.setattr(hashes, "sum_into", out_of_memory)
    with pytest.raises(torch.OutOfMemoryError):
        taken._take_on(torch.device("meta"), [torch.ones(3)])
    assert taken._devices[0]._unfinished == 0, "what comes later can be drained"


def test_threads_do_not_share_slots() -> None:
    taken = Fingerprinter()
    found: dict[int, int] = {}

    def work(start: int) -> None:
        for value in range(start, start + 25):
            [slot] = taken.take([torch.tensor([value])])
            found[slot] = value

    threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(100))
    assert all(taken.read(slot) == expected(torch.tensor([value])) for slot, value in found.items())


# --- the documents ---


def test_fingerprint_prints_on_one_line() -> None:
    seen = fingerprint(torch.ones(3))
    assert (seen.bits, seen.norm) == (expected(torch.ones(3)), 3.0)
    assert str(seen) == f"bits={seen.bits:#018x} norm=3.0 1…1 mean 1 std 0"
    hashed = fingerprint(torch.ones(3), level="hash")
    assert (hashed.bits, hashed.stats, hashed.norm) == (seen.bits, None, None)
    assert str(hashed) == f"bits={seen.bits:#018x}"
    assert fingerprint(torch.ones(3, dtype=torch.uint8).view(torch.bits8)).norm is None
    with pytest.raises(ValueError, match=r"unknown level 'all'; use one of 'hash', 'stats'"):
        fingerprint(torch.ones(3), level="all")  # type: ignore[arg-type]


def test_the_documented_codes_are_the_codes() -> None:
    table = DOC.split("## Dtype codes")[1]
    documented = {name: int(code) for name, code in re.findall(r"^\| `(\w+)` \| (\d+) \|$", table, re.M)}
    assert documented == DTYPE_CODES
    assert len(set(DTYPE_CODES.values())) == len(DTYPE_CODES)


def test_every_plain_dtype_of_this_torch_has_a_code() -> None:
    dtypes = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    plain = {dtype for dtype in dtypes if not re.match(r"torch\.q", str(dtype))}
    assert plain == set(DTYPES)


def test_the_documented_reference_is_the_reference() -> None:
    [source] = [b for b in re.findall(r"```python\n(.*?)```", DOC, re.S) if "def reference_bits" in b]
    documented: dict[str, Any] = {}
    exec(source, documented)
    for numel in (0, 1, 7, 8, 9, 64, 65):
        data = bytes(random_tensor(torch.uint8, numel).tolist())
        for dtype, code in DTYPE_CODES.items():
            assert documented["reference_bits"](data, code) == reference_bits(data, dtype)


def test_the_documented_examples_are_right() -> None:
    examples = re.findall(r"^\| `(torch\..*)` \| `(0x[0-9a-f]{16})` \| (\S+) \|$", DOC, re.M)
    assert len(examples) >= 5
    for expression, number, total in examples:
        seen = fingerprint(eval(expression))
        assert (f"{seen.bits:#018x}", str(seen.norm)) == (number, total), expression


def test_the_definition_does_not_load_torch() -> None:
    program = "import sys, kernelscope.fingerprint.definition; sys.exit('torch' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(ROOT / "src")}, check=False
    )
    assert found.returncode == 0
