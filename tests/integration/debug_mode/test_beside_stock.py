"""Programs under torch's DebugMode and under ours, with only the import changed: the same listing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.support.torch_release import RELEASE
from torch.utils import _debug_mode as stock

from kernelscope import debug_mode as ours

Program = Callable[[Any], None]


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.second(self.first(x).relu()))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.act = torch.nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.block(x))
        return torch.as_tensor(y + 1)


def trained(debug_mode: Any) -> None:
    model = torch.compile(Model(), backend="aot_eager")
    for _ in range(2):
        model(torch.ones(2, 4, requires_grad=True)).sum().backward()


def in_a_module(debug_mode: Any) -> None:
    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.compile(Block(), backend="aot_eager")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.inner(x) * 2)

    Outer()(torch.ones(2, 4))


def nested_regions(debug_mode: Any) -> None:
    @torch.compiler.nested_compile_region
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2

    @torch.compiler.nested_compile_region
    def outer(x: torch.Tensor) -> torch.Tensor:
        return inner(x) + inner(x + 1)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def run(x: torch.Tensor) -> torch.Tensor:
        return outer(x) - inner(x)

    run(torch.ones(3, requires_grad=True)).sum().backward()


def annotated(debug_mode: Any) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        debug_mode.DebugMode._annotate("sines")
        y = x.sin()
        debug_mode.DebugMode._annotate("cosines")
        return y.cos()

    run(torch.ones(3))
    compiled = torch.compile(run, backend="aot_eager")
    with torch.profiler.record_function("twice"):
        compiled(torch.ones(3))
        compiled(torch.ones(3))


def with_a_caught_error(debug_mode: Any) -> None:
    def fail(x: torch.Tensor) -> torch.Tensor:
        return x.view(5) + 1

    with pytest.raises(RuntimeError), torch.profiler.record_function("fails"):
        fail(torch.ones(4))
    torch.ones(2).add_(1)


PROGRAMS: dict[str, Program] = {
    each.__name__: each for each in (trained, in_a_module, nested_regions, annotated, with_a_caught_error)
}
SETTINGS: list[dict[str, bool]] = [
    {},
    {"record_nn_module": True},
    {"run_compile_with_interpreter": True, "record_nn_module": True},
    {"run_compile_with_interpreter": True, "record_stack_trace": True},
    {"record_ids": True, "record_output": False},
]


def listing(debug_mode: Any, program: Program, settings: dict[str, bool]) -> list[str]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    # Stock leaves the detection of anomalies on when a region is entered with stack traces.
    with torch.autograd.set_detect_anomaly(False), debug_mode.DebugMode(**settings) as mode:
        program(debug_mode)
    return str(mode.debug_string()).splitlines()


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "+".join(s) or "plain")
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_same_listing(program: str, settings: dict[str, bool]) -> None:
    if program == "nested_regions" and settings.get("record_nn_module"):  # stock breaks the compilation
        plain = {name: on for name, on in settings.items() if name != "record_nn_module"}
        lines = listing(ours, PROGRAMS[program], settings)
        assert [li.strip() for li in lines if "nn.Mod" not in li] == [
            line.strip() for line in listing(stock, PROGRAMS[program], plain)
        ]
        return
    expected = listing(stock, PROGRAMS[program], settings)
    found = listing(ours, PROGRAMS[program], settings)
    # Older ones name the code that torch generated instead of the program's, and so one line for many.
    if RELEASE < (2, 13) and any("<eval_with_key>" in line for line in expected):
        expected, found = ([li for li in lines if "# File:" not in li] for lines in (expected, found))
    assert found == expected
    assert len(expected) > 3


def test_stock_is_still_heard_beside_ours() -> None:
    torch._dynamo.reset()
    model = torch.compile(Model(), backend="aot_eager")
    with stock.DebugMode(run_compile_with_interpreter=True) as theirs, ours.DebugMode() as mode:
        model(torch.ones(2, 4))
    assert "[aot_eager region (compile)] enter" in theirs.debug_string()
    assert "aten::addmm" in mode.debug_string()


def test_nested_ones_both_list_regions() -> None:
    torch._dynamo.reset()
    model = torch.compile(Model(), backend="aot_eager")
    with ours.DebugMode(run_compile_with_interpreter=True) as outer:
        with ours.DebugMode(run_compile_with_interpreter=True, record_nn_module=True) as inner:
            assert ours.get_active_debug_mode() is inner
            model(torch.ones(2, 4))
        assert ours.get_active_debug_mode() is outer
    assert ours.get_active_debug_mode() is None
    for mode in (outer, inner):
        assert mode.debug_string().count("[aot_eager region (compile)]") == 2
    assert "[nn.Mod (compile)] L['self'].block.first" in inner.debug_string()
    assert "nn.Mod" not in outer.debug_string()


def test_stocks_names_find_the_same_entries() -> None:
    def counts(debug_mode: Any) -> dict[str, int]:
        torch._dynamo.reset()
        with debug_mode.DebugMode(record_nn_module=True) as mode:
            trained(debug_mode)
            annotated(debug_mode)
        names = ("_DebugCall", "_OpCall", "_AnnotateCall", "_RedistributeCall", "_OutputPlacementCall")
        return {n: sum(isinstance(e, getattr(debug_mode, n)) for e in mode.operators) for n in names}

    found = counts(ours)
    assert found == counts(stock)
    assert all(found[name] for name in ("_DebugCall", "_OpCall", "_AnnotateCall"))


def test_names_that_programs_import_are_there() -> None:
    theirs = {n for n, v in vars(stock).items() if getattr(v, "__module__", "").startswith(stock.__name__)}
    assert theirs - set(vars(ours)) == {"DebugInterpreter"}
    tensors = [torch.tensor([1.5, -2.0]), torch.arange(5), torch.tensor([True]), torch.ones(2) * 1j]
    tensors += [torch.tensor([]), torch.tensor([math.inf, -1.0]), torch.ones(3, 2).t()]
    for name in ("norm_hash_fn", "hash_tensor_fn"):
        for tensor in tensors:
            mine, other = (getattr(m, name)(tensor, use_scalar=True) for m in (ours, stock))
            assert mine == other, (name, tensor)
    assert ours.default_hash_fn is ours.norm_hash_fn  # its name in older releases


def test_entries_have_the_texts_of_stocks() -> None:
    def texts(debug_mode: Any) -> list[tuple[Any, ...]]:
        with debug_mode.DebugMode() as mode:
            x = torch.ones(2, 3)
            torch.add(x.t(), 1, alpha=2)
            torch.mm(x, x.t(), out=torch.empty(2, 2))
        calls = [c for c in mode.operators if isinstance(c, debug_mode._OpCall)]
        return [(debug_mode._get_call_name(c), c.args_str, c.kwargs_str, c.output_str) for c in calls]

    # Names differ in form alone: stock has the overload's dotted name.
    for mine, theirs in itertools.zip_longest(texts(ours), texts(stock)):
        assert mine[1:] == theirs[1:]
        assert mine[0].partition("::")[2].partition(".")[0] in theirs[0]


@pytest.mark.parametrize("hash_fn", ["norm", "bits", lambda t: t.sum().item()])
def test_the_hash_of_a_nan_equals_itself(hash_fn: Any) -> None:
    def hashes() -> list[Any]:
        with ours.DebugMode() as mode, ours.DebugMode.log_tensor_hashes(hash_fn):
            torch.tensor([1.0, math.nan]) * 2
        return [c.log["hash"] for c in mode.operators if isinstance(c, ours._OpCall) and c.log]

    first, second = hashes(), hashes()
    assert first
    assert not any(a != b for a, b in zip(first, second, strict=True))
    hash1, hash2 = first[-1], second[-1]
    assert (hash1 != hash2) is False
    assert hash1 == hash2
    if hash_fn != "bits":
        assert math.isnan(hash1)
        assert hash1 != 1.0
        assert str(hash1) == "nan"


def test_operators_of_a_region_are_calls_of_a_recording() -> None:
    import kernelscope

    @torch.compiler.nested_compile_region
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2

    run = torch.compile(lambda x: inner(x) + inner(x + 1), backend="aot_eager", fullgraph=True)
    torch._dynamo.reset()
    with kernelscope.record(ops="all", values="hash") as recorded:
        result = run(torch.ones(3))
    names = [call.kernel_name for call in recorded]
    assert names.count("aten.sin.default") == names.count("aten.mul.Tensor") == 2, names
    assert torch.equal(result, run(torch.ones(3)))
