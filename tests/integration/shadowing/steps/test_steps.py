"""A mistake between the traced graph and the kernels is named: step, pass, pattern or operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
import torch._inductor.config
from torch._inductor import compile_fx
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.pattern_matcher import (
    CallFunction,
    KeywordArg,
    Match,
    PatternMatcherPass,
    fwd_only,
    register_graph_pattern,
    register_replacement,
)
from torch._inductor.utils import fresh_cache
from torch._subclasses import FakeTensorMode

import kernelscope
from kernelscope import ShadowResult

aten = torch.ops.aten
NAN = float("nan")


def shadowed(forward: Callable[..., Any], *inputs: torch.Tensor) -> ShadowResult:
    torch._dynamo.reset()
    with fresh_cache(), kernelscope.shadow() as result:
        made = torch.compile(forward)(*inputs)
        if isinstance(made, torch.Tensor) and made.requires_grad:
            made.sum().backward()
    torch._dynamo.reset()
    return result


def steps_left_out(result: ShadowResult) -> list[str]:
    return [str(each) for each in result.unchecked if each.kernel_name.startswith("stage")]


# -- planted faults ----------------------------------------------------------------------------------------


@contextmanager
def a_wrong_decomposition() -> Iterator[None]:
    table = select_decomp_table()
    right = table[aten.silu.default]
    table[aten.silu.default] = lambda x: x * torch.sigmoid(x) * 1.01
    try:
        yield
    finally:
        table[aten.silu.default] = right


def sine_times(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.sin(a) * b


def cosine_times(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.cos(a) * b


def a_wrong_replacement() -> AbstractContextManager[None]:
    patterns = PatternMatcherPass(pass_name="planted")
    with torch.no_grad(), FakeTensorMode():
        examples = [torch.empty(4), torch.empty(4)]
        register_replacement(sine_times, cosine_times, examples, fwd_only, patterns)  # type: ignore[arg-type]
    return torch._inductor.config.patch(post_grad_custom_post_pass=patterns.apply)


def swapped_operands() -> AbstractContextManager[None]:
    """The second of two patterns in one pass; the first is right."""
    patterns = PatternMatcherPass(pass_name="planted")

    @register_graph_pattern(CallFunction(aten.neg.default, KeywordArg("a")), pass_dict=patterns)
    def negate_by_product(match: Match, a: Any) -> None:
        _replace(match, aten.mul.Tensor, a, -1)

    @register_graph_pattern(
        CallFunction(aten.sub.Tensor, KeywordArg("a"), KeywordArg("b")), pass_dict=patterns
    )
    def swap_operands(match: Match, a: Any, b: Any) -> None:
        if a.name < b.name:  # once
            _replace(match, aten.sub.Tensor, b, a)

    return torch._inductor.config.patch(post_grad_custom_pre_pass=patterns.apply)


def _replace(match: Match, target: Any, *args: Any) -> None:
    node = match.output_node()
    with match.graph.inserting_before(node):
        new = match.graph.call_function(target, args)
    new.meta.update(node.meta)
    node.replace_all_uses_with(new)
    match.graph.erase_node(node)


@contextmanager
def a_partitioner_that_mixes_up_what_it_saves() -> Iterator[None]:
    original = vars(compile_fx)["min_cut_rematerialization_partition"]

    def mixed_up(*args: Any, **kwargs: Any) -> Any:
        forward, backward = original(*args, **kwargs)
        output = next(n for n in forward.graph.nodes if n.op == "output")
        results, first = list(output.args[0]), kwargs["num_fwd_outputs"]
        results[first], results[first + 1] = results[first + 1], results[first]
        output.args = (tuple(results),)
        forward.recompile()
        return forward, backward

    setattr(compile_fx, "min_cut_rematerialization_partition", mixed_up)  # noqa: B010
    try:
        yield
    finally:
        setattr(compile_fx, "min_cut_rematerialization_partition", original)  # noqa: B010


def _two(*, grad: bool = False) -> list[torch.Tensor]:
    return [torch.randn(6, 6, requires_grad=grad) for _ in range(2)]


FAULTS: dict[str, tuple[Callable[[], Any], Callable[..., Any], list[torch.Tensor], str, str, str]] = {
    "decomposition": (
        a_wrong_decomposition, lambda x: torch.nn.functional.silu(x) + 1, _two()[:1],
        "decomposition", "aten.silu.default", "",
    ),
    "replacement": (
        a_wrong_replacement, lambda a, b: (torch.sin(a) * b).exp(), _two(),
        "post-grad", "post_grad_custom_post_pass", "sine_times",
    ),
    "operands": (
        swapped_operands, lambda a, b: -((a.exp() - b.sin()) * 2), _two(),
        "post-grad", "post_grad_custom_pre_pass", "swap_operands",
    ),
    "partition": (
        a_partitioner_that_mixes_up_what_it_saves,
        lambda a, b: (a.sin() * b.sigmoid()).tanh(), _two(grad=True), "partition", "mixed_up", "",
    ),
}  # fmt: skip


WORDS = {"decomposition": "decomposition of {by} at ", "partition": "partitioner {by} at "} | {
    "post-grad": "pass {by} ({step}) at "
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(name: str) -> None:
    plant, forward, inputs, step, by, pattern = FAULTS[name]
    with plant():
        result = shadowed(forward, *inputs)
    culprit = result.culprit
    assert culprit is not None, str(result)
    assert (culprit.verdict, culprit.buffer) == ("wrong-stage", step), str(result)
    assert by in culprit.kernel_name, str(result)
    assert pattern in culprit.pattern, str(result)
    assert not pattern or f"{__file__}:" in culprit.pattern
    assert culprit.origin, str(result)
    assert (culprit.origin[0].file, culprit.origin[0].function) == (__file__, "<lambda>")
    assert WORDS[step].format(by=culprit.kernel_name, step=step) in str(result).partition("\n")[0]
    wrong = {c.kernel_name for c in result}
    assert wrong == {culprit.kernel_name}, str(result)


# -- bugs of torch's own -----------------------------------------------------------------------------------


def test_a_decomposition_that_reads_what_it_should_ignore_is_named() -> None:
    """`addmm` with beta=0 ignores its first argument; decomposed, a NaN in it comes through."""
    inputs = torch.full((4,), NAN), torch.randn(1, 4), torch.randn(4, 4)

    def forward(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.addmm(c, a, b, beta=0)

    expected = forward(*inputs)
    result = shadowed(forward, *inputs)
    made = torch.compile(forward)(*inputs)
    named = [c.kernel_name for c in result]
    assert bool(result) == (not torch.allclose(made, expected)), str(result)
    assert bool(result) == ("aten.addmm.default" in named), str(result)


def test_a_pass_that_forgets_what_is_not_finite_is_named() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.xlogy(x * 0, x)  # inf · 0 is NaN

    x = torch.tensor([1.0, -torch.inf, NAN])
    result = shadowed(forward, x)
    is_wrong = not torch.equal(torch.compile(forward)(x).isnan(), forward(x).isnan())
    assert bool(result) == is_wrong
    assert not is_wrong or [c.kernel_name for c in result] == ["constant_fold_uniform_value"]


# -- nothing is left out -----------------------------------------------------------------------------------


def test_inputs_that_share_memory_are_compared() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        y.add_(1)
        return x + 1

    base = torch.randn(8)
    result = shadowed(forward, base[:6], base[2:])
    assert not result, str(result)
    assert (result.counts.stages, steps_left_out(result)) == (4, [])


def test_random_numbers_are_compared() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand_like(x) * torch.randn(6) + torch.randint(0, 5, (6,))
        return torch.nn.functional.dropout(x.sin(), 0.4) * noise

    result = shadowed(forward, torch.randn(6, 6, requires_grad=True))
    assert not result, str(result)
    assert (result.counts.stages, steps_left_out(result)) == (6, [])


@pytest.mark.parametrize("name", ["multinomial", "poisson"])
def test_operators_that_draw_inside_are_compared(name: str) -> None:
    """The generator is in the same state on both sides of a step."""
    weights = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))

    def forward(x: torch.Tensor) -> torch.Tensor:
        chances = (x @ weights).softmax(-1)
        if name == "poisson":
            return torch.poisson(8 * chances) * chances
        return chances.gather(1, torch.multinomial(chances, 2)).sin()

    result = shadowed(forward, torch.randn(5, 8, requires_grad=True))
    assert not result, str(result)
    assert (result.counts.stages, steps_left_out(result)) == (6, [])


def test_frozen_parameters_are_compared() -> None:
    model, x = torch.nn.Linear(6, 4), torch.randn(3, 6)
    with torch.no_grad(), torch._inductor.config.patch(freezing=True):
        result = shadowed(model, x)
    assert not result, str(result)
    assert result.counts.stages >= 3, str(result)


@pytest.mark.parametrize("factor", [1.0, 2.0], ids=["right", "wrong"])
def test_a_pass_may_leave_nodes_before_those_that_they_need(factor: float) -> None:
    """Inductor sorts the nodes afterwards."""

    def doubles_twice(graph: torch.fx.Graph) -> None:
        for node in [n for n in graph.nodes if n.target is aten.mm.default]:
            with graph.inserting_after(node):  # each time directly after it
                half = graph.call_function(aten.mul.Tensor, (node, 0.5))
                whole = graph.call_function(aten.mul.Tensor, (half, 2 * factor))
            node.replace_all_uses_with(whole, delete_user_cb=lambda user, half=half: user is not half)

    with torch._inductor.config.patch(joint_custom_post_pass=doubles_twice):
        result = shadowed(lambda x: x @ x + 1, torch.randn(4, 4))
    assert not result.failures, result.details()
    assert result.status == (factor != 1), str(result)
    named = [culprit.kernel_name.partition(" ")[0] for culprit in result]
    assert named == ["joint_custom_post_pass"] * (factor != 1), str(result)
