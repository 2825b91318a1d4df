"""Functions that draw random numbers: eager draws what the compiled code drew, and results are compared."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
from torch._inductor import compile_fx, decomposition, lowering
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import kernelscope
from kernelscope.shadowing.draws import compiled_draws

aten = torch.ops.aten


def drops(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    noise = torch.randn(x.shape) * 0.1 + torch.rand_like(x)
    return F.dropout(x, 0.3) * 2 + noise, torch.randint(2, 9, (5,)) + F.dropout(x.sum(0), 0.5)[:1].long()


def halves(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x.to(torch.bfloat16), 0.25) + 1


def attends(x: torch.Tensor) -> torch.Tensor:
    """An operator that could draw and does not, beside one that does."""
    mixed = F.scaled_dot_product_attention(x[None], x[None], x[None], attn_mask=torch.ones(16, 16).tril() > 0)
    return F.dropout(mixed[0], 0.25) * 2


def two_names(x: torch.Tensor) -> list[torch.Tensor]:
    """Of one device: Inductor makes seeds for each of them."""
    first = torch.rand_like(x) * x, torch.randn(4, device="cpu:0") * 2
    return [*first, torch.rand_like(x) + x, torch.rand(4, device="cpu:0")]


def draws_too_much(x: torch.Tensor) -> torch.Tensor:
    """The compiler leaves out what nothing depends on; of `sizes` only the shape matters."""
    sizes, scratch = torch.empty(3).exponential_(), torch.empty(5)
    scratch[1:].normal_().add_(torch.rand(4)).sub_(torch.bernoulli(torch.full((4,), 0.5)))
    kept = torch.bernoulli(torch.full((8,), 0.5))
    return F.dropout(x, 0.5) * sizes.shape[0] + kept * torch.rand(8)


@pytest.mark.parametrize("function", [drops, halves, attends, two_names, draws_too_much])
def test_random_results_and_their_gradients_are_compared(function: Any) -> None:
    result = kernelscope.check_correctness(function, (torch.randn(16, 8).requires_grad_(),))
    assert result.status == 0, str(result)
    assert result.counts.regions == 1
    assert result.counts.arbitrary == 0, str(result)
    assert not result.unchecked, str(result)


def test_what_is_drawn_has_the_dtype_of_eager() -> None:
    """Numbers are those of the compiled code, and the dtype is not: a decomposition promotes it."""
    mean, deviation = torch.zeros(8, dtype=torch.float16), torch.ones(8)
    result = kernelscope.check_correctness(
        lambda mean, deviation: torch.normal(mean, deviation), (mean, deviation)
    )
    (culprit,) = result
    assert culprit.step == "decomposition of aten.normal.Tensor_Tensor", str(result)
    assert (
        "a tensor of float32[8] on cpu where eager has a tensor of float16[8]"
        in str(result).partition("\n")[0]
    )
    assert culprit.origin[0].file == __file__


def test_what_is_drawn_has_the_strides_of_eager() -> None:
    result = kernelscope.check_correctness(lambda x: F.rrelu(x, training=True), (torch.randn(5, 6).t(),))
    (culprit,) = result
    assert "strides (1, 6) where eager has strides (5, 1)" in str(result).partition("\n")[0], str(result)
    assert culprit.verdict == "wrong-function"


def test_a_wrong_random_function_is_named() -> None:
    """Dropout that forgets to scale what it keeps: no kernel is wrong by its own graph."""

    def forgets(x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
        kept = torch.rand_like(x) > p
        return kept * x, kept

    table = {torch.ops.aten.native_dropout.default: forgets}
    with mock.patch.dict(decomposition.fast_random_decomps(), table):
        result = kernelscope.check_correctness(lambda x: F.dropout(x, 0.5) + 1, (torch.randn(64),))
    (culprit,) = result
    assert (culprit.verdict, culprit.buffer) == ("wrong-stage", "decomposition"), str(result)
    assert culprit.kernel_name == "aten.native_dropout.default"
    assert any("result 0" in note for note in result.notes), str(result)  # the function as a whole, too


def shifted(x: torch.Tensor, low: float = 0, high: float = 1, **_: Any) -> torch.Tensor:
    return torch.rand_like(x) * (high - low) + low + 0.1


def multiplied(x: torch.Tensor, rate: float = 1, **_: Any) -> torch.Tensor:
    return -torch.log(1 - torch.rand_like(x)) * rate


def opposite(x: torch.Tensor, **_: Any) -> torch.Tensor:
    return (torch.rand_like(x) < 1 - x).to(x.dtype)


def wider(mean: torch.Tensor, std: torch.Tensor, **_: Any) -> torch.Tensor:
    return torch.randn_like(mean) * std * 1.1 + mean


def one_more(high: int, size: Any, **options: Any) -> torch.Tensor:
    return aten.randint.low(0, high + 1, size, **options)


def same_in_each_row(x: torch.Tensor, **_: Any) -> torch.Tensor:
    return torch.rand(x.shape[-1]).expand(x.shape)


WRONG = [
    (aten.uniform.default, shifted, lambda x: torch.empty_like(x).uniform_(2, 3) * 2),
    (aten.exponential.default, multiplied, lambda x: torch.empty_like(x).exponential_(2.0) + 1),
    (aten.bernoulli.default, opposite, lambda x: torch.bernoulli(x) * 2),
    (aten.normal.Tensor_Tensor, wider, lambda x: torch.normal(x, x) * 2),
    (aten.randint.default, one_more, lambda x: torch.randint(5, (64,)) * 2),
    (aten.rand_like.default, same_in_each_row, lambda x: torch.rand_like(x) * x),
]


@pytest.mark.parametrize(("operator", "wrong", "function"), WRONG, ids=[str(each[0]) for each in WRONG])
def test_a_decomposition_that_draws_from_another_distribution_is_named(
    operator: Any, wrong: Any, function: Any
) -> None:
    table = {operator: wrong}
    with (
        mock.patch.dict(decomposition.fast_random_decomps(), table),  # a copy of the other, made once
        mock.patch.dict(decomposition.decompositions, table),
    ):
        result = kernelscope.check_correctness(function, (torch.rand(32, 16),))
    assert result.status == 1, str(result)
    culprit = result.culprits[0]
    assert (culprit.verdict, culprit.buffer, culprit.kernel_name) == (
        "wrong-stage", "decomposition", str(operator),
    ), str(result)  # fmt: skip
    assert "distribution" in culprit.reason
    assert culprit.origin[0].line == function.__code__.co_firstlineno, culprit.line
    assert f"computes: {culprit.argument}" in str(result).partition("\n")[0]


def test_a_lowering_that_draws_with_other_arguments_is_named() -> None:
    """Inductor leaves `bernoulli_` to ATen on a CPU, and gives it another probability."""
    calls = lowering.fallback_handler(aten.bernoulli.p, add_to_fallback_set=False)

    def wrong(x: Any, p: float = 0.5, **options: Any) -> Any:
        return calls(x, 1 - p, **options)

    with mock.patch.dict(lowering.lowerings, {aten.bernoulli.p: wrong}):
        result = kernelscope.check_correctness(
            lambda x: torch.empty_like(x).bernoulli_(0.1) * x, (torch.rand(32, 16),)
        )
    assert result.status == 1, str(result)
    assert "aten.bernoulli.p" in result.culprits[0].kernel_name, str(result)


def test_numbers_that_aten_draws_are_given_to_eager() -> None:
    """Samples are drawn by ATen itself, from a generator that the compiled code has used before."""

    def samples(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x) + torch.multinomial(x.abs(), 1)

    result = kernelscope.check_correctness(samples, (torch.randn(12, 30),))
    assert result.status == 0, str(result)
    assert result.counts.arbitrary == 0


def test_draws_of_few_values_are_given_to_eager() -> None:
    """A whole channel is dropped or not: two runs of eager often agree on it, and compiled code does not."""

    def channels(x: torch.Tensor) -> list[torch.Tensor]:
        return [F.dropout(x), *(F.dropout1d(x, 0.5) for _ in range(12)), torch.multinomial(x.abs(), 1)]

    torch.manual_seed(0)
    result = kernelscope.check_correctness(channels, (torch.randn(1, 2),))
    assert result.status == 0, str(result)
    assert result.counts.arbitrary == 0


def test_numbers_of_which_it_is_not_known_whose_they_are_make_it_inconclusive() -> None:
    """Two graphs of one function draw: which seed belongs to which draw of eager is then unknown."""
    unknown = mock.patch.object(compiled_draws.Draws, "is_known", False)
    with unknown:
        result = kernelscope.check_correctness(lambda x: F.dropout(x) + 1, (torch.randn(12, 30),))
    assert result.status == 2, str(result)
    assert "random numbers" in result.unchecked[0].reason, str(result)


def _attention(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x.sin(), x)


def _checkpointed_attention(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(_attention, x, use_reentrant=False).sin().sum()


def test_attention_without_dropout_is_judged_though_checkpointing_saves_the_generator() -> None:
    x = torch.randn(1, 2, 8, 8, requires_grad=True)
    result = kernelscope.check_correctness(_checkpointed_attention, (x,))
    assert result.status == 0, str(result)
    assert not result.unchecked
    assert (result.counts.given, result.counts.unjudged_stages) == (0, 0)


def test_a_wrong_partition_of_checkpointed_attention_is_named() -> None:
    original = vars(compile_fx)["min_cut_rematerialization_partition"]

    def wrong(*args: Any, **kwargs: Any) -> Any:
        forward, backward = original(*args, **kwargs)
        for node in backward.graph.nodes:
            if node.target is torch.ops.aten.cos.default:
                node.target = torch.ops.aten.sin.default
        backward.recompile()
        return forward, backward

    x = torch.randn(1, 2, 8, 8, requires_grad=True)
    with mock.patch.object(compile_fx, "min_cut_rematerialization_partition", wrong):
        result = kernelscope.check_correctness(_checkpointed_attention, (x,))
    assert result.culprit is not None
    assert result.culprit.verdict == "wrong-stage"
    assert result.culprit.buffer == "partition"


def test_what_is_drawn_again_in_a_backward_is_not_an_alarm() -> None:
    """A checkpointed part of eager runs again in its backward, with numbers of torch's generator."""

    def part(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.dropout(torch.relu(x @ w), 0.5)

    def checkpointed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return checkpoint(part, x, w, use_reentrant=False)

    args = torch.randn(6, 4).requires_grad_(), torch.randn(4, 4).requires_grad_()
    result = kernelscope.check_correctness(checkpointed, args)
    assert result.status == 0, str(result)
    assert not result.failures, result.details()
    assert result.counts.regions == 1
    assert result.counts.arbitrary == 0
    assert "Not checked" not in str(result)


def test_dropouts_that_aten_draws_one_after_the_other() -> None:
    """An operator with several results may be one of which a kernel is given none."""

    def twice(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.dropout(x, 0.5) + 1, 0.2)

    with torch._inductor.config.patch(fallback_random=True):
        result = kernelscope.check_correctness(twice, torch.randn(12, 30, requires_grad=True))
    assert not result.failures, str(result)
    assert result.status == 0, str(result)


def test_draws_that_inductor_keeps_in_order_are_given_to_eager() -> None:
    """Of several draws that ATen makes, Inductor wraps all but the first, so that none overtakes another."""

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rand_like(x) * torch.randint(0, 5, x.shape) + torch.randn_like(x)

    with torch._inductor.config.patch(fallback_random=True):
        result = kernelscope.check_correctness(scaled, torch.randn(8, 8, requires_grad=True))
    assert result.status == 0, str(result)
    assert result.counts.given == 3
    assert result.counts.regions == 1
    assert "Not checked" not in str(result)


@pytest.mark.parametrize("chance", [0.0, 0.5])
@torch._dynamo.config.patch(allow_rnn=True)
def test_dropout_between_recurrent_layers(chance: float) -> None:
    """A bug of torch: its decomposition of such layers never drops anything."""
    network = torch.nn.RNN(4, 4, 2, dropout=chance)

    def layers(x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = network(x)[0]
        return made

    torch.manual_seed(0)
    compiled = torch.compile(layers)
    same = len({tuple(compiled(torch.ones(3, 2, 4)).flatten().tolist()) for _ in range(4)}) == 1
    torch._dynamo.reset()
    result = kernelscope.check_correctness(layers, (torch.randn(3, 2, 4),))
    expected = ["decomposition"] if chance and same else []  # a torch that drops out has nothing wrong
    assert [c.buffer for c in result.culprits] == expected, str(result)
    assert ["it draws none" in c.reason for c in result.culprits] == [True] * len(expected), str(result)
