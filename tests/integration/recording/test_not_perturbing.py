"""A recording changes nothing: same values, same compilations, same code, and everything put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.integration.recording.loaded_wrappers import contents, wrapper_modules
from tests.support.mode_logs import FunctionLog
from torch._dynamo.utils import counters
from torch._inductor.graph import GraphLowering
from torch._inductor.utils import fresh_inductor_cache

import kernelscope

MODES = [("off", "graph"), ("off", "all"), ("hash", "graph"), ("hash", "all")]


class Mlp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.last = torch.nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.nn.functional.dropout(torch.relu(self.norm(self.first(x))), 0.5))


class Training:
    """A compiled model with an eager and a compiled optimizer step."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = Mlp()
        self.compiled = torch.compile(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), foreach=True)
        self.compiled_step = torch.compile(self.optimizer.step)
        self.x = torch.randn(4, 8)
        self.start = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.step(self.compiled_step)
        self.step(self.compiled_step)
        self.modules = wrapper_modules()

    def step(self, optimize: Callable[[], Any]) -> list[torch.Tensor]:
        self.optimizer.zero_grad()
        torch.manual_seed(1)
        out = self.compiled(self.x)
        out.square().sum().backward()
        optimize()
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        return [t.detach().clone() for t in (out, *grads, *self.model.parameters())]

    def from_the_start(self, optimize: Callable[[], Any]) -> list[torch.Tensor]:
        """Two steps from the same weights and optimizer state."""
        self.model.load_state_dict(self.start)
        for state in self.optimizer.state.values():
            for tensor in state.values():
                tensor.zero_()
        return [*self.step(optimize), *self.step(optimize)]


@pytest.fixture(scope="module")
def training() -> Training:
    return Training()


def compilations() -> dict[str, int]:
    frames = {f"frames {k}": v for k, v in counters["frames"].items()}
    return {**frames, **dict(counters["stats"]), "inductor graphs": counters["aot_autograd"]["total"]}


def same_bits(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(
        x.dtype == y.dtype and torch.equal(x.view(torch.uint8), y.view(torch.uint8))
        for x, y in zip(a, b, strict=True)
    )


@pytest.mark.parametrize(("values", "ops"), MODES)
@pytest.mark.parametrize("optimizer", ["eager", "compiled"])
def test_outputs_gradients_and_weights_are_bit_identical(
    training: Training, optimizer: str, values: str, ops: str
) -> None:
    optimize = training.optimizer.step if optimizer == "eager" else training.compiled_step
    bare = training.from_the_start(optimize)
    before = compilations()
    with kernelscope.record(values=values, ops=ops) as run:
        recorded = training.from_the_start(optimize)
    after_closing = training.from_the_start(optimize)
    assert same_bits(bare, recorded)
    assert same_bits(bare, after_closing)
    assert compilations() == before
    assert {c.phase for c in run if c.kind == "cpp"} >= {"forward", "backward"}
    assert not run.findings


def test_opening_and_closing_never_recompiles_in_any_order_of_first_use() -> None:
    """Compiled inside a recording, then used outside, then inside another: one compilation."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.exp() * 2

    compiled = torch.compile(f)
    x = torch.randn(8)
    with kernelscope.record(values="hash", ops="all") as first:
        inside = compiled(x)
    before = compilations()
    outside = compiled(x)
    with kernelscope.record() as second:
        again = compiled(x)
    assert compilations() == before
    assert same_bits([inside, inside], [outside, again])
    assert [c.kind for c in first if c.graph] == [c.kind for c in second] == ["cpp"]


def test_generated_code_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).softmax(-1)

    def generated() -> list[str]:
        f.__code__ = f.__code__.replace()  # another object, which Dynamo does not know
        codes: list[str] = []
        with fresh_inductor_cache(), monkeypatch.context() as patch:
            patch.setattr(GraphLowering, "save_output_code", staticmethod(codes.append))
            torch.compile(f)(torch.ones(4, 4), torch.ones(4, 4))
        return [numbered(code) for code in codes]

    bare = generated()
    assert len(bare) == 1
    with kernelscope.record(values="hash", ops="all"):
        recorded = generated()
    assert recorded == bare


def numbered(code: str) -> str:
    """Without the counter in the graph's name."""
    return code.partition("\n")[2]


@pytest.mark.parametrize(("values", "ops"), MODES)
def test_modules_hold_their_original_objects_again(
    training: Training, values: str, ops: str, leftovers: Callable[[], list[str]]
) -> None:
    modules = training.modules
    before = [contents(m) for m in modules]
    with kernelscope.record(values=values, ops=ops):
        training.step(training.compiled_step)
        during = [contents(m) for m in modules]
    assert during != before, "nothing was hooked, so nothing could be restored"
    assert [contents(m) for m in modules] == before
    assert not leftovers()


def test_users_function_mode_sees_only_the_programs_calls(training: Training) -> None:
    def program() -> list[str]:
        out = training.compiled(training.x).sum()
        start = torch.ones(())
        with FunctionLog() as log:
            # The engine itself: `out.backward()` would be a call that the mode handles, itself set aside.
            torch.autograd.Variable._execution_engine.run_backward(  # type: ignore[attr-defined]
                (out,), (start,), False, False, (), allow_unreachable=True, accumulate_grad=True
            )
        return log.seen

    program()
    bare = program()
    assert bare, "the compiled backward should have called something of torch's"
    # Not ops="all": through any dispatch mode, torch hands an operator that C++ called to function modes too.
    for values in ("off", "hash"):
        with kernelscope.record(values=values) as run:
            assert program() == bare, values
            assert program() == bare, values
        assert len(run)
