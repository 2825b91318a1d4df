"""Values of a run on the host, with two numbers of each by which most others can be ruled out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

_FIRST = 64  # elements: most values that are not whole show it here


@dataclass(frozen=True, slots=True)
class Sketch:
    """Of the finite elements."""

    rms: float
    is_whole: bool  # integers, in whatever dtype


class KeptValues:
    """By number of the value."""

    def __init__(self) -> None:
        self.tensors: dict[int, torch.Tensor] = {}
        self.sketches: dict[int, Sketch] = {}

    def add(self, number: int, tensor: torch.Tensor) -> None:
        copy = tensor.detach().resolve_conj().resolve_neg()
        kept = copy.to("cpu", copy=True).contiguous()
        self.tensors[number] = kept
        self.sketches[number] = sketch_of(kept)


def sketch_of(tensor: torch.Tensor) -> Sketch:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if not tensor.numel():
        return Sketch(0.0, True)
    wide = tensor.reshape(-1).to(torch.float64)
    rms = float(torch.linalg.vector_norm(wide)) / math.sqrt(wide.numel())
    if not math.isfinite(rms):
        wide = wide.nan_to_num(0.0, 0.0, 0.0)
        rms = float(torch.linalg.vector_norm(wide)) / math.sqrt(wide.numel())
    is_whole = not tensor.is_floating_point() or (_are_whole(wide[:_FIRST]) and _are_whole(wide))
    return Sketch(rms, is_whole)


def _are_whole(wide: torch.Tensor) -> bool:
    return bool((wide == wide.round()).all())
