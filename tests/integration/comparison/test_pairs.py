"""Two programs that compute the same in other ways raise no alarm; an error in one is named at its line."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from tests.programs.pairs.registry import PAIRS

import kernelscope

_NAMES = (
    "attention", "equal_formulas", "experts_and_images", "layers", "low_precision", "master_weights",
    "norms_and_routers", "other_optimizers", "other_ways", "positions", "settings", "training",
    "weights_in_one", "windows_and_averages",
)  # fmt: skip
_MODULES = [import_module(f"tests.programs.pairs.{name}") for name in _NAMES]
_QUICK = {
    "one weight for queries, keys and values", "weights with heads side by side", "attention by einsum",
    "groups of heads in bfloat16", "rotary neighbours beside halves", "rotary halves beside neighbours",
    "gate in one weight", "norm by hand", "tied embeddings", "cross entropy in chunks", "channels last",
    "batch norm in the weights", "a low-rank addition beside the weight", "a backward pass by hand",
    "master weights, copy, AdamW, in both", "master weights, flat, SGD, in both",
    "master weights, sums, SGD, beside bfloat16", "float32 beside bfloat16", "checkpoint, saved",
    "autocast and a scaler in float16", "gradients of parts in sums of their own",
    "gradients of halves, averaged", "NAdam with foreach", "NAdam without foreach",
    "weights with heads side by side, beside one weight", "weights by heads, beside by numbers",
    "weights columns, beside apart", "gate, turns beside one", "a smooth loss by hand",
    "experts chosen before the softmax, autocast", "normed heads by hand", "group norm by hand",
    "a window in blocks", "capped scores by einsum",
}  # fmt: skip
_QUICK_ERRORS = {
    ("norm by hand", "axis"), ("norm by hand", "weight"), ("gate in one weight", "gelu"),
    ("one weight for queries, keys and values", "causal"), ("rotary halves beside neighbours", "sign"),
    ("a backward pass by hand", "term"), ("batch norm in the weights", "eps"),
    ("attention by hand in both", "twice"),
}  # fmt: skip
_TOO_LITTLE = {  # in common to be judged
    "padding with a mask, beside rows alone", "experts, einsum beside each",
    "sigmoid router, sorted tokens", "sigmoid router, all tokens", "distances, expanded",
    "distances of differences",
}  # fmt: skip
_ERRORS = [(name, error) for name, each in PAIRS.items() for error in each.errors]


@cache
def _lines(error: str) -> set[tuple[str, int]]:
    found = set()
    for module in _MODULES:
        path = Path(str(module.__file__))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if error in line.partition("# wrong: ")[2].split(", "):
                found.add((path.name, number))
    return found


def test_the_quick_ones_exist() -> None:
    assert not (_QUICK | _TOO_LITTLE) - PAIRS.keys()
    assert not _QUICK_ERRORS - set(_ERRORS)


@pytest.mark.parametrize(
    "name", [each if each in _QUICK else pytest.param(each, marks=pytest.mark.slow) for each in PAIRS]
)
def test_other_ways_to_the_same_raise_no_alarm(name: str) -> None:
    pair = PAIRS[name]
    result = kernelscope.compare(pair.reference, pair.healthy)
    assert result.first is None, result.details()
    assert name in _TOO_LITTLE or (result.status == 0 and max(result.shares.values()) > 0.7), result.details()


@pytest.mark.parametrize(
    ("name", "error"),
    [each if each in _QUICK_ERRORS else pytest.param(*each, marks=pytest.mark.slow) for each in _ERRORS],
)
def test_the_line_of_an_error_is_named(name: str, error: str) -> None:
    pair = PAIRS[name]
    result = kernelscope.compare(pair.reference, lambda: pair.other(error))
    first = result.first
    assert first is not None, result.details()
    named = [call for call in (first.call, first.reads, first.missing, first.reference) if call is not None]
    lines = {(Path(call.origin[0].file).name, call.origin[0].line) for call in named if call.origin}
    assert lines & _lines(error), result.details()
