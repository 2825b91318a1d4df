"""`bits` against the reference, over dtypes and layouts, and what its definition promises."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.fingerprint.references import DTYPES, SMALL_CHUNK, bits, expected, random_tensor

from kernelscope.fingerprint import (
    Fingerprinter,
    reference_bits,
)
from kernelscope.fingerprint import torch_bits as hashes
from kernelscope.fingerprint.cpu import bits as cpu
from kernelscope.fingerprint.cuda import engine as cuda

pytestmark = pytest.mark.usefixtures("_torch_operations_only")

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
    assert hashes.flat_words(tensor) is None
    assert hashes.flat_words(tensor.clone()) is not None
    assert hashes.flat_words(tensor.clone()[1:]) is None


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
