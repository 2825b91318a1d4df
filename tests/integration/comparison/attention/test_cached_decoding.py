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


_TOKENS, _WIDTH, _SIZE = 6, 8, 9


def _attend(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    q, k, v = (x @ weight for weight in weights)
    scores = q @ k.mT * _WIDTH**-0.5
    return (scores + torch.full((_TOKENS, _TOKENS), -torch.inf).triu(1)).softmax(-1) @ v


def _attend_in_steps(x: torch.Tensor, weights: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
    keys, values = torch.zeros(2, _SIZE, _WIDTH), torch.zeros(2, _SIZE, _WIDTH)
    made, first = [], 0
    for tokens in (2, 1, 1, 1, 1):
        rows = slice(first, first + tokens)
        q, keys[:, rows], values[:, rows] = (x[:, rows] @ weight for weight in weights)
        scores = q @ keys.mT
        scores = scores * (factor * _WIDTH**-0.5)  # the factor
        unseen = torch.arange(_SIZE) > torch.arange(first, first + tokens)[:, None]
        made.append(scores.masked_fill(unseen, -torch.inf).softmax(-1) @ values)
        first += tokens
    return torch.cat(made, 1)


def test_a_factor_of_the_scores_of_a_cache_of_fixed_size() -> None:
    torch.manual_seed(0)
    args = torch.randn(2, _TOKENS, _WIDTH), torch.randn(3, _WIDTH, _WIDTH) * 0.3
    assert kernelscope.compare(_attend, _attend_in_steps, args).status == 0
    result = kernelscope.compare(_attend, _attend_in_steps, args, other_args=(*args, 0.84))
    assert result.first is not None, result.details()
    with open(__file__, encoding="utf-8") as text:
        line = next(n for n, each in enumerate(text, start=1) if each.endswith("# the factor\n"))
    assert result.first.call.origin[0].line == line, result.details()
