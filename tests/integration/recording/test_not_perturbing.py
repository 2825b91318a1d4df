"""A recording changes nothing: same values, same compilations, same code, and everything put back."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor.codecache import PyCodeCache
from torch._inductor.graph import GraphLowering
from torch._inductor.utils import fresh_inductor_cache
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import kernelscope
from kernelscope.config import Config
from kernelscope.probes.bus import BUS
from kernelscope.recording import Recording

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


@pytest.fixture(scope="module")
def tiny() -> Callable[[torch.Tensor], torch.Tensor]:
    def sin_plus_one(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    compiled = torch.compile(sin_plus_one)
    compiled(torch.ones(8))
    return compiled


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    lib = torch.library.Library("kernelscope_not_perturbing", "DEF")
    lib.define("fail_if_negative(Tensor x) -> Tensor")

    def fail_if_negative(x: torch.Tensor) -> torch.Tensor:
        if (x < 0).any():
            raise ArithmeticError("negative")
        return x.clone()

    lib.impl("fail_if_negative", fail_if_negative, "CPU")
    lib.impl("fail_if_negative", lambda x: torch.empty_like(x), "Meta")
    yield torch.ops.kernelscope_not_perturbing
    lib._destroy()


def compilations() -> dict[str, int]:
    frames = {f"frames {k}": v for k, v in counters["frames"].items()}
    return {**frames, **dict(counters["stats"]), "inductor graphs": counters["aot_autograd"]["total"]}


def wrapper_modules() -> list[Any]:
    return [m for m in PyCodeCache.modules if hasattr(m, "call")]


def contents(module: Any) -> dict[str, int]:
    """What a generated module is made of: its globals and its functions' code, by identity."""
    found = {name: id(value) for name, value in vars(module).items()}
    for name, value in vars(module).items():
        if isinstance(value, FunctionType):
            found[f"{name}.__code__"] = id(value.__code__)
        elif isinstance(value, type) and value.__module__ == module.__name__:
            methods = {n: m for n, m in vars(value).items() if isinstance(m, FunctionType)}
            found |= {f"{name}.{n}": id(m) for n, m in methods.items()}
            found |= {f"{name}.{n}.__code__": id(m.__code__) for n, m in methods.items()}
    return found


def same_bits(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(
        x.dtype == y.dtype and torch.equal(x.view(torch.uint8), y.view(torch.uint8))
        for x, y in zip(a, b, strict=True)
    )


# -- values, compilations, code ------------------------------------------------------------------------


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
    class Log(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def program() -> list[str]:
        out = training.compiled(training.x).sum()
        start = torch.ones(())
        with Log() as log:
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


def test_users_dispatch_mode_sees_only_the_programs_operators(
    tiny: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    class Log(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def program() -> list[str]:
        with Log() as log:
            torch.ones(3).sin().add_(1)
        return log.seen

    bare = program()
    with kernelscope.record(values="hash", ops="all") as run:
        inner = program()
    with Log() as outer, kernelscope.record(values="hash", ops="all"):
        torch.ones(3).sin().add_(1)
    assert inner == bare == outer.seen
    assert [c.kernel_name for c in run] == bare


# -- exceptions ----------------------------------------------------------------------------------------


def test_exception_inside_a_compiled_graph(library: Any, leftovers: Callable[[], list[str]]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return library.fail_if_negative(x.neg()) + 1

    compiled = torch.compile(f)
    compiled(-torch.ones(3))
    modules = wrapper_modules()
    before = [contents(m) for m in modules]
    assert before
    with kernelscope.record(values="hash") as run:
        compiled(-torch.ones(3))
        with pytest.raises(ArithmeticError, match="negative"):
            compiled(torch.ones(3))
    assert [c.error for c in run] == ["", "", "", "", "ArithmeticError: negative"]
    assert run.calls[-1].kernel_name.startswith("kernelscope_not_perturbing.fail_if_negative")
    assert [contents(m) for m in modules] == before
    assert not leftovers()
    assert BUS.here.launch is None
    assert BUS.here.in_graph == 0


def test_a_caught_exception_leaves_the_recording_going(library: Any) -> None:
    compiled = torch.compile(lambda x: library.fail_if_negative(x) + 1)
    compiled(torch.ones(3))
    with kernelscope.record(values="hash", ops="all") as run:
        with pytest.raises(ArithmeticError):
            compiled(-torch.ones(3))
        with pytest.raises(ArithmeticError):
            library.fail_if_negative(-torch.ones(3))
        torch.ones(3).sin()
        compiled(torch.ones(3))
    failed = [c for c in run if c.error]
    assert [(c.kind, c.error) for c in failed] == [
        ("extern", "ArithmeticError: negative"),
        ("op", "ArithmeticError: negative"),
    ]
    assert all(not c.post_hashes for c in failed)
    assert all(c.pre_hashes for c in failed)
    assert run.select(kernel="aten.sin.default")
    assert all(c.parent is None for c in run.select(kernel="aten.sin.default"))
    assert [c.kind for c in run][-2:] == ["extern", "cpp"]
    assert not run.findings


def test_the_exception_is_the_users_own_object_and_keeps_nothing_alive(library: Any) -> None:
    gc.collect()
    gc.disable()
    try:
        with kernelscope.record(values="hash", ops="all"):
            x = -torch.ones(3)
            watched = weakref.ref(x)
            with pytest.raises(ArithmeticError) as caught:
                library.fail_if_negative(x)
            assert caught.value.args == ("negative",)
            assert caught.value.__cause__ is None
            del x, caught
            assert watched() is None, "a reference cycle holds the arguments of the failed call"
    finally:
        gc.enable()


def test_exceptions_in_the_users_block(
    tiny: Callable[[torch.Tensor], torch.Tensor], leftovers: Callable[[], list[str]]
) -> None:
    class Own(BaseException):
        pass

    for error in (ValueError("x"), KeyboardInterrupt(), Own(), StopIteration(), GeneratorExit()):
        runs: list[kernelscope.Run] = []

        def program(error: BaseException, runs: list[kernelscope.Run]) -> None:
            with kernelscope.record(ops="all") as run:
                runs.append(run)
                tiny(torch.ones(8))
                raise error

        with pytest.raises(type(error)) as caught:
            program(error, runs)
        assert caught.value is error
        assert runs[0].select(kind="cpp")
        assert not leftovers()


# -- what a recording leaves in memory -----------------------------------------------------------------


def test_a_thousand_recordings_leave_nothing(
    tiny: Callable[[torch.Tensor], torch.Tensor], leftovers: Callable[[], list[str]]
) -> None:
    x = torch.ones(8)
    with kernelscope.record(ops="all"):
        tiny(x)
    gc.collect()
    objects = len(gc.get_objects())
    runs = []
    for i in range(1000):
        with kernelscope.record(values="hash" if i % 2 else "off", ops="all" if i % 3 else "graph") as run:
            if i % 100 == 0:
                tiny(x) + 1
        runs.append(weakref.ref(run))
    del run
    gc.collect()
    assert not [r for r in runs if r() is not None]
    assert len(gc.get_objects()) - objects < 1500  # the weak references themselves are a thousand
    assert not BUS.storages._known
    assert not BUS._kernels
    assert not leftovers()


def test_a_recording_keeps_no_tensor_alive(tiny: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with kernelscope.record(values="hash", ops="all") as run:
        x = torch.ones(8)
        y = tiny(x) * 2
        storages = [weakref.ref(t) for t in (x, y)]
        del x, y
        assert [s() for s in storages] == [None, None]
    assert len(run) == 3


def test_a_long_recording_knows_only_living_storages() -> None:
    with kernelscope.record(ops="all", kernel="no-such-kernel") as run:
        for _ in range(9_000):
            torch.empty(1).fill_(1)
        assert len(BUS.storages._known) <= 4096
    assert len(run) == 0


# -- the shape of record() -----------------------------------------------------------------------------


def test_as_a_decorator(tiny: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Each call of the function is a recording of its own; its run is not at hand."""

    @kernelscope.record()
    def program() -> tuple[torch.Tensor, int]:
        return tiny(torch.ones(8)), len(BUS.listeners)

    for _ in range(2):
        out, listening = program()
        assert listening == 1
        assert torch.equal(out, tiny(torch.ones(8)))
    assert not BUS.listeners


def test_one_recording_cannot_be_entered_twice(leftovers: Callable[[], list[str]]) -> None:
    recording = kernelscope.record()
    with recording:
        pass
    with pytest.raises((RuntimeError, AttributeError)), recording:
        pytest.fail("entered again")
    assert not leftovers()


def test_a_dropped_recording_closes_itself(leftovers: Callable[[], list[str]]) -> None:
    manager = kernelscope.record(ops="all")
    manager.__enter__()
    assert leftovers()
    del manager
    gc.collect()
    assert not leftovers()


def test_nested_and_overlapping(
    tiny: Callable[[torch.Tensor], torch.Tensor], leftovers: Callable[[], list[str]]
) -> None:
    x = torch.ones(8)
    opened = [Recording(Config(ops=ops)) for ops in ("graph", "all", "all", "graph")]
    order = [1, 0, 3, 2]
    for recording in opened:
        recording.open()
    for place in order:
        tiny(x).cos()
        opened[place].close()
    assert not leftovers()
    for position, place in enumerate(order):
        run = opened[place].run
        assert len(run.select(kind="cpp")) == position + 1
        eager = run.select(kernel="aten.cos.default")
        assert len(eager) == (position + 1 if opened[place].config.ops == "all" else 0)
        assert [c.index for c in run] == list(range(len(run)))


def test_a_filter_of_one_recording_is_not_that_of_another(
    tiny: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    with (
        kernelscope.record(ops="all") as everything,
        kernelscope.record(kind="cpp") as compiled,
        kernelscope.record(kernel="*nothing*", ops="all") as nothing,
    ):
        tiny(torch.ones(8)).cos()
    assert [c.kind for c in everything] == ["op", "cpp", "op"]
    assert [c.kind for c in compiled] == ["cpp"]
    assert [c.index for c in compiled] == [0]
    assert not nothing.calls


def test_calls_read_while_recording_stay_right(tiny: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with kernelscope.record() as run:
        for count in range(1, 4):
            tiny(torch.ones(8))
            assert len(run.calls) == count
            assert str(run)
    assert [c.index for c in run] == [0, 1, 2]
