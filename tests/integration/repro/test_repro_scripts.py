"""Scripts of calls and graphs in which nothing is wrong: each passes where only torch is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.integration.only_torch import OnlyTorch
from tests.programs import everyday_programs as everyday
from tests.programs.clean_programs import PROGRAMS
from torch import nn

import kernelscope
from kernelscope.repro import call_script, files, graph_script
from kernelscope.repro.script_parts import Script

ROOT = Path(__file__).parents[3]
OPERATORS = "tests.programs.clean.operators"  # a program's own, which a script has to import


def in_place() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x += 1
        y[0] = 5
        return x.mul_(y).sum(0)

    torch.compile(fn)(torch.randn(4, 5), torch.randn(4, 5))


def views_of_one_input() -> None:
    """The second reads what was written through the first."""

    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return b * 2

    x = torch.randn(10, 8)
    torch.compile(fn)(x[1:9], x[2:])


def joined_and_read_again() -> None:
    """One kernel fills parts of a buffer under two names, and reads it under a third."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.cat([x, y]).reshape(-1) * 2, x[: x.shape[0] // 2] + 1, (x @ x.t()).reshape(-1).sin()

    torch.compile(fn, dynamic=True)(torch.randn(4, 8), torch.randn(6, 8))


def expanded() -> None:
    a, b = torch.randn(1, 8).expand(6, 8), torch.randn(6, 1).expand(6, 8)
    torch.compile(lambda a, b: (a * 2 + b, (a * b).sum(0)))(a, b)


def narrow() -> None:
    """8 bits, an address that is not aligned, no elements at all, no dimensions."""

    def fn(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x.float() * 1.3).to(x.dtype), y.sin() + s, torch.cat([z, z]) * 2

    x, y = torch.randn(9, 7).to(torch.float8_e4m3fn), torch.randn(65).bfloat16()[1:]
    torch.compile(fn)(x, y, torch.randn(0, 3), torch.tensor(2.5))


def cancelling() -> None:
    """What is left is rounding, of what is in between."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum() - x.flip(0).sum(), torch.sin((x - x.mean(0)).sum(0) * 1e3)

    torch.compile(fn)(torch.randn(64, 100))


def changed_in_the_middle() -> None:
    """In the buffer of another node, and before it is read."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + x.t()
        y.diagonal().mul_(0.5)
        return y @ x

    torch.compile(fn)(torch.randn(6, 6))


def read_in_parts() -> None:
    def fn(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(3, 4)
        for each in x:
            state = torch.tanh(each @ weight + state)
        return state

    torch.compile(fn)(torch.randn(2, 3, 5), torch.randn(5, 4))


def in_a_context() -> None:
    """Of which the traced graph says nothing: autocast, and a gradient within."""
    with torch.autocast("cpu", torch.bfloat16):
        torch.compile(lambda x, weight: (x @ weight).relu())(torch.randn(4, 6), torch.randn(6, 5))
    torch.compile(torch.func.grad(lambda x: x.sin().square().sum()))(torch.randn(7))


def lists_in_place() -> None:
    """Operators that write to each tensor of a list and return nothing, whether or not it is read again."""

    def fn(xs: list[torch.Tensor], ys: list[torch.Tensor]) -> torch.Tensor:
        torch._foreach_mul_(xs, 0.9)
        torch._foreach_add_(xs, ys, alpha=2)
        return xs[0] * 2

    torch.compile(fn)([torch.randn(3), torch.randn(2, 2)], [torch.randn(3), torch.randn(2, 2)])
    weights = [nn.Parameter(torch.randn(5, 3)), nn.Parameter(torch.randn(7))]
    for w in weights:
        w.grad = torch.randn_like(w)
    torch.compile(torch.optim.AdamW(weights, foreach=True).step)()


ODD = [
    in_place, views_of_one_input, joined_and_read_again, expanded, narrow, cancelling, changed_in_the_middle,
    read_in_parts, in_a_context, lists_in_place,
]  # fmt: skip
# What cannot be compared: it only draws random numbers, or returns nothing.
UNSURE = ("randint", "rand", "randn", "bernoulli", "_linalg_check_errors")


def script_of(run: Any, call: int) -> Script:
    script = call_script(run, call)
    return call_script(run, call, [OPERATORS]) if "torch.ops.kernelscope_tests" in script.text else script


def check_scripts(path: Path, only_torch: OnlyTorch, *, graphs: bool) -> int:
    run = kernelscope.load(path)
    sites: dict[Any, int] = {}
    for call in run.calls:
        sites.setdefault((call.kernel_name, call.wrapper_line), call.index)
    made = [(str(run.calls[i]), script_of(run, i)) for i in sites.values()]
    made += [(graph.name, graph_script(run, str(graph.id))) for graph in run.graphs if graphs]
    paths = [files.write(script, path.parent / f"it's {i}") for i, (_, script) in enumerate(made)]
    for i in range(0, len(made), 2):  # two at once
        started = [
            only_torch.start(each, paths=[ROOT] if f"import {OPERATORS}" in script.text else [])
            for each, (_, script) in zip(paths[i : i + 2], made[i:], strict=False)
        ]
        for (name, _), each in zip(made[i:], started, strict=False):
            status, said = only_torch.wait(each)
            is_unsure = status == 2 and any(word in name for word in UNSURE)
            assert status == 0 or is_unsure, f"{name}\n{said}"
    return len(made)


@pytest.mark.timeout(900)
def test_programs_that_are_hard_to_write_down(tmp_path: Path, only_torch: OnlyTorch) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with kernelscope.record(values="save", stages=True, path=tmp_path / "r"):
        for program in ODD:
            program()
    assert check_scripts(tmp_path / "r.kscope", only_torch, graphs=True) >= 2 * len(ODD)


def test_a_run_with_statistics_only(tmp_path: Path, only_torch: OnlyTorch) -> None:
    """Inputs are drawn, with a NaN and zeros as there were; eager is what is left to compare with."""
    x = torch.randn(16, 16).relu()
    x[3, 3] = torch.nan
    torch._dynamo.reset()
    with kernelscope.record(values="stats", stages=True, path=tmp_path / "r"):
        torch.compile(lambda x, y: (x / 3 + y, x.sum(0)))(x, torch.randn(0, 1).sum(0))
    script = call_script(kernelscope.load(tmp_path / "r.kscope"), 0)
    assert "'nan': 1" in script.text
    status, said = only_torch.run(files.write(script, tmp_path / "a"))
    assert status == 0, said
    assert "matches eager" in said


def saved(program: Callable[[], None], folder: Path) -> Path:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with kernelscope.record(values="save", stages=True, path=folder / "r"):
        program()
    torch._dynamo.reset()
    return folder / "r.kscope"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_every_call_of_programs_in_which_nothing_is_wrong(
    program: Callable[[], None], tmp_path: Path, only_torch: OnlyTorch
) -> None:
    check_scripts(saved(program, tmp_path), only_torch, graphs=False)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("program", everyday.PROGRAMS.values(), ids=everyday.PROGRAMS.keys())
def test_every_call_and_graph_of_programs_that_people_have(
    program: Callable[[], None], tmp_path: Path, only_torch: OnlyTorch
) -> None:
    check_scripts(saved(program, tmp_path), only_torch, graphs=True)
