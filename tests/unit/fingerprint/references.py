"""Tensors of any dtype, and what their fingerprints must be."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from kernelscope.fingerprint import (
    Fingerprinter,
    reference_bits,
)
from kernelscope.fingerprint import torch_bits as hashes

ROOT = Path(__file__).parents[3]

DTYPES = list(hashes.DTYPE_NAMES)
NUMBERLESS = re.compile(r"bits|u?int[1-7]$|float4")
# Small enough that a tensor of a few hundred bytes has many chunks; 128 is the unit that chunks come in.
SMALL_CHUNK = 128


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
