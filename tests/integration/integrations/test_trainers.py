"""Callbacks of trainers: exactly the chosen steps are recorded, and nothing else changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import installed
from tests.integration.integrations import tiny_training as tiny

import kernelscope
from kernelscope.integrations.step_recorder import StepRecorder, step_numbers
from kernelscope.recording.open_recordings import OPEN
from kernelscope.store import folder
from kernelscope.store.flight.ending import ending_of
from kernelscope.values import WatchHit

ROOT = Path(__file__).parents[3]


def steps_of(path: Path) -> list[int]:
    return sorted({call.step for call in kernelscope.load(path).calls})


class Watcher:
    """Called in each step by a trainer: what of kernelscope is hooked into torch at that moment."""

    def __init__(self) -> None:
        self.seen: dict[int, bool] = {}

    def look(self, step: int) -> None:
        target = "torch._inductor.output_code.CompiledFxGraph.__call__"
        method: Any = installed().methods.get(target)
        ours = method is not None and "kernelscope" in str(getattr(method, "__globals__", {}).get("__name__"))
        self.seen[step] = bool(OPEN) or ours


def test_steps_are_a_pair_or_a_list() -> None:
    assert step_numbers((3, 6)) == {3, 4, 5}
    assert step_numbers([3, 6]) == step_numbers({3, 6}) == {3, 6}
    assert step_numbers(range(2)) == {0, 1}
    for wrong in ((6, 3), [], [-1], ["3"], 3, None, (1.5, 3), [True]):
        with pytest.raises(ValueError, match="give the first step"):
            step_numbers(wrong)  # type: ignore[arg-type]


def test_ranges_have_a_run_each(tmp_path: Path) -> None:
    recorder = StepRecorder([1, 2, 5], path=tmp_path / "runs" / "x", stages=False)
    double = torch.compile(lambda x: x * 2)
    for step in range(7):
        recorder.begin(step)
        double(torch.ones(4))
        recorder.end(step)
        double(torch.ones(4))  # between two steps: an evaluation, say
        assert recorder.is_recording == (step == 1)
    assert [path.name for path in recorder.paths] == ["x-1.kscope", "x-2.kscope"]
    assert [steps_of(path) for path in recorder.paths] == [[1, 2], [5]]
    assert [len(kernelscope.load(path)) for path in recorder.paths] == [2, 1]


def test_training_without_the_chosen_steps_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late, right = (StepRecorder(steps, path=tmp_path / "x", stages=False) for steps in ((8, 9), (1, 9)))
    for recorder in (late, right):
        for step in range(4):
            recorder.begin(step)
            recorder.end(step)
        recorder.finish()
    told = capsys.readouterr().err
    assert told.count("kernelscope: nothing was recorded: ") == 1
    assert "of which the first is 8; the last one was 3" in told
    assert not OPEN


def test_ranks_share_a_run_without_talking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank has its part in the run of its launch, also if the other ranks have no recorder."""
    double = torch.compile(lambda x: x * 2)

    def record(rank: int, port: str) -> list[str]:
        for name, value in {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": port}.items():
            monkeypatch.setenv(name, value)
        recorder = StepRecorder([0, 2], path=tmp_path / "x", stages=False)
        for step in range(3):
            recorder.begin(step)
            double(torch.ones(4))
            recorder.end(step)
        return [str(path.relative_to(tmp_path)) for path in recorder.paths]

    assert record(0, "1") == ["x-1.kscope/rank-0", "x-2.kscope/rank-0"]
    assert record(1, "1") == ["x-1.kscope/rank-1", "x-2.kscope/rank-1"]
    assert record(0, "2") == ["x-3.kscope/rank-0", "x-4.kscope/rank-0"]  # rank 0 alone
    assert record(1, "3") == ["x-5.kscope/rank-1", "x-6.kscope/rank-1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"x-{n}.kscope" for n in range(1, 7)]
    assert [steps_of(tmp_path / f"x-{n}.kscope" / "rank-1") for n in (1, 2)] == [[0], [2]]


def test_failure_to_record_does_not_reach_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    recorder = StepRecorder((0, 2), path=tmp_path / "file" / "x")
    recorder.begin(0)
    recorder.end(0)
    recorder.begin(1)
    assert not recorder.paths
    assert capsys.readouterr().err.count("kernelscope: not recording:") == 1


@pytest.mark.parametrize("values", ["off", "hash"])
def test_what_stops_a_training_is_in_its_run(tmp_path: Path, values: str) -> None:
    function = torch.compile(lambda x: (x - 1).log() + 1)
    recorder = StepRecorder((1, 5), path=tmp_path / "x", stages=False, stop_on="nan", values=values)

    def train() -> None:
        for step in range(6):
            recorder.begin(step)
            function(torch.full((8,), 0.0 if step == 3 else 2.0))
            recorder.end(step)

    with pytest.raises(WatchHit):
        train()
    recorder.finish()
    assert not OPEN
    run = kernelscope.load(recorder.paths[0])
    [found] = [finding for finding in run.findings if finding.kind == "watch"]
    assert {moment for _, moment in run.saved_tensors(found.call)} == {"before", "after"}
    assert ending_of(run.path).kind == "stopped"


def test_transformers(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="Trainer needs it: pip install 'kernelscope[transformers]'")
    from transformers import TrainerCallback

    from kernelscope.integrations.transformers import KernelscopeCallback

    class Looks(TrainerCallback):  # type: ignore[misc]
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            watcher.look(state.global_step)

    bare, watcher = tiny.fit_transformers(tmp_path / "bare"), Watcher()
    callback = KernelscopeCallback(steps=(3, 6), path=tmp_path / "runs" / "hf")
    recorded = tiny.fit_transformers(tmp_path / "recorded", [callback, Looks()])
    assert tiny.same_parameters(bare, recorded)
    [path] = callback.recorder.paths
    assert steps_of(path) == [3, 4, 5]
    assert {step for step, is_open in watcher.seen.items() if is_open} == {3, 4, 5}
    assert set(watcher.seen) == set(range(10))
    assert {call.phase for call in kernelscope.load(path).calls} == {"forward", "backward"}
    marks = [mark.text for mark in kernelscope.load(path).marks if mark.kind == "step"]
    assert marks == ["3", "4", "5"]


def test_transformers_resume_and_accumulation(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="Trainer needs it: pip install 'kernelscope[transformers]'")
    from kernelscope.integrations.transformers import KernelscopeCallback

    first, second = (KernelscopeCallback(steps=(3, 8), path=tmp_path / "runs" / "hf") for _ in range(2))
    tiny.fit_transformers(tmp_path / "model", [first], steps=5, save_strategy="steps", save_steps=5)
    tiny.fit_transformers(tmp_path / "model", [second], resume=True)
    assert [steps_of(path) for path in first.recorder.paths] == [[3, 4]]
    assert [steps_of(path) for path in second.recorder.paths] == [[5, 6, 7]]
    assert second.recorder.paths[0].name == "hf-2.kscope"
    whole = KernelscopeCallback(steps=[2], path=tmp_path / "runs" / "accumulated")
    tiny.fit_transformers(tmp_path / "other", [whole], steps=4, gradient_accumulation_steps=2)
    forward = [call for call in kernelscope.load(whole.recorder.paths[0]).calls if call.phase == "forward"]
    assert {call.step for call in forward} == {2}
    assert len({call.graph_call for call in forward}) == 2  # both batches of the step


def test_transformers_after_an_exception(tmp_path: Path) -> None:
    """The Trainer calls no callback then; the next training has a run of its own."""
    pytest.importorskip("accelerate", reason="Trainer needs it: pip install 'kernelscope[transformers]'")
    from transformers import TrainerCallback

    from kernelscope.integrations.transformers import KernelscopeCallback

    class Fails(TrainerCallback):  # type: ignore[misc]
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            raise RuntimeError("out of luck")

    callback = KernelscopeCallback(steps=(0, 2), path=tmp_path / "runs" / "hf")
    with pytest.raises(RuntimeError, match="out of luck"):
        tiny.fit_transformers(tmp_path / "model", [callback, Fails()], steps=3)
    tiny.fit_transformers(tmp_path / "model", [callback], steps=3)
    assert not OPEN
    assert [steps_of(path) for path in callback.recorder.paths] == [[0], [0, 1]]


def test_lightning(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="pip install 'kernelscope[lightning]'")
    from lightning.pytorch import Callback

    from kernelscope.integrations.lightning import KernelscopeCallback

    class Looks(Callback):  # type: ignore[misc]
        def on_before_optimizer_step(self, trainer: Any, *_: Any) -> None:
            watcher.look(trainer.global_step)

    bare, watcher = tiny.fit_lightning(tmp_path), Watcher()
    callback = KernelscopeCallback(steps=(3, 6), path=tmp_path / "runs" / "pl")
    recorded = tiny.fit_lightning(tmp_path, [callback, Looks()])
    assert tiny.same_parameters(bare, recorded)
    assert [steps_of(path) for path in callback.recorder.paths] == [[3, 4, 5]]
    assert {step for step, is_open in watcher.seen.items() if is_open} == {3, 4, 5}
    assert set(watcher.seen) == set(range(10))


def test_lightning_resume_and_accumulation(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="pip install 'kernelscope[lightning]'")
    from kernelscope.integrations.lightning import KernelscopeCallback

    first, second = (KernelscopeCallback(steps=(3, 8), path=tmp_path / "runs" / "pl") for _ in range(2))
    model = tiny.fit_lightning(tmp_path, [first], steps=5)
    model.trainer_for_tests.save_checkpoint(tmp_path / "five.ckpt")
    tiny.fit_lightning(tmp_path, [second], resume=str(tmp_path / "five.ckpt"))
    assert [steps_of(path) for path in first.recorder.paths] == [[3, 4]]
    assert [steps_of(path) for path in second.recorder.paths] == [[5, 6, 7]]
    whole = KernelscopeCallback(steps=[2], path=tmp_path / "runs" / "accumulated")
    tiny.fit_lightning(tmp_path, [whole], steps=4, accumulate_grad_batches=2)
    forward = [call for call in kernelscope.load(whole.recorder.paths[0]).calls if call.phase == "forward"]
    assert len({call.graph_call for call in forward}) == 2


def test_lightning_closes_after_an_exception(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="pip install 'kernelscope[lightning]'")
    from lightning.pytorch import Callback

    from kernelscope.integrations.lightning import KernelscopeCallback

    class Fails(Callback):  # type: ignore[misc]
        def on_before_optimizer_step(self, trainer: Any, *_: Any) -> None:
            raise RuntimeError("out of luck")

    callback = KernelscopeCallback(steps=(0, 2), path=tmp_path / "runs" / "pl")
    with pytest.raises(RuntimeError, match="out of luck"):
        tiny.fit_lightning(tmp_path, [callback, Fails()])
    assert not OPEN
    assert steps_of(callback.recorder.paths[0]) == [0]


def test_accelerate(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="pip install 'kernelscope[accelerate]'")
    from kernelscope.integrations.accelerate import RecordedSteps

    made: list[RecordedSteps] = []

    def recorded_with(accelerator: Any) -> RecordedSteps:
        made.append(RecordedSteps(accelerator, steps=(3, 6), path=tmp_path / "runs" / "acc"))
        return made[-1]

    assert tiny.same_parameters(tiny.fit_accelerate(), tiny.fit_accelerate(recorded_with))
    assert [steps_of(path) for path in made[0].recorder.paths] == [[3, 4, 5]]
    tiny.fit_accelerate(recorded_with, batches=5, save=tmp_path / "state")
    tiny.fit_accelerate(recorded_with, batches=5, state=tmp_path / "state")
    assert [steps_of(path) for each in made[1:] for path in each.recorder.paths] == [[3, 4], [5]]
    tiny.fit_accelerate(recorded_with, accumulate=2)
    assert made[-1].step == 5
    assert steps_of(made[-1].recorder.paths[0]) == [3, 4]


RANKS = """
import os, sys
from pathlib import Path
from tests.integration.integrations import tiny_training as tiny
from kernelscope.integrations.{trainer} import KernelscopeCallback
callback = KernelscopeCallback(steps=(3, 6), path=Path(sys.argv[1]) / "ranks")
wanted = sys.argv[2] == "all" or os.environ["RANK"] == "0"
tiny.fit_{trainer}(Path(sys.argv[1]) / "model", [callback] if wanted else []{more})
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trainer", "more", "which"),
    [
        ("transformers", ", ddp_backend='gloo'", "all"),
        ("transformers", ", ddp_backend='gloo'", "first"),
        ("lightning", ", devices=2, strategy='ddp'", "all"),
    ],
)
def test_two_ranks(trainer: str, more: str, which: str, tmp_path: Path) -> None:
    for package in ("accelerate", trainer):
        pytest.importorskip(package, reason=f"pip install 'kernelscope[{trainer}]'")
    script = tmp_path / "ranks.py"
    script.write_text(RANKS.format(trainer=trainer, more=more))
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", str(script)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*words, str(tmp_path), which], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [run] = tmp_path.glob("ranks-*.kscope")
    parts = folder.parts(run)
    assert [part.name for part in parts] == ["rank-0", "rank-1"][: 2 if which == "all" else 1]
    assert all(steps_of(part) == [3, 4, 5] for part in parts)
