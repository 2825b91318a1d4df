"""Triton kernels that Inductor wrote, forward and backward."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable

import pytest
import torch

import kernelscope
from kernelscope import KernelCall, Run
from kernelscope.fingerprint import fingerprint

pytestmark = pytest.mark.usefixtures("inductor_triton")


def launches_in(source: str) -> list[str]:
    """The kernels that a wrapper launches, in the order of its text."""
    return re.findall(r"^\s+(triton_\w+)\.run\(", source, re.MULTILINE)


def parameters_in(source: str) -> tuple[list[str], list[str]]:
    """The parameters that a Triton kernel is passed, and its constexprs."""
    [function] = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    constexprs = [a.arg for a in function.args.args if a.annotation is not None]
    return [a.arg for a in function.args.args if a.arg not in constexprs], constexprs


def assert_as_written(run: Run) -> None:
    """Every graph's calls equal, one for one and in order, the launches in its wrapper."""
    assert run.calls, "nothing was recorded"
    for execution in sorted({c.graph_call for c in run.calls}):
        calls = [c for c in run.calls if c.graph_call == execution]
        assert [c.kernel_name for c in calls] == launches_in(calls[0].graph.source)
    for call in run.calls:
        passed, constexprs = parameters_in(call.source)
        assert (call.kind, call.producer, call.parent) == ("triton", "inductor", None)
        assert list(call.arg_names) == passed
        assert call.config.keys() == {*constexprs, "num_warps", "num_stages"}
        assert f"def {call.kernel_name}(" in call.source
    assert not run.findings


def only(run: Run) -> KernelCall:
    [call] = run.calls
    return call


def test_pointwise() -> None:
    x, y = torch.randn(7, 33), torch.randn(7, 33)
    with kernelscope.record(values="hash") as run:
        out = torch.compile(lambda x, y: torch.relu(x * 2 + y))(x, y)
    call = only(run)
    assert_as_written(run)
    assert torch.equal(out, torch.relu(x * 2 + y))
    assert call.kernel_name.startswith("triton_poi_fused_")
    assert call.arg_names == ("in_ptr0", "in_ptr1", "out_ptr0", "xnumel")
    assert call.roles == ("in", "in", "out", "scalar")
    assert call.args[3] == 7 * 33
    assert call.grid == (-(-7 * 33 // call.config["XBLOCK"]), 1, 1)
    assert call.uninitialised == (2,)
    assert sorted(call.pre_hashes.values()) == sorted(fingerprint(t).bits for t in (x, y))
    assert call.post_hashes == call.pre_hashes | {2: fingerprint(out).bits}
    assert (call.origin.file, call.origin.function) == (__file__, "<lambda>")
    assert call.wrapper_names[2] == "buf0"


@pytest.mark.parametrize(
    "reduce", [lambda x: x.sum(1), lambda x: x.amax(0), lambda x: x.sum()], ids=["rows", "columns", "all"]
)
def test_reduction(reduce: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.randn(12, 16)
    with kernelscope.record(values="hash") as run:
        out = torch.compile(reduce)(x)
    assert_as_written(run)
    call = only(run)
    torch.testing.assert_close(out, reduce(x))
    roles = dict(zip(call.arg_names, call.roles, strict=True))
    assert roles["in_ptr0"] == "in"
    assert call.pre_hashes == {0: fingerprint(x).bits}
    [written] = call.modified_args
    assert call.post_hashes[written] == fingerprint(out).bits
    sizes = [value for name, value in zip(call.arg_names, call.args, strict=True) if name.endswith("numel")]
    assert math.prod(sizes) == x.numel()


def two_kernels(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows = x.sum(1, keepdim=True)
    return rows, (x - rows).amax(0)


def test_kernels_come_in_order_and_hand_over_their_values() -> None:
    x = torch.randn(10, 12)
    with kernelscope.record(values="hash") as run:
        rows, _ = torch.compile(two_kernels)(x)
    assert_as_written(run)
    first, second = run.calls
    [at] = [i for i, name in enumerate(second.wrapper_names) if name == "buf0"]
    assert second.pre_hashes[at] == first.post_hashes[1] == fingerprint(rows).bits
    assert first.origin.line + 1 == second.origin.line


def test_a_function_compiled_before_and_called_three_times() -> None:
    compiled = torch.compile(two_kernels)
    x = torch.randn(10, 12)
    compiled(x)
    with kernelscope.record(values="hash") as run:
        for _ in range(3):
            compiled(x)
    assert_as_written(run)
    assert len(run.calls) == 6
    for one, other in zip(run.calls[:2] * 2, run.calls[2:], strict=True):
        assert one.pre_hashes == other.pre_hashes
        assert one.post_hashes == other.post_hashes


def test_an_input_written_in_place_is_both() -> None:
    x = torch.randn(64)
    before = fingerprint(x).bits
    with kernelscope.record(values="hash") as run:
        torch.compile(lambda x: x.mul_(2).add_(1))(x)
    assert_as_written(run)
    call = only(run)
    assert call.wrapper_names[:2] == ("arg0_1", "arg0_1"), "the same memory as input and as output"
    assert call.roles[:2] == ("inout", "out")
    assert call.pre_hashes == {0: before, 1: before}, "it came from outside, so what it held counts"
    assert call.post_hashes == {0: fingerprint(x).bits, 1: fingerprint(x).bits}


def test_forward_and_backward() -> None:
    x = torch.randn(16, 16, requires_grad=True)
    w = torch.randn(16, 16, requires_grad=True)
    compiled = torch.compile(lambda x, w: (torch.relu(x * w) * w).sum())
    with kernelscope.record(values="hash") as run:
        loss = compiled(x, w)
        loss.backward()
    assert_as_written(run)
    assert [g.direction for g in run.graphs] == ["forward", "backward"]
    assert [c.phase for c in run.calls] == sorted((c.phase for c in run.calls), reverse=True)
    assert {c.phase for c in run.calls} == {"forward", "backward"}
    [forward], backward = run.select(phase="forward"), run.select(phase="backward")
    assert fingerprint(loss).bits in forward.post_hashes.values()
    written = {c.post_hashes[i] for c in backward for i in c.modified_args}
    assert {fingerprint(x.grad).bits, fingerprint(w.grad).bits} <= written
    for call in run.calls:
        assert call.origin.file == __file__


def test_dynamic_shapes_give_each_size_its_own_site() -> None:
    compiled = torch.compile(lambda x: x * 2 + 1, dynamic=True)
    with kernelscope.record(values="hash") as run:
        outs = [compiled(torch.randn(n)) for n in (100, 5000)]
    assert_as_written(run)
    assert [c.args[c.arg_names.index("xnumel")] for c in run.calls] == [100, 5000]
    assert [c.grid[0] for c in run.calls] == [
        -(-n // c.config["XBLOCK"]) for n, c in zip((100, 5000), run.calls, strict=True)
    ]
    assert [c.arguments[0].tensor.shape for c in run.calls] == [(100,), (5000,)]
    assert [c.post_hashes[1] for c in run.calls] == [fingerprint(out).bits for out in outs]


def test_accumulating_into_memory_reads_it() -> None:
    """`index_put_(accumulate=True)` adds through a parameter named `out_ptr`."""
    index = torch.tensor([0, 2, 2])

    def scatter(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return x.index_put_((index,), values, accumulate=True)

    x = torch.zeros(4)
    before = fingerprint(x).bits
    with kernelscope.record(values="hash") as run:
        torch.compile(scatter)(x, torch.ones(3))
    calls = run.select(kind="triton")
    assert torch.equal(x, torch.tensor([1.0, 0.0, 2.0, 0.0]))
    [call] = [c for c in calls if "tl.atomic_add" in c.source]
    at = call.arg_names.index("out_ptr0")
    assert call.roles[at] == "inout"
    assert call.pre_hashes[at] == before
    assert call.post_hashes[at] == fingerprint(x).bits
