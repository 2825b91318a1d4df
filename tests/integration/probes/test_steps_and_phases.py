"""Steps of optimizers, and the phase that each call belongs to."""

from __future__ import annotations

import pytest
import torch
from tests.integration.probes.unperturbed import weights
from torch._dynamo.utils import counters

import kernelscope


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
