"""What a function changes is put back before it runs again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import kernelscope
from kernelscope.cli import main
from kernelscope.determinism.state import State

COUNTED = 0


class Trainer:
    """An ordinary object: neither a module nor an optimizer."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(4, 4)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda n: 0.5**n)
        self.history: list[float] = []
        self.steps = 0

    def step(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        self.optimizer.zero_grad()
        loss = self.model(x).sum() * self.steps + len(self.history)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.history.append(float(loss))
        return loss


@dataclass
class Batch:
    x: torch.Tensor


def double_batch(batch: Batch) -> torch.Tensor:
    batch.x.mul_(2)
    return batch.x + 1


def double_entry(entries: dict[str, torch.Tensor]) -> torch.Tensor:
    entries["x"] = entries["x"] * 2
    return entries["x"] + 1


def grow(values: list[torch.Tensor]) -> torch.Tensor:
    values.append(torch.ones(1) * len(values))
    return values[-1] * len(values)


def count() -> torch.Tensor:
    global COUNTED
    COUNTED += 1
    return torch.ones(2) * COUNTED


def count_inside() -> Callable[[], torch.Tensor]:
    counted = 0

    def step() -> torch.Tensor:
        nonlocal counted
        counted += 1
        return torch.ones(2) * counted

    return step


def shift(values: np.ndarray) -> torch.Tensor:
    values += 1
    return torch.from_numpy(values) * 2


def update(x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return x.add_(1) * 2


def in_inference_mode() -> torch.Tensor:
    with torch.inference_mode():
        return torch.randn(3)


OWN = torch.Generator().manual_seed(1)
PROGRAMS: dict[str, tuple[Callable[..., Any], Any]] = {
    "a method": (Trainer().step, torch.ones(3, 4)),
    "partial": (functools.partial(Trainer().step), torch.ones(3, 4)),
    "a dataclass": (double_batch, Batch(torch.ones(3))),
    "a dict": (double_entry, {"x": torch.ones(3)}),
    "a list": (grow, [torch.ones(2)]),
    "an array": (shift, np.ones(3)),
    "a generator": (lambda n: torch.rand(n, generator=OWN) * 2, 3),
    "a conjugate": (lambda z: z * 2, torch.randn(3, dtype=torch.complex64).conj()),
    "inference mode": (update, in_inference_mode()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_is_deterministic(name: str) -> None:
    fn, argument = PROGRAMS[name]
    result = kernelscope.check_determinism(fn, argument)
    assert not result, str(result)


@pytest.mark.parametrize("fn", [count, count_inside()], ids=["a global", "a closure"])
def test_counters_are_put_back(fn: Callable[[], torch.Tensor]) -> None:
    result = kernelscope.check_determinism(fn)
    assert not result, str(result)
    assert fn()[0] == 1


def test_all_of_an_object_is_put_back() -> None:
    trainer = Trainer()
    weight = trainer.model.weight.detach().clone()
    state = State(trainer.step, (), {})
    trainer.step(torch.ones(3, 4))
    assert trainer.steps == 1
    state.put_back()
    assert (trainer.steps, trainer.history, trainer.schedule.last_epoch) == (0, [], 0)
    assert torch.equal(trainer.model.weight, weight)
    assert trainer.model.weight.grad is None
    assert not trainer.optimizer.state


HELPER = """
import torch
calls = []

def grow():
    calls.append(0)
    return torch.ones(2) * len(calls)
"""


def test_a_scripts_own_modules_are_loaded_anew_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    (home / "kept.py").write_text(HELPER)
    (home / "script.py").write_text("import kept\nkept.grow()\n")
    monkeypatch.chdir(elsewhere)
    assert main(["determinism", "--runs", "2", str(home / "script.py")]) == 0, capfd.readouterr()


@pytest.mark.slow
def test_a_script_that_runs_only_once_in_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    once = (
        "import sys, torch\ntorch.ones(2) * 2\nassert not hasattr(sys, 'been_here')\nsys.been_here = True\n"
    )
    Path("once.py").write_text(once)
    assert main(["determinism", "--runs", "2", "once.py"]) == 2
    assert "needs --fresh" in capfd.readouterr().err
