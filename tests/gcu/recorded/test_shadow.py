"""Shadow on gcu graphs: silent on clean programs, and planted faults are named, kernel and output."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from examples.gcu_models import Mlp, ResNetBlock, TransformerBlock

import kernelscope
from kernelscope.gcu import compile_graph
from kernelscope.gcu.execution import executor
from kernelscope.gcu.execution.executor import Launch


def program(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    h = torch.relu(x @ w + b)
    s = (h * 0.5).softmax(-1)
    return s.sum(0), h.amax(1), x.t() * 2, torch.cat([h, x], 1)


def given() -> list[torch.Tensor]:
    torch.manual_seed(3)
    return [torch.randn(*shape, requires_grad=True) for shape in ((5, 7), (7, 9), (9,))]


@dataclass(frozen=True)
class Fault:
    """A small change of the generated program; `node` is the FX node whose value is wrong then."""

    pattern: str
    instead: str
    node: str
    direction: str = "forward"


FAULTS = {
    "wrong operator": Fault(r"call dev_max\(v_add, 0\)", "__abs(v_add)", "div|amax_1|relu"),
    "wrong constant": Fault(r"\* 2\.0f", "* 2.001f", "mul_1"),
    "off by one": Fault(r"\.at\(r0\) - v_amax", ".at(r0 > 0 ? r0 - 1 : 0) - v_amax", "div|sum_1"),
    "dropped tail of a product": Fault(r"foreach k in \[7\]", "foreach k in [6]", "mm"),
    "dropped row": Fault(r"(?<=foreach \{r0\} in )\[5\]", "[4]", "sum_2"),
    "missing write": Fault(r"^ *amax_1\.at\(2 \* 2 \+ p\) = .*\n", "", "amax_1"),
    "wrong identity": Fault(r"acc_amax_1 = call dev_neg\(call dev_inf\(\)\)", "acc_amax_1 = 3.5f", "amax_1"),
    "swapped operands": Fault(r"k_mul\.at\(r0\) - v_amax", "v_amax - k_mul.at(r0)", "div|sum_1"),
    "accumulated in bfloat16": Fault(
        r"acc_sum_1 = acc_sum_1 \+ v_exp", "acc_sum_1 = __cast_f32(__cast_bf16(acc_sum_1 + v_exp))",
        "div|sum_1",
    ),
    "wrong stride": Fault(r"\.at\(v \+ k \* 9\)", ".at(v + k * 8)", "mm"),
    "wrong row of a broadcast": Fault(r"\+ l_b_\.at\(r0\)", "+ l_b_.at(0)", "div|amax_1|relu"),
    "nan on a rare value": Fault(
        r"f32 v_relu = call dev_max\(v_add, 0\)", "f32 v_relu = v_add > 2.4f ? __nan() : __max(v_add, 0)",
        "div|amax_1|relu",
    ),
    "wrong gradient": Fault(r"\* 2\.0f", "* 2.001f", "mul_\\d+|add_\\d+", "backward"),
    "a gradient's product drops its tail": Fault(
        r"foreach k in \[9\]", "foreach k in [8]", "mm_\\d+", "backward"
    ),
}  # fmt: skip
PATTERNS_ARE_FOR = 2  # threads: generated code depends on their number
ONE_OF_EACH = {"wrong operator", "missing write", "accumulated in bfloat16", "wrong gradient"}


def plant(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> list[str]:
    """Edit the program of every graph of that direction; gives the kernels that the fault really is in."""
    hits: list[str] = []
    original = compile_graph.to_dsl

    def to_dsl(dag: Any, hint: Any, done: Any) -> None:
        show = compile_graph.show

        def edited(tree: Any) -> str:
            parts = re.split(r"(?m)^(?=__co__ )", show(tree))
            for i, part in enumerate(parts):
                changed = re.sub(fault.pattern, fault.instead, part, flags=re.MULTILINE)
                if changed != part and done.direction == fault.direction:
                    found = re.match(r"__co__ \w+ (\w+)\(", part)
                    assert found is not None
                    hits.append(found[1])
                    parts[i] = changed
            return "".join(parts)

        with monkeypatch.context() as patch:
            patch.setattr(compile_graph, "show", edited)
            original(dag, hint, done)

    monkeypatch.setattr(compile_graph, "to_dsl", to_dsl)
    return hits


@pytest.mark.parametrize(
    "name", [n if n in ONE_OF_EACH else pytest.param(n, marks=pytest.mark.slow) for n in FAULTS]
)
def test_a_planted_fault_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[name]
    monkeypatch.setattr(torch, "get_num_threads", lambda: PATTERNS_ARE_FOR)
    hits = plant(monkeypatch, fault)
    result = kernelscope.check_correctness(program, given(), backend="gcu")
    assert hits
    assert result
    culprit = result.culprit
    assert culprit is not None
    assert culprit.kernel_name in hits
    assert {c.kernel_name for c in result.culprits} <= set(hits)  # and nobody else is
    assert culprit.kind == "gcu"
    assert culprit.verdict == "wrong-kernel"
    assert re.fullmatch(fault.node, culprit.node), culprit.node
    assert culprit.phase == fault.direction
    assert culprit.origin[0].file == __file__
    assert culprit.source.startswith("__co__")
    assert not result.unchecked


def clean(name: str) -> Callable[[], Any]:
    def of(model: Any, *args: torch.Tensor) -> Callable[[], Any]:
        return lambda: kernelscope.check_correctness(model, args, backend="gcu")

    torch.manual_seed(0)
    x = torch.randn(6, 10)
    programs: dict[str, Callable[[], Any]] = {
        "program": of(program, *given()),
        "mlp": of(Mlp(16, 32, 8), torch.randn(12, 16)),
        "attention": of(TransformerBlock(32, 4), torch.randn(2, 8, 32)),
        "sdpa": of(TransformerBlock(32, 4, sdpa=True), torch.randn(2, 8, 32)),
        "resnet": of(ResNetBlock(4), torch.randn(2, 4, 6, 6)),
        "bfloat16": of(lambda x: F.gelu(x).softmax(-1).sum(0), x.bfloat16().requires_grad_()),
        "integers": of(lambda x: (x.to(torch.int32) * 3 + 1, (x > 0).sum(0), x.argmax(1)), x),
        "dropout": of(lambda x: F.dropout(x.exp(), 0.3).mean(1), x.clone().requires_grad_()),
        "large sum": of(lambda x: x.sum() + x.mean() + x.var(), torch.randn(300, 400)),
        "cancellation": of(lambda x: (x + 1e6 - 1e6).sum(-1), x),
        "views": of(lambda x: (x.t()[1:], x.view(3, 20).chunk(2)[1] * 2, x.expand(2, 6, 10).sum(0)), x),
        "equal parts": of(lambda x: (x.exp() + x.exp().sum(), x.exp() * 2), x),
    }
    return programs[name]


@pytest.mark.parametrize(
    "name",
    [
        "program",
        "views",
        "dropout",
        "sdpa",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in (
                "mlp", "attention", "resnet", "bfloat16", "integers", "large sum", "cancellation",
                "equal parts",
            )
        ),
    ],
)  # fmt: skip
def test_nothing_is_said_of_a_clean_program(name: str) -> None:
    result = clean(name)()
    assert not result, result
    assert result.status == 0
    assert not result.unchecked
    assert result.counts.launches
    assert result.counts.buffers


def test_dynamic_shapes() -> None:
    with kernelscope.shadow() as result:
        compiled = torch.compile(lambda x, w: (x @ w).softmax(-1).sum(0), backend="gcu", dynamic=True)
        for rows in (3, 70):
            compiled(torch.randn(rows, 5), torch.randn(5, 4))
    assert not result, result
    assert not result.unchecked
    assert result.counts.graphs == 1


@pytest.mark.parametrize("fault", ["no launch", "swapped", "another's buffer", "aten"])
def test_a_fault_of_the_launch(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original, aten = Launch.run, executor.AtenCall.run

    def run(launch: Launch, tensors: Any, symbols: tuple[int, ...]) -> None:
        if "div" not in launch.kernel.outputs or fault == "aten":
            return original(launch, tensors, symbols)
        if fault == "no launch":
            return None
        if fault == "swapped":
            return original(launch, [tensors[1], tensors[0], *tensors[2:]], symbols)
        original(launch, tensors, symbols)
        return _spoil(tensors[0])

    def call(step: Any, args: Any, kwargs: Any) -> Any:
        result = aten(step, args, kwargs)
        return result * 1.001 if fault == "aten" and "cumsum" in str(step.target) else result

    monkeypatch.setattr(Launch, "run", run)
    monkeypatch.setattr(executor.AtenCall, "run", call)

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = (x @ y).cumsum(0)
        return h / (y * y + 1).sum(0), h @ y

    result = kernelscope.check_correctness(f, [torch.randn(6, 6), torch.randn(6, 6)], backend="gcu")
    assert result
    culprit = result.culprit
    assert culprit is not None
    if fault == "aten":
        assert (culprit.kernel_name, culprit.kind) == ("aten.cumsum.default", "extern")
    else:
        assert culprit.kind == "gcu"
        assert culprit.verdict == ("foreign-write" if fault == "another's buffer" else "wrong-kernel")
        assert culprit.node == "div" or fault == "another's buffer"


def _spoil(tensor: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.view(-1)[0] = 17


def test_command_line(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "from kernelscope.gcu.lowering import operator_texts as operators\n"
        "from dataclasses import replace\n"
        "rule = operators.POINTWISE['sin']\n"
        "operators.POINTWISE['sin'] = replace(rule, body='(__sin($0) + 0.01f)')\n"
        "def f(x):\n"
        "    y = x.cos()\n"
        "    return y.sin()\n"
        "torch.compile(f, backend='gcu')(torch.randn(9))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "kernelscope", "shadow", str(script)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert re.search(r"wrong-kernel: kernel #0 kernel_\w+ \(gcu\)", done.stdout)
    assert "train.py:8 in f" in done.stdout
    assert "FX node sin" in done.stdout
