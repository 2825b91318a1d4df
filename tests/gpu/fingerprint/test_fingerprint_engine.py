"""The CUDA engine against the reference, over layouts, alignments and sizes."""

from __future__ import annotations

import itertools

import pytest
import torch

from kernelscope.fingerprint import Fingerprinter
from kernelscope.fingerprint.cuda import engine as cuda
from kernelscope.fingerprint.torch_bits import DTYPE_NAMES

DTYPES = sorted((d for d in DTYPE_NAMES if d.itemsize in (1, 2, 4, 8, 16)), key=str)


def host_bits(tensor: torch.Tensor) -> object:
    taken = Fingerprinter()
    return taken.read(taken.take([tensor])[0])


def device_bits(*tensors: torch.Tensor) -> list[object]:
    taken = Fingerprinter()
    return [taken.read(slot) for slot in taken.take(list(tensors))]


def layouts(host: torch.Tensor) -> list[torch.Tensor]:
    return [
        host,
        host[1:],
        host[3:-2],
        host[::2],
        host[:96].view(8, 12).t(),
        host[:96].view(8, 12)[:, 2:10],
        host[:96].view(2, 4, 3, 4).permute(3, 1, 0, 2),
        host[:120].view(2, 5, 3, 4)[:, ::2, 1:],
        host[:1].expand(17),
        host[:6].view(2, 3, 1).expand(2, 3, 5),
        host[:0],
        host[5],
    ]


def test_the_engine_is_there() -> None:
    assert cuda.unavailable() == ""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_and_layout(dtype: torch.dtype) -> None:
    host = torch.randint(0, 256, (203 * dtype.itemsize,), dtype=torch.uint8)
    if dtype == torch.bool:
        host = host & 1
    host = host.view(dtype)
    device = host.cuda()
    assert device_bits(*layouts(device)) == [host_bits(each) for each in layouts(host)]


def test_sizes_around_the_blocks() -> None:
    sizes = [1, 7, 8, 9, 8191, 8192, 8193, 4 * 8192 - 1, 4 * 8192, 4 * 8192 + 9, 1_000_003, 40_000_001]
    for size in sizes:
        host = torch.randint(0, 256, (size + 1,), dtype=torch.uint8)
        device = host.cuda()
        assert device_bits(device[:-1], device[1:]) == [host_bits(host[:-1]), host_bits(host[1:])]


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 17])
def test_many_tensors_in_one_call(count: int) -> None:
    hosts = [torch.randn(n * 37 + 1) for n in range(count)]
    assert device_bits(*(h.cuda() for h in hosts)) == [host_bits(h) for h in hosts]


def test_more_than_two_to_the_31_elements() -> None:
    big = torch.zeros((1 << 31) + 5, dtype=torch.uint8, device="cuda")
    before = device_bits(big)
    big[-1] = 1
    after = device_bits(big)
    big[-1] = 0
    assert before != after
    assert device_bits(big) == before
    # The same bytes through the engine for any layout: two columns of a wider tensor.
    wide = torch.zeros(((1 << 30) + 3, 4), dtype=torch.uint8, device="cuda")
    wide[-1, 1] = 7
    narrow = wide[:, :2]
    assert device_bits(narrow) == device_bits(narrow.contiguous())


def test_a_flip_of_any_bit_is_seen() -> None:
    base = torch.randint(0, 256, (64,), dtype=torch.uint8, device="cuda")
    seen = {device_bits(base)[0]}
    for byte, bit in itertools.product(range(64), range(8)):
        changed = base.clone()
        changed[byte] ^= 1 << bit
        seen.add(device_bits(changed)[0])
    assert len(seen) == 1 + 64 * 8


def test_streams_write_one_log() -> None:
    taken = Fingerprinter()
    x = torch.randn(100_000, device="cuda")
    slots = taken.take([x])
    for _ in range(3):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            slots += taken.take([x])
    assert len({taken.read(slot) for slot in slots}) == 1


def test_the_log_grows() -> None:
    taken = Fingerprinter()
    x = torch.arange(3, device="cuda")
    slots = [slot for _ in range(3000) for slot in taken.take([x, x, x])]
    assert len(set(slots)) == 9000
    assert {taken.read(slot) for slot in slots} == {host_bits(x.cpu())}
