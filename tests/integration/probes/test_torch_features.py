"""What else a compiled program may do while it is recorded: each is defined, and bit-identical to bare."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.integration.probes.unperturbed import assert_unperturbed, flat, recorded, weights
from torch._dynamo.utils import counters
from torch._higher_order_ops.while_loop import while_loop
from torch.utils.checkpoint import checkpoint

import kernelscope

# -- shapes --------------------------------------------------------------------------------------------


def test_dynamic_shapes() -> None:
    @torch.compile(dynamic=True)
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + x.shape[0]

    sizes = (4, 9, 16, 9)
    for n in sizes:
        f(torch.ones(n))
    graphs = counters["stats"]["unique_graphs"]
    with kernelscope.record(values="hash") as run:
        for n in sizes:
            assert torch.equal(f(torch.ones(n)), torch.ones(n).sin() + n)
    assert counters["stats"]["unique_graphs"] == graphs
    assert len(run.graphs) == 1
    assert [c.arguments[0].tensor.shape for c in run] == [(n,) for n in sizes]
    assert all(n in c.args for n, c in zip(sizes, run, strict=True))
    sites = [c.site.id for c in run]
    assert len(set(sites)) == 3
    assert sites[1] == sites[3]


def test_a_scalar_that_varies() -> None:
    @torch.compile(dynamic=True)
    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n

    x = torch.ones(4)
    for n in (2, 3):
        f(x, n)
    _, run = recorded(lambda: [f(x, n) for n in (5, 6, 7)])
    assert [next(a for a in c.args if isinstance(a, int) and a != 4) for c in run] == [5, 6, 7]


# -- modes ---------------------------------------------------------------------------------------------


def test_inference_mode() -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 9

    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return f(x.cos()).add_(1)

    run = assert_unperturbed(program, torch.ones(4))
    assert [c.graph.direction for c in run if c.graph] == ["inference"]


def test_hashes_taken_in_inference_mode_are_readable_outside() -> None:
    with kernelscope.record(values="hash", ops="all") as run:
        with torch.inference_mode():
            torch.ones(4).sin()
        torch.ones(4).sin()
    first, second = run.select(kernel="aten.sin.default")
    assert first.post_hashes == second.post_hashes


def test_autocast() -> None:
    w = weights()

    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ w).relu()

    def program(x: torch.Tensor) -> Any:
        w.grad = None
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = f(x)
        out.float().sum().backward()
        return out, w.grad

    run = assert_unperturbed(program, torch.ones(2, 8))
    assert any(a.tensor is not None and a.tensor.dtype == "bfloat16" for c in run for a in c.arguments)


def test_functorch() -> None:
    def loss(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (x @ w).sin().sum()

    def program(w: torch.Tensor, x: torch.Tensor) -> Any:
        return torch.vmap(torch.func.grad(loss), (None, 0))(w, x)

    args = torch.eye(4), torch.ones(3, 4)
    eager = flat(program(*args))
    result, run = recorded(program, *args, values="hash", ops="all")
    assert torch.equal(result[0], eager[0])
    assert run.select(kernel="aten.sin*") or run.select(kernel="aten.cos*")
    assert_unperturbed(torch.compile(program), *args)


# -- control flow --------------------------------------------------------------------------------------


def test_cond() -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin() + 10, lambda x: x.cos() - 10, [x])

    for x in (torch.ones(4), -torch.ones(4)):
        assert_unperturbed(f, x)
    names = {}
    for sign in (1, -1):
        _, run = recorded(f, sign * torch.ones(4))
        names[sign] = [c.kernel_name for c in run]
    assert any("sin" in n for n in names[1])
    assert not any("cos" in n for n in names[1])
    assert any("cos" in n for n in names[-1])


def test_while_loop() -> None:
    @torch.compile
    def f(n: torch.Tensor, x: torch.Tensor) -> Any:
        return while_loop(lambda n, x: n > 0, lambda n, x: (n - 1, x.sin() + 11), (n, x))

    assert_unperturbed(f, torch.tensor(3), torch.ones(4))
    body = {}
    for times in (1, 3):
        _, run = recorded(f, torch.tensor(times), torch.ones(4))
        body[times] = len([c for c in run if "sin" in c.kernel_name])
    assert body == {1: 1, 3: 3}


# -- backward ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("compile", [False, True])
def test_activation_checkpointing(reentrant: bool, compile: bool) -> None:
    w = weights()

    def block(x: torch.Tensor) -> torch.Tensor:
        return (x @ w).sin()

    def program(x: torch.Tensor) -> Any:
        w.grad = None
        x = x.clone().requires_grad_()
        inner = torch.compile(block) if compile and reentrant else block
        checkpoint(inner, x, use_reentrant=reentrant).sum().backward()
        return x.grad, w.grad

    outer = torch.compile(program) if compile and not reentrant else program
    assert_unperturbed(outer, torch.ones(2, 8))
    _, run = recorded(outer, torch.ones(2, 8), ops="all")
    if compile:
        assert run.graphs
        assert run.select(kind="cpp")
        return
    # Once forward, and backward once more besides the two products of its own. Reentrant checkpointing
    # runs its forward without gradients, which is not told apart from any other code without gradients.
    phases = [c.phase for c in run.select(kernel="aten.mm.default")]
    assert phases == ["other" if reentrant else "forward", "backward", "backward", "backward"]


def test_compiled_autograd() -> None:
    w = weights()

    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ w).sin()

    def program(x: torch.Tensor) -> Any:
        w.grad = None
        with torch._dynamo.compiled_autograd._enable(torch.compile):
            f(x).sum().backward()
        return w.grad

    run = assert_unperturbed(program, torch.ones(2, 8))
    assert len(run.graphs) >= 2
    assert run.select(phase="backward"), [(c.kernel_name, c.phase) for c in run]


def test_constants_of_torchscript() -> None:
    """torch hands them to a dispatch mode as numbers, and refuses these when the mode passes them on."""

    def program(x: torch.Tensor) -> Any:
        traced = torch.jit.trace(lambda x: torch.relu(x) * 3 + 2.5, (x,))
        constants = [
            n.t("value") for n in traced.graph.nodes() if n.hasAttribute("value") and n.kindOf("value") == "t"
        ]
        return traced(x), torch.stack(constants), torch.eq(*constants)

    assert_unperturbed(program, torch.ones(2, 8))


def test_higher_order_gradients() -> None:
    def program(x: torch.Tensor) -> Any:
        x = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(x.sin().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        return second

    assert_unperturbed(program, torch.ones(4))
