"""What else a compiled program may do while it is recorded: each is defined, and bit-identical to bare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters, get_compilation_metrics
from torch._higher_order_ops.while_loop import while_loop
from torch._inductor.utils import fresh_inductor_cache
from torch.utils.checkpoint import checkpoint

import kernelscope

Program = Callable[..., Any]


def recorded(program: Program, *args: Any, **settings: Any) -> tuple[list[torch.Tensor], kernelscope.Run]:
    with kernelscope.record(**settings) as run:
        result = program(*args)
    assert not [f for f in run.findings if f.kind == "recorder-error"], run.findings
    return flat(result), run


def flat(result: Any) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(result)
    return [t.detach().clone() for t in leaves if isinstance(t, torch.Tensor)]


def assert_unperturbed(program: Program, *args: Any) -> kernelscope.Run:
    """Bare, recorded in every way, and bare again give the same bits without another compilation."""
    bare = flat(program(*args))
    compiled = counters["stats"]["unique_graphs"]
    for values, ops in (("off", "all"), ("hash", "all"), ("hash", "graph")):
        result, run = recorded(program, *args, values=values, ops=ops)
        assert len(result) == len(bare)
        for mine, theirs in zip(result, bare, strict=True):
            assert torch.equal(mine, theirs)
    assert all(torch.equal(a, b) for a, b in zip(flat(program(*args)), bare, strict=True))
    again = counters["stats"]["unique_graphs"] - compiled
    assert not again, [metrics.recompile_reason for metrics in get_compilation_metrics()[-again:]]
    return run


def weights() -> torch.Tensor:
    return torch.linspace(-1, 1, 64).view(8, 8).clone().requires_grad_()


# -- compiling inside a recording ----------------------------------------------------------------------


def test_recompiles_inside_a_recording() -> None:
    @torch.compile(dynamic=False)
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2

    with kernelscope.record(values="hash") as run:
        for n in (3, 5, 3, 7):
            assert f(torch.ones(n)).shape == (n,)
    assert [c.arguments[0].tensor.shape for c in run] == [(3,), (5,), (3,), (7,)]
    assert len(run.graphs) == 3
    assert len({g.compile_id for g in run.graphs}) == 3


def test_dynamo_reset_inside_a_recording(leftovers: Callable[[], list[str]]) -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 4

    x = torch.ones(4)
    f(x)
    with kernelscope.record(values="hash") as run:
        first = f(x)
        torch._dynamo.reset()
        assert torch.equal(f(x), first)
        torch._dynamo.reset()
    assert torch.equal(f(x), first)
    assert len(run) == 2
    assert run.calls[0].post_hashes == run.calls[1].post_hashes
    assert not leftovers()


def test_compiled_before_the_recording_in_a_cache_that_is_gone() -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * 5).sum()

    x = torch.ones(4, requires_grad=True)
    with fresh_inductor_cache():
        f(x).backward()
    _, run = recorded(lambda: f(x).backward())
    assert {c.phase for c in run} == {"forward", "backward"}
    assert all(c.origin is not None and c.origin.file == __file__ for c in run)


def test_graph_breaks() -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() + 6
        torch._dynamo.graph_break()
        return y.cos() + 6

    x = torch.ones(4)
    run = assert_unperturbed(f, x)
    assert len(run.graphs) == 2
    assert [c.graph_call for c in run] == sorted({c.graph_call for c in run})


def test_recording_inside_a_compiled_function() -> None:
    """The block breaks the graph; what is inside is recorded."""
    runs = []

    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() + 7
        with kernelscope.record() as run:
            y = g(y)
        runs.append(run)
        return y

    @torch.compile
    def g(x: torch.Tensor) -> torch.Tensor:
        return x.cos() + 7

    x = torch.ones(4)
    assert torch.allclose(f(x), (x.sin() + 7).cos() + 7)
    f(x)
    assert [len(run) for run in runs] == [1, 1]


def test_step_inside_a_compiled_function() -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() + 8
        kernelscope.step()
        return y.cos() + 8

    x = torch.ones(4)
    f(x)
    graphs = counters["stats"]["unique_graphs"]
    with kernelscope.record() as run:
        f(x)
        f(x)
    f(x)
    assert counters["stats"]["unique_graphs"] == graphs
    assert [c.step for c in run] == [0, 1, 1, 2]


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


def test_higher_order_gradients() -> None:
    def program(x: torch.Tensor) -> Any:
        x = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(x.sin().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        return second

    assert_unperturbed(program, torch.ones(4))


# -- steps and phases ----------------------------------------------------------------------------------


class Training:
    def __init__(self, *, compiled: bool) -> None:
        self.w = weights()
        self.optimizer = torch.optim.SGD([self.w], lr=0.1, momentum=0.9)
        self.forward = torch.compile(lambda x: (x @ self.w).tanh().sum())
        self.optimize = torch.compile(self.optimizer.step) if compiled else self.optimizer.step
        for _ in range(3):
            self.step()

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.forward(torch.ones(2, 8)).backward()
        self.optimize()


@pytest.mark.parametrize("compiled", [False, True])
def test_optimizer_steps_and_phases(compiled: bool) -> None:
    training = Training(compiled=compiled)
    graphs = counters["stats"]["unique_graphs"]
    with kernelscope.record(ops="all") as run:
        for _ in range(3):
            training.step()
    assert counters["stats"]["unique_graphs"] == graphs
    for step in range(3):
        phases = [c.phase for c in run if c.step == step]
        kept = [p for i, p in enumerate(phases) if i == 0 or phases[i - 1] != p]
        assert [p for p in kept if p != "other"] == ["forward", "backward", "optimizer"], (step, phases)
    assert {c.step for c in run} == {0, 1, 2}
    assert [m.text for m in run.marks if m.kind == "step"] == ["1", "2", "3"]


def test_steps_counted_by_the_user() -> None:
    training = Training(compiled=False)
    with kernelscope.record() as run:
        for _ in range(2):
            training.step()
            training.step()  # gradient accumulation in two halves, say
            kernelscope.step()
    # The first step's optimizer calls were counted until the user's own call came.
    assert {c.step for c in run if c.index >= len(run) / 2} == {1}
    assert max(c.step for c in run) <= 2


def test_a_failing_optimizer_step_is_no_step() -> None:
    parameter = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.1)

    def closure() -> float:
        raise ValueError

    with kernelscope.record(ops="all") as run:
        with pytest.raises(ValueError):  # noqa: PT011
            optimizer.step(closure)
        torch.ones(2).sin()
    assert {c.step for c in run} == {0}
    assert run.calls[-1].phase != "optimizer"


def test_closed_inside_an_optimizer_step() -> None:
    """The next recording does not think that it is still inside."""
    parameter = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    manager = kernelscope.record(ops="all")
    manager.__enter__()

    def closure() -> float:
        manager.__exit__(None, None, None)
        return 0.0

    optimizer.step(closure)
    with kernelscope.record(ops="all") as run:
        torch.ones(2, requires_grad=True).sin()
        optimizer.step()
        torch.ones(2).cos()
    assert {c.phase for c in run.select(kernel="aten.sin.default")} == {"forward"}
    assert {c.step for c in run.select(kernel="aten.cos.default")} == {1}


def test_profiler_ranges_stay_the_users_own() -> None:
    def program() -> list[str]:
        with torch.profiler.profile() as profile, torch.profiler.record_function("mine"):
            torch.ones(3).sin()
        return [e.name for e in profile.events() if not e.name.startswith("aten::")]

    bare = program()
    with kernelscope.record(ops="all") as run:
        during = program()
    assert during.count("mine") == bare.count("mine") == 1
    assert ("record_function", "mine") in [(m.kind, m.text) for m in run.marks]


def test_closure_of_an_optimizer_is_not_its_own_work() -> None:
    model = torch.compile(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(2, 4)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    with kernelscope.record(ops="all") as run:
        optimizer.step(closure)  # type: ignore[arg-type]
    for direction in ("forward", "backward"):
        inside = {call.phase for call in run if call.graph is not None and call.graph.direction == direction}
        assert inside == {direction}
    eager = [(call.kernel_name, call.phase) for call in run if call.graph is None]
    assert next(phase for name, phase in eager if "mean" in name) == "forward"
    assert next(phase for name, phase in eager if "pow" in name) == "forward"
    assert eager[-1][1] == "optimizer"
