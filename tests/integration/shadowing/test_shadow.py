"""Shadowing: no alarm where nothing is wrong, and what the result, the function and the command say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch._inductor.config
from tests.programs.clean_programs import NOT_CHECKED, PROGRAMS
from torch._inductor.utils import fresh_cache

import kernelscope
from kernelscope import ShadowResult
from kernelscope.pytest_plugin import assert_matches_eager

SAMPLE = {"pieces_and_joins", "updates_in_place", "argmax_and_ties", "dynamic_shapes", "random_numbers"}
SAMPLE |= {"results_that_are_written_in_part", "written_in_place_and_returned"}
SAMPLE |= {"writes_to_views_of_inputs", "operators_that_write_to_their_arguments", "loops"}
JUDGED_WHOLLY = {
    "writes_to_views_of_inputs", "operators_that_write_to_their_arguments", "inputs_that_are_overwritten",
    "unfinished_buffers", "scatters_by_a_library", "transforms_within_transforms", "lists_updated_in_place",
    "weights_used_twice", "nearly_one", "operators_that_return_lists", "branches", "loops",
    "branches_with_gradients", "a_branch_in_a_loop", "results_that_are_written_in_part",
    "written_in_place_and_returned", "written_in_place_without_elements", "only_the_shape_of_an_argument",
}  # fmt: skip
RELU_BUG = {"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}  # adds one, in C++ kernels


def buffers_left_out(result: ShadowResult) -> list[str]:
    return [str(u) for u in result.unchecked if not u.kernel_name.startswith("stage")]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in SAMPLE else pytest.mark.slow) for n in PROGRAMS]
)
def test_no_false_alarm(name: str) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        PROGRAMS[name]()
    assert not result, str(result)
    assert result.status == 0, result.problem
    assert result.counts.buffers > 0
    if name in JUDGED_WHOLLY:
        left = {u.kernel_name for u in result.unchecked}
        assert left <= NOT_CHECKED.get(name, set()), str(result)
    assert not buffers_left_out(result)


def test_there_are_enough_clean_programs() -> None:
    assert len(PROGRAMS) >= 25
    assert PROGRAMS.keys() >= SAMPLE


@pytest.fixture
def wrong() -> ShadowResult:
    """A program whose relu is wrong, in the second of its kernels."""
    weight = torch.randn(8, 8)

    def forward(x: torch.Tensor) -> torch.Tensor:
        hidden = x @ weight
        return torch.relu(hidden)  # here

    with fresh_cache(), torch._inductor.config.patch(RELU_BUG), kernelscope.shadow() as result:
        torch.compile(forward)(torch.randn(4, 8))
    torch._dynamo.reset()
    return result


def test_the_result_says_what_and_where(wrong: ShadowResult) -> None:
    assert wrong
    assert wrong.status == 1
    culprit = wrong.culprit
    assert culprit is not None
    assert (culprit.index, culprit.kind, culprit.verdict) == (1, "cpp", "wrong-kernel")
    assert culprit.kernel_name == "cpp_fused_relu_0"
    assert (culprit.argument, culprit.buffer, culprit.node) == ("in_out_ptr0", "buf1", "relu")
    assert culprit.origin[0].file == __file__
    assert "# here" in Path(__file__).read_text().splitlines()[culprit.origin[0].line - 1]
    assert culprit.numbers["max_abs_error"] > 0.1
    assert culprit.numbers["eager_max_abs_error"] < 1e-5
    assert [c.kernel_name for c in wrong] == [culprit.kernel_name]
    assert "cpp_fused_relu_0" in repr(wrong)


def test_the_result_prints_well(wrong: ShadowResult) -> None:
    text = str(wrong)
    for part in ("cpp_fused_relu_0", "in_out_ptr0", "buf1", "test_shadow.py", "return torch.relu(hidden)",
                 "compiled", "eager", "float64", "2 launches of 1 graph:"):  # fmt: skip
        assert part in text, text


def test_the_result_as_json(wrong: ShadowResult) -> None:
    told = json.loads(wrong.to_json())
    keys = {"index", "kernel_name", "kind", "argument", "verdict", "origin", "numbers"}
    assert keys <= told["culprit"].keys()
    assert told["culprit"]["kernel_name"] == "cpp_fused_relu_0"
    assert told["culprit"]["numbers"]["count"] == 32
    assert told["status"] == 1


def test_check_correctness_forward_and_backward() -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Tanh()), torch.randn(3, 6)
    before = [p.clone() for p in model.parameters()]
    result = kernelscope.check_correctness(model, (x,))
    assert not result, str(result)
    assert result.counts.graphs == 2
    assert json.loads(result.to_json())["culprit"] is None
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert "no kernel has more error" in str(result)


def test_check_correctness_leaves_what_a_function_has_from_outside_alone() -> None:
    weight = torch.randn(3, requires_grad=True)
    result = kernelscope.check_correctness(lambda x: x * weight, (torch.randn(3),))
    assert (result.status, result.counts.graphs) == (0, 2)
    assert weight.grad is None


def test_no_generator_but_those_of_the_graph_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.manual_seed seeds all GPUs, whose states would have to be put back."""
    seeded: list[object] = []
    monkeypatch.setattr(torch, "manual_seed", seeded.append)
    state = torch.get_rng_state()
    with kernelscope.shadow() as result:
        torch.compile(lambda x: x.sin() + 2)(torch.ones(3))
    assert result.counts.stages == 4
    assert not seeded
    assert torch.equal(state, torch.get_rng_state())


def test_check_correctness_takes_arguments_one_by_one_or_as_a_tuple() -> None:
    x = torch.randn(3)
    for given in ((x,), ((x,),)):
        result = kernelscope.check_correctness(torch.sin, *given)
        assert not result
        assert not result.problem
        assert_matches_eager(torch.sin, *given)
    with pytest.raises(TypeError, match="args is a tuple of arguments, not a Tensor"):
        kernelscope.check_correctness(torch.sin, args=x)  # type: ignore[arg-type]


def test_a_pass_that_copies_over_what_it_reads_is_named() -> None:
    """torch 2.13 drops the clone, so that rows are copied over before they are read.

    Of rows that are no multiple of a vector, and far more than fit into one: with few numbers, a machine with
    long vectors reads all of them before it writes any.
    """

    def shift(x: torch.Tensor) -> torch.Tensor:
        x[1:] = x[:-1].clone()
        return x.mean(0)

    x = torch.randn(24, 67)
    expected = shift(x.clone())
    with kernelscope.shadow() as result:
        made = torch.compile(shift)(x)
    assert bool(result) == (not torch.allclose(made, expected, atol=1e-5))
    if result:
        culprit = result.culprit
        assert culprit is not None
        assert (culprit.verdict, culprit.kernel_name) == ("wrong-stage", "reinplace_inplaceable_ops")


def test_check_correctness_leaves_its_arguments_alone() -> None:
    def update(x: torch.Tensor, *, by: float) -> torch.Tensor:
        return x.add_(by).sum()

    x = torch.zeros(5)
    assert not kernelscope.check_correctness(update, (x,), {"by": 2.0})
    assert x.sum() == 0


def test_the_program_computes_what_it_did() -> None:
    """Random numbers and gradients are the same with a shadow and without."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x.sin(), 0.4) * 2

    def run() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        torch._dynamo.reset()
        torch.manual_seed(3)
        x = torch.linspace(0, 1, 50).requires_grad_()
        out = torch.compile(forward)(x)
        out.sum().backward()
        assert x.grad is not None
        return out, x.grad, torch.rand(3)

    bare = run()
    with kernelscope.shadow() as result:
        shadowed = run()
    assert not result, str(result)
    assert all(torch.equal(a, b) for a, b in zip(bare, shadowed, strict=True))


def test_what_was_compiled_before_is_compiled_again() -> None:
    compiled = torch.compile(lambda x: x.exp() + 1)
    compiled(torch.randn(5))
    with kernelscope.shadow() as result:
        compiled(torch.randn(5))
    assert result.counts.buffers == 1
    assert result.status == 0


def test_what_cannot_be_compiled_again_is_said() -> None:
    x = torch.randn(5)
    graph = torch.fx.symbolic_trace(lambda x: (torch.sin(x) * 2,))
    compiled = torch._inductor.compile(graph, [x])
    compiled(x)
    with kernelscope.shadow() as result:
        compiled(x)
    assert not result
    assert result.status == 2
    assert "not shadowed" in result.problem
    assert "Not shadowed" in str(result)


def test_nothing_compiled_is_no_clean_bill() -> None:
    with kernelscope.shadow() as result:
        torch.randn(3).sin()
    assert result.status == 2
    assert "no compiled kernel" in result.problem


def test_a_function_that_dynamo_leaves_uncompiled_is_explained() -> None:
    layer = torch.nn.GRU(3, 4)
    with kernelscope.shadow() as result:
        torch.compile(lambda x: layer(x)[0].sin())(torch.randn(2, 1, 3))
    assert result.status == 2
    assert "Dynamo left a function uncompiled: Attempted to wrap RNN, GRU, or LSTM." in str(result)
    assert "allow_rnn" in str(result)


def test_an_exception_passes_through_and_leaves_nothing(leftovers: Callable[[], list[str]]) -> None:
    with pytest.raises(ZeroDivisionError), kernelscope.shadow():
        _ = 1 / 0
    assert leftovers() == []


def test_what_cannot_be_judged_is_listed() -> None:
    @torch.library.custom_op(
        "kernelscope_tests::noisy", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,)
    )
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)

    @noisy.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    with kernelscope.shadow() as result:
        torch.compile(lambda x: noisy(x).sin())(torch.randn(5))
    assert not result, str(result)
    assert result.counts.given == 1


SCRIPT = """
import sys
import torch
import torch._inductor.config

def forward(x):
    return torch.relu(x @ x.t())

if "--wrong" in sys.argv:
    torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
if "--fail" in sys.argv:
    raise SystemExit(3)
compiled = forward if "--eager" in sys.argv else torch.compile(forward)
print("sum", compiled(torch.ones(4, 4)).sum().item())
"""


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    source = str(Path(kernelscope.__file__).parents[2])

    def run(*words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "kernelscope", "shadow", *options, str(script), *words]
        environment = os.environ | {"PYTHONPATH": source}
        return subprocess.run(line, capture_output=True, text=True, env=environment, check=False, timeout=250)

    return run


def test_the_command_finds_nothing(command: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = command()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sum 64" in done.stdout
    assert "no kernel has more error than rounding can explain" in done.stdout


def test_the_command_names_the_kernel(command: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = command("--wrong", options=("--json",))
    assert done.returncode == 1, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["culprit"]["kernel_name"] == "cpp_fused_relu_0"
    assert told["culprit"]["origin"][0]["file"].endswith("script.py")
    assert "sum" in done.stderr


@pytest.mark.parametrize(
    ("word", "said"),
    [("--fail", "exited with 3"), pytest.param("--eager", "no compiled kernel", marks=pytest.mark.slow)],
)
def test_the_command_could_not_say(
    word: str, said: str, command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = command(word)
    assert done.returncode == 2
    assert said in done.stdout + done.stderr


def test_the_command_wants_a_script() -> None:
    for words, said in (
        ([], "nothing to run"),
        (["missing.py"], "no script missing.py"),
        (["-m", "no_such_module"], "no module named"),
    ):
        line = [sys.executable, "-m", "kernelscope", "shadow", *words]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 2
        assert said in done.stderr


def test_assert_matches_eager_names_the_kernel() -> None:
    from kernelscope import pytest_plugin as plugin

    plugin.assert_matches_eager(lambda x: x.sin() + 1, torch.randn(6))
    torch._dynamo.reset()
    with (
        fresh_cache(),
        torch._inductor.config.patch(RELU_BUG),
        pytest.raises(pytest.fail.Exception) as caught,
    ):
        plugin.assert_matches_eager(lambda x: torch.relu(x) * 1.0, torch.randn(6))
    torch._dynamo.reset()
    assert "cpp_fused" in str(caught.value)
