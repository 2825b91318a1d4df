"""The part of every script that reads the tensors beside it and lays out the arguments."""

from __future__ import annotations

import json
import math
import struct
import sys
from pathlib import Path
from typing import Any

import torch


def tensors_beside(script: str, *tables: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors in the safetensors file beside the script, as bytes; none where the script needs none."""
    if not any("saved" in about for table in tables for about in table.values()):
        return {}
    path = Path(script).with_suffix(".safetensors")
    if not path.exists():
        print(f"{path} is missing: it holds the inputs; put it beside the script")
        sys.exit(2)
    data = bytearray(path.read_bytes())
    (size,) = struct.unpack("<Q", data[:8])
    head, whole = json.loads(data[8 : 8 + size]), torch.frombuffer(data, dtype=torch.uint8)
    found = {}
    for name, about in head.items():
        if name != "__metadata__":
            first, last = (8 + size + place for place in about["data_offsets"])
            found[name] = whole[first:last].clone()
    return found


def arguments(given: dict[str, dict[str, Any]], tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The arguments as the launch found them: same layout, and same memory where two of them shared it."""
    made: dict[str, Any] = {}
    memories: dict[Any, torch.Tensor] = {}
    sizes: dict[Any, int] = {}
    for name, about in given.items():
        dtype, key = getattr(torch, about["dtype"]), about.get("memory", name)
        pairs = zip(about["shape"], about["stride"], strict=True)
        last = about.get("offset", 0) + sum((n - 1) * s for n, s in pairs) + 1
        sizes[key] = max(sizes.get(key, 0), last * dtype.itemsize)
    for name, about in given.items():
        dtype, key = getattr(torch, about["dtype"]), about.get("memory", name)
        device = about.get("device", "cpu")
        if key not in memories:
            memories[key] = torch.full((-(-sizes[key] // 64) * 64,), 0xFF, dtype=torch.uint8, device=device)
        storage = memories[key].untyped_storage()
        tensor = torch.empty(0, dtype=dtype, device=device)
        tensor = tensor.set_(storage, about.get("offset", 0), tuple(about["shape"]), tuple(about["stride"]))
        if "saved" in about:
            fill(tensor, contents(tensors[about["saved"]], about))
        elif "values" in about:
            fill(tensor, torch.tensor(about["values"], dtype=dtype).reshape(tensor.shape))
        elif "seed" in about:
            fill(tensor, generated(about).to(dtype))
        made[name] = base(tensor, *about["base"]) if "base" in about else tensor
    return made


def fill(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Copy, also into an expanded tensor, which has many elements in one place."""
    place, taken = tensor, values
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            place, taken = place.narrow(dim, 0, 1), taken.narrow(dim, 0, 1)
    place.copy_(taken)
    return tensor


def contents(raw: torch.Tensor, about: dict[str, Any]) -> torch.Tensor:
    found: torch.Tensor = raw.view(getattr(torch, about["dtype"]))
    return found.reshape(tuple(about["shape"]))


def recorded_result(raw: torch.Tensor, about: dict[str, Any]) -> torch.Tensor:
    """What was recorded of a result; of some the buffer that it is a view of."""
    if "stride" not in about:
        return contents(raw, about)
    flat = raw.view(getattr(torch, about["dtype"]))
    return flat.as_strided(tuple(about["shape"]), tuple(about["stride"]))


def generated(about: dict[str, Any]) -> torch.Tensor:
    """Numbers with the recorded statistics: the values themselves were not kept."""
    generator = torch.Generator().manual_seed(about["seed"])
    low, high, shape = about["min"], about["max"], tuple(about["shape"])
    dtype = getattr(torch, about["dtype"])
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.randint(int(low), min(int(high), (1 << 63) - 2) + 1, shape, generator=generator)
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
    made: torch.Tensor = (drawn * about["std"] + about["mean"]).clamp(low, high).flatten()
    places, first = torch.randperm(made.numel(), generator=generator), 0
    for value, count in about.get("special", {}).items():  # as many zeros, NaNs and infinities as there were
        made[places[first : first + count]] = float(value)
        first += count
    if dtype.is_complex:  # its statistics are those of the absolute values
        turn = torch.rand(made.shape, generator=generator, dtype=torch.float64)
        made = torch.polar(made, turn * 2 * math.pi)
    return made.reshape(shape)


def base(view: torch.Tensor, shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    """The whole buffer that an argument is another view of."""
    return view.as_strided(shape, stride, view.storage_offset())
