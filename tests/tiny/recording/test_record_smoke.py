"""The whole way from a block of code to a readable run, without compiling anything."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch

import kernelscope


def program() -> torch.Tensor:
    x = torch.arange(6.0).view(2, 3)
    y = (x @ x.t()).relu()
    y.add_(1)
    return y.sum()


@pytest.fixture
def run() -> kernelscope.Run:
    with kernelscope.record(values="hash", ops="all") as run:
        program()
    return run


def test_every_operator_is_a_call(run: kernelscope.Run) -> None:
    assert [c.kernel_name for c in run] == [
        "aten.arange.default",
        "aten.mm.default",
        "aten.relu.default",
        "aten.add_.Tensor",
        "aten.sum.default",
    ]
    assert {c.kind for c in run} == {"op"}
    assert {c.producer for c in run} == {"eager"}
    assert [c.index for c in run] == list(range(5))
    assert [c.origin.line for c in run] == sorted(c.origin.line for c in run)
    assert {c.origin.file for c in run} == {__file__}
    assert not run.graphs
    assert not run.findings


def test_names_roles_and_hashes(run: kernelscope.Run) -> None:
    product, relu, add = run.calls[1:4]
    assert product.arg_names[:2] == ("self", "mat2")
    assert product.roles == ("in", "in", "out")
    assert add.roles[0] == "inout"
    assert add.modified_args == {0}
    assert add.pre_hashes[0] == relu.post_hashes[1]
    assert add.pre_hashes[0] != add.post_hashes[0]
    assert run.calls[4].pre_hashes[0] == add.post_hashes[0]


def test_same_program_same_hashes_and_same_result(run: kernelscope.Run) -> None:
    bare = program()
    with kernelscope.record(values="hash", ops="all") as again:
        recorded = program()
    assert torch.equal(recorded, bare)
    assert [c.post_hashes for c in again] == [c.post_hashes for c in run]


def test_filters(run: kernelscope.Run) -> None:
    assert [c.kernel_name for c in run.select(kernel="aten.add*")] == ["aten.add_.Tensor"]
    assert len(run.select(kind="op", step=0)) == 5
    assert not run.select(kind="cpp")
    with kernelscope.record(ops="all", kernel=["*mm*", "aten.relu*"]) as filtered:
        program()
    assert [c.kernel_name for c in filtered] == ["aten.mm.default", "aten.relu.default"]
    with kernelscope.record(ops="all", kind="cpp") as none:
        program()
    assert len(none) == 0


def test_listing(run: kernelscope.Run) -> None:
    text = str(run)
    assert text.startswith("5 calls of 5 kernels")
    assert "aten.mm.default" in text
    assert f"{os.path.basename(__file__)}:{run.calls[1].origin.line}" in text
    assert repr(run) == "<Run 5 calls, 0 graphs, 5 kernels>"
    assert run.calls[1].line().startswith("[op] aten.mm.default(self=t: f32[2, 3]")


def test_default_sees_no_eager_operator() -> None:
    with kernelscope.record() as run:
        program()
    assert len(run) == 0
    assert str(run).startswith("0 calls")


def test_undeclared_write_is_a_finding() -> None:
    def liar(x: torch.Tensor) -> None:
        x.mul_(2)

    lib = torch.library.Library("kernelscope_smoke", "DEF")
    lib.define("liar(Tensor x) -> ()")
    lib.impl("liar", liar, "CPU")
    try:
        with kernelscope.record(values="hash", ops="all") as run:
            torch.ops.kernelscope_smoke.liar(torch.ones(3))
    finally:
        lib._destroy()
    (finding,) = run.findings
    assert finding.kind == "undeclared-write"
    assert finding.arg == "x"
    assert str(finding) in str(run)


def test_steps() -> None:
    parameter = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with kernelscope.record(ops="all") as run:
        for _ in range(2):
            (parameter * 2).sum().backward()
            optimizer.step()
    assert {c.step for c in run} == {0, 1}
    assert {c.phase for c in run} >= {"forward", "backward", "optimizer"}


def test_exception_passes_through(leftovers: Callable[[], list[str]]) -> None:
    with kernelscope.record(ops="all") as run, pytest.raises(RuntimeError, match="size"):
        torch.ones(2) + torch.ones(3)
    assert run.calls[-1].error.startswith("RuntimeError")
    assert not leftovers()


@pytest.mark.parametrize("bad", [{"values": "bogus"}, {"ops": "bogus"}, {"kernel": 3}, {"kind": [3]}])
def test_config_errors(bad: dict[str, object]) -> None:
    (name,) = bad
    with pytest.raises((ValueError, TypeError), match=rf"record\({name}="):
        kernelscope.record(**bad)  # type: ignore[arg-type]
