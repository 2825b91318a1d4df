"""The recorded calls are the launches of the generated wrappers: one for one, in order, with their words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.integration.probes.launch_witnesses import launches_in, parameters, traced, variables
from torch import Tensor, nn
from torch.nn import functional as F

import kernelscope

# -- what is compiled ------------------------------------------------------------------------------------


@torch.library.custom_op("kernelscope_launches::scaled", mutates_args=())
def scaled(x: Tensor, factor: float) -> Tensor:
    return x * factor


@scaled.register_fake
def _(x: Tensor, factor: float) -> Tensor:
    return torch.empty_like(x)


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).reshape(2, 8, 3, 2, 8).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(2, 8, 16))
        return x + self.mlp(self.norm2(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + x)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(10, 8), nn.Linear(8, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.embedding(tokens)).flatten(0, 1), tokens.flatten())


def assorted(x: Tensor, index: Tensor, values: Tensor, n: int, total: Tensor) -> tuple[Tensor, ...]:
    both = torch.cat([scaled(x, 2.0).sin(), x @ x], 1)
    both = F.dropout(both, 0.5)
    ordered, order = torch.sort(both, 1)
    top, _ = torch.topk(both, 3, 1)
    counts = torch.zeros(8, 8).index_put_((index,), values, accumulate=True)
    total.copy_(x * n)
    return ordered.cos(), order, top, counts + n


@dataclass(frozen=True)
class Program:
    """A step, compiled and warm."""

    name: str
    step: Callable[[], None]


def trained(model: Callable[..., Tensor], *inputs: Tensor) -> Callable[[], None]:
    compiled = torch.compile(model)

    def step() -> None:
        compiled(*inputs).sum().backward()

    return step


def assorted_step() -> Callable[[], None]:
    compiled = torch.compile(assorted)
    tensors = torch.randn(8, 8), torch.tensor([0, 0, 3]), torch.randn(3, 8)
    compiled(*tensors, 3, torch.zeros(8, 8))  # the next number makes it a symbol

    def step() -> None:
        compiled(*tensors, 5, torch.zeros(8, 8))

    return step


def image() -> Tensor:
    return torch.randn(2, 4, 8, 8, requires_grad=True)


PROGRAMS: dict[str, Callable[[], Callable[[], None]]] = {
    "mlp": lambda: trained(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.randn(4, 8)),
    "transformer": lambda: trained(Transformer(), torch.randn(2, 8, 16, requires_grad=True)),
    "resnet": lambda: trained(ResNet(), image()),
    "classifier": lambda: trained(Classifier(), torch.arange(12).reshape(2, 6) % 10),
    "assorted": assorted_step,
}
WAYS = {  # what each program must contain, or it tests less than it says
    "mlp": {"cpp", "extern_kernels.addmm", "extern_kernels.mm"},
    "transformer": {"cpp", "extern_kernels.addmm", "extern_kernels.mm"},
    "resnet": {"cpp", "extern_kernels.convolution", "aten.convolution_backward.default"},
    "classifier": {"cpp", "extern_kernels.addmm"},
    "assorted": {
        "cpp", "extern_kernels.mm", "kernelscope_launches.scaled.default", "aten.sort.stable",
        "aten.topk.default", "aten.randint.low_out",
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> Program:
    torch.manual_seed(0)
    step = PROGRAMS[request.param]()
    step()
    step()
    return Program(request.param, step)


# -- the tests -------------------------------------------------------------------------------------------


def recorded(program: Program, **options: Any) -> list[kernelscope.KernelCall]:
    with kernelscope.record(**options) as run:
        program.step()
    assert not run.findings
    return run.calls


def test_the_witnesses_agree(program: Program) -> None:
    executed = traced(program.step)
    assert {"cpp" if e.name.startswith("cpp_") else e.name for e in executed} >= WAYS[program.name]
    for path in {e.file for e in executed}:
        assert [e for e in executed if e.file == path] == list(launches_in(path).values())


@pytest.mark.parametrize("values", ["off", "hash"])
def test_one_call_for_each_launch_in_order(program: Program, values: str) -> None:
    expected = [(e.file, e.line, e.name) for e in traced(program.step)]
    calls = recorded(program, values=values)
    assert [(*c.wrapper_line, c.kernel_name) for c in calls] == expected
    assert [c.index for c in calls] == list(range(len(expected)))


def test_every_step_is_recorded_again(program: Program) -> None:
    expected = [e.name for e in traced(program.step)]
    with kernelscope.record() as run:
        program.step()
        program.step()
    assert [c.kernel_name for c in run.calls] == expected * 2


def test_ops_all_adds_eager_operators_and_repeats_no_launch(program: Program) -> None:
    expected = [e.name for e in traced(program.step)]
    calls = recorded(program, ops="all")
    assert [c.kernel_name for c in calls if c.kind != "op"] == expected
    assert not {"aten.sort.stable", "aten.convolution_backward.default"} & {
        c.kernel_name for c in calls if c.kind == "op"
    }


def test_wrapper_names_are_the_words_of_the_text(program: Program) -> None:
    expected = [list(variables(e)) for e in traced(program.step)]
    found = [[name for name in c.wrapper_names if name] for c in recorded(program)]
    assert [[re.sub(r"\s", "", n) for n in names] for names in found] == [
        [re.sub(r"\s", "", n) for n in names] for names in expected
    ]


def test_argument_names_are_those_of_the_cpp_signature(program: Program) -> None:
    calls = [c for c in recorded(program) if c.kind == "cpp"]
    assert calls
    for call in calls:
        assert list(call.arg_names) == parameters(call.kernel_name, call.wrapper_line[0])


def test_kinds_and_phases(program: Program) -> None:
    for call in recorded(program):
        assert call.kind == ("cpp" if call.kernel_name.startswith("cpp_") else "extern")
        assert call.producer == "inductor"
        graph = call.graph
        assert graph is not None
        assert call.phase == ("backward" if graph.direction == "backward" else "forward")


def test_scalars_of_the_graph_are_recorded_with_their_values() -> None:
    compiled = torch.compile(lambda x, n: x * n, dynamic=True)
    with kernelscope.record() as run:
        compiled(torch.ones(8), 3)
        compiled(torch.ones(9), 7)
    first, second = run.calls
    assert first.arg_names == second.arg_names == ("in_ptr0", "out_ptr0", "ks0", "ks1")
    assert (first.args[2:], second.args[2:]) == ((8, 3), (9, 7))
    assert [c.arguments[1].tensor.shape for c in run.calls] == [(8,), (9,)]


def test_filters_leave_the_rest_untouched(program: Program) -> None:
    everything = recorded(program)
    only = recorded(program, kind="cpp")
    assert [c.kernel_name for c in only] == [c.kernel_name for c in everything if c.kind == "cpp"]


def test_a_launch_that_cannot_be_described_still_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("planted")

    compiled = torch.compile(lambda x, n: (x * n) @ x)
    x = torch.ones(4, 4)
    expected = compiled(x, 2)
    monkeypatch.setattr("kernelscope.probes.python_wrappers.wrapper_launches.operator_args", broken)
    with kernelscope.record() as run:
        assert torch.equal(compiled(x, 2), expected)
    assert [c.kind for c in run.calls] == ["cpp"]
    [finding] = run.findings
    assert finding.kind == "recorder-error"
    assert "extern_kernels.mm" in finding.message
    assert "planted" in finding.message
