"""Everyday programs under torch's DebugMode and under ours in stock's form: the same lines and values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.support.listed_programs import Program, listed
from torch import nn
from torch.utils import _debug_mode as stock

from kernelscope import debug_mode as ours


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.norm(self.linear(x)).relu())


class Nested(nn.Module):
    """Lists, dictionaries and sequences of modules, and one module at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.ends = nn.ModuleDict({"a": nn.Dropout(0.0), "b": nn.Sequential(nn.Linear(4, 2), nn.Tanh())})
        self.again = self.layers[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return torch.as_tensor(self.ends["b"](self.ends["a"](self.again(x))))


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def nested_modules(debug_mode: Any) -> None:
    Nested()(torch.ones(2, 4)).sum().backward()


def compiled_modules(debug_mode: Any) -> None:
    torch.compile(Nested(), backend="aot_eager")(torch.ones(2, 4)).sum().backward()


def graph_breaks_and_sizes(debug_mode: Any) -> None:
    @torch.compile(backend="aot_eager")
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x * x.shape[0]
        torch._dynamo.graph_break()
        return y + 1

    for size in (2, 3, 4):
        run(torch.ones(size))


def annotated_backward(debug_mode: Any) -> None:
    @torch.compile(backend="aot_eager")
    def run(x: torch.Tensor) -> torch.Tensor:
        debug_mode.DebugMode._annotate("one")
        y = x.sin()
        debug_mode.DebugMode._annotate("two words")
        return y.cos().sum()

    x = torch.ones(2, requires_grad=True)
    for name in ("outer", "inner"):
        with torch.profiler.record_function(name):
            debug_mode.DebugMode._annotate(name)
            run(x).backward()


def gradients(debug_mode: Any) -> None:
    x = torch.ones(2, requires_grad=True)
    Square.apply(x).sum().backward()  # type: ignore[no-untyped-call]
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    first.sum().backward()
    F.cross_entropy(torch.ones(2, 3, requires_grad=True), torch.tensor([0, 2])).backward()


def transformed(debug_mode: Any) -> None:
    torch.vmap(lambda a, b: a @ b)(torch.ones(3, 2, 2), torch.ones(3, 2))
    torch.func.grad(lambda x: (x * x).sum())(torch.ones(3))
    torch.func.jvp(torch.sin, (torch.ones(2),), (torch.ones(2),))


def indexed(debug_mode: Any) -> None:
    x = torch.arange(12.0).view(3, 4)
    x[1:, ::2] += 1
    x[x > 3] = 0
    torch.nonzero(x[torch.tensor([0, 2])])
    x[None, ..., 0].view(torch.Size([1, 3]))


def of_all_types(debug_mode: Any) -> None:
    for dtype in (torch.float64, torch.bfloat16, torch.int8, torch.bool, torch.complex64):
        torch.ones(2, dtype=dtype).to(torch.float16)
    torch.ones(0).sum()
    torch.fft.rfft(torch.ones(8)).conj().abs()
    torch.tensor(3.0).tolist()


def in_contexts(debug_mode: Any) -> None:
    with torch.no_grad():
        torch.ones(2) + 1
    with torch.inference_mode():
        torch.ones(2) * 2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.ones(2, 2) @ torch.ones(2, 2)


def many_tensors(debug_mode: Any) -> None:
    torch.cat([torch.ones(1), torch.ones(2)])
    torch.einsum("ij,jk->ik", torch.ones(2, 2), torch.ones(2, 2))
    torch.linalg.svd(torch.eye(2))
    torch.topk(torch.arange(4.0), 2)
    nn.LSTM(3, 2)(torch.ones(1, 2, 3))
    nn.MultiheadAttention(4, 2)(*[torch.ones(1, 3, 4)] * 3)


PROGRAMS: dict[str, Program] = {
    each.__name__: each
    for each in (
        nested_modules, compiled_modules, graph_breaks_and_sizes, annotated_backward, gradients, transformed,
        indexed, of_all_types, in_contexts, many_tensors,
    )
}  # fmt: skip
# What a mode records, and what it hashes.
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "plain": ({}, None),
    "hashes of inputs": (
        {"record_ids": True, "record_tensor_attributes": ["requires_grad"]},
        {"hash_inputs": True},
    ),
    "two hashes in regions": (
        {"run_compile_with_interpreter": True, "record_nn_module": True},
        {"hash_fn": ["norm", "hash_tensor"]},
    ),
    "stacks in regions": ({"run_compile_with_interpreter": True, "record_stack_trace": True}, None),
    "arguments": ({"store_original_args": True, "record_output": False}, {}),
    "no ranges": ({"record_profiler_context": False, "record_faketensor": True}, {}),
}


@pytest.fixture(autouse=True)
def stocks_form(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only the import is changed in a program; new memory holds NaN, so that its hashes agree too."""
    monkeypatch.setenv("KERNELSCOPE_STOCK_FORM", "1")
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def newly_listed(debug_mode: Any, program: Program, hashing: dict[str, Any] | None, **flags: Any) -> Any:
    torch._dynamo.reset()
    # Stock leaves the detection of anomalies on when a region is entered with stack traces.
    with torch.autograd.set_detect_anomaly(False):
        return listed(debug_mode, program, hashing, **flags)


def without_stocks_own_work(mode: Any) -> list[str]:
    """Its tracker of modules makes a view of each input that needs a gradient."""
    lines = mode.debug_string().splitlines()
    if not mode.record_nn_module:
        return list(lines)
    return [line for line in lines if not line.lstrip().startswith("aten::view(")]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_lines_and_entries_are_those_of_stock(program: str, settings: str) -> None:
    flags, hashing = SETTINGS[settings]
    mine, theirs = (newly_listed(m, PROGRAMS[program], hashing, **flags) for m in (ours, stock))
    assert without_stocks_own_work(mine) == without_stocks_own_work(theirs)
    if flags.get("record_nn_module"):
        return
    for one, other in zip(mine.operators, theirs.operators, strict=True):
        assert one.call_depth == other.call_depth
        if not isinstance(other, stock._OpCall):
            continue
        assert one.op == other.op
        assert str(one.log or None) == str(other.log or None)  # NaN differs from itself
        assert str(one.record) == str(other.record)
        assert bool(one.fwd_stack_trace) == bool(getattr(other, "fwd_stack_trace", None))
        if flags.get("store_original_args"):
            assert str((one.args, one.kwargs)) == str((other.args, other.kwargs))
        else:
            assert tuple(one) == tuple(other)


@pytest.mark.parametrize("program", ["indexed", "transformed", "of_all_types", "gradients"])
def test_functions_are_those_of_stock(program: str) -> None:
    """Slices, ellipses and sizes among the arguments are written out."""
    mine, theirs = (
        newly_listed(m, PROGRAMS[program], None, record_torchfunction=True) for m in (ours, stock)
    )
    assert mine.debug_string().splitlines() == theirs.debug_string().replace("(, ", "(").splitlines()


def test_hashes_of_two_modes_are_compared_alike() -> None:
    def found(debug_mode: Any, scale: float) -> Any:
        def program(_: Any) -> None:
            model = Nested()
            with torch.no_grad():
                model.layers[1].linear.weight.mul_(scale)
            torch.compile(model, backend="aot_eager")(torch.ones(2, 4)).sum().backward()

        return newly_listed(debug_mode, program, {"hash_inputs": True}).logs

    for compare_inputs in (False, True):
        entries = [
            [
                {name: str(value) for name, value in entry.items() if name != "difference"}
                for entry in m.DebugMode.check_hash_mismatches(found(m, 1), found(m, 2), compare_inputs)
                if not math.isnan(entry["hash1"])  # of new memory; for stock, NaN differs from NaN
            ]
            for m in (ours, stock)
        ]
        mine, theirs = (sorted(map(str, each)) for each in entries)
        assert mine == theirs
        assert mine
