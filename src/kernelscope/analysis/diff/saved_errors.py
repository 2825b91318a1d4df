"""The errors of arguments that differ, where both runs kept the tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from kernelscope.analysis.tensor_errors import Errors, errors_between
from kernelscope.store.folder import TENSORS
from kernelscope.store.stored_run import StoredRun
from kernelscope.store.tensors import read_tensor

from .pairs import ArgumentDifference

SavedCall = tuple[StoredRun, int]  # a run, and the index of a call in it


def saved_pairs(
    differences: Iterable[ArgumentDifference], a: SavedCall, b: SavedCall
) -> Iterator[tuple[ArgumentDifference, Path, Path]]:
    """Each argument whose values differ and were saved in both runs, with the two files."""
    saved_a, saved_b = a[0].saved_tensors(a[1]), b[0].saved_tensors(b[1])
    for d in differences:
        key, other = (d.position, d.moment), (d.position_b, d.moment)
        if d.what == "values" and key in saved_a and other in saved_b:
            yield d, a[0].path / TENSORS / saved_a[key], b[0].path / TENSORS / saved_b[other]


def saved_errors(differences: Iterable[ArgumentDifference], a: SavedCall, b: SavedCall) -> Iterator[Errors]:
    for d, file_a, file_b in saved_pairs(differences, a, b):
        found = errors_between(read_tensor(file_a), read_tensor(file_b), d.argument, d.moment)
        if found is not None:
            yield found
