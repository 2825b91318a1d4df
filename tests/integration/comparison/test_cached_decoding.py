"""A prefill against decoding with a cache: one call of the one program is a series of calls of the other."""

from __future__ import annotations

import pytest
import torch
from tests.programs import cached_decoding, static_cache
from tests.programs.cached_decoding import BUGS, Decoder, decode, prefill

import kernelscope


def _model(dtype: torch.dtype = torch.float32) -> Decoder:
    torch.manual_seed(0)
    return Decoder().to(dtype)


def _ids() -> torch.Tensor:
    return torch.randint(0, 50, (2, 7), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.slow)])
def test_decoding_with_a_cache_is_rounding(dtype: torch.dtype) -> None:
    result = kernelscope.compare(prefill, decode, (_model(), _ids()), other_args=(_model(dtype), _ids()))
    assert result.status == 0, result.details()
    assert result.values["matched"] > 0.5 * result.values["reference"], result.details()


@pytest.mark.slow
def test_a_prompt_of_several_tokens_is_read_at_once() -> None:
    model, ids = _model(), _ids()
    result = kernelscope.compare(prefill, decode, (model, ids), other_args=(model, ids, "", 3))
    assert result.status == 0, result.details()


@pytest.mark.parametrize(
    ("bug", "prompt"),
    [
        (BUGS[0], 1),
        (BUGS[1], 3),
        *(pytest.param(bug, 1, marks=pytest.mark.slow) for bug in BUGS[1:4]),  # one token needs no mask
        *(pytest.param(bug, 3, marks=pytest.mark.slow) for bug in BUGS if bug != BUGS[1]),
    ],
)
def test_an_error_of_decoding_is_named(bug: str, prompt: int) -> None:
    model, ids = _model(), _ids()
    result = kernelscope.compare(prefill, decode, (model, ids), other_args=(model, ids, bug, prompt))
    assert result.status == 1, result.details()
    with open(str(cached_decoding.__file__), encoding="utf-8") as text:
        lines = {n for n, line in enumerate(text, start=1) if f"# planted: {bug}" in line}
    assert result.first is not None
    assert result.first.call.origin[0].line in lines, result.details()


@pytest.mark.parametrize("prompt", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "bug", ["", "mask", *(pytest.param(bug, marks=pytest.mark.slow) for bug in ("scale", "slot"))]
)
def test_a_cache_of_fixed_size(bug: str, prompt: int) -> None:
    torch.manual_seed(0)
    model, ids = static_cache.Decoder(), _ids()
    result = kernelscope.compare(
        static_cache.prefill, static_cache.decode, (model, ids), other_args=(model, ids, bug, prompt)
    )
    assert result.status == bool(bug), result.details()
    if bug:
        with open(str(static_cache.__file__), encoding="utf-8") as text:
            lines = {n for n, line in enumerate(text, start=1) if line.endswith("# named\n")}
        assert result.first is not None
        assert result.first.call.origin[0].line in lines, result.details()
