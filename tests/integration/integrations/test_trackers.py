"""Trackers: what MLflow, Weights & Biases (offline) and TensorBoard hold after a run was logged."""

from __future__ import annotations

import json
import time
import zipfile
from pathlib import Path

import pytest
import torch

import kernelscope
from kernelscope.cli import main

KERNEL = "cpp_fused_div_sin_0"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run with statistics and one with tensors, of three steps each; one step makes NaN."""
    home = tmp_path_factory.mktemp("runs")
    half = torch.compile(lambda x: x.sin() / 2)
    for values in ("stats", "save"):
        with kernelscope.record(values=values, time=True, path=home / "kscope-runs" / values):
            for step in range(3):
                half(torch.full((8,), float("nan") if step == 2 else float(step)))
                kernelscope.step()
    torch._dynamo.reset()
    return home


@pytest.fixture
def here(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(runs)
    return runs


def test_mlflow(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mlflow = pytest.importorskip("mlflow", reason="pip install 'kernelscope[mlflow]'")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    mlflow.set_tracking_uri(uri)
    assert main(["export", "stats", "--mlflow", "-o", uri]) == 0
    identity = capsys.readouterr().out.split()[1]
    client = mlflow.MlflowClient()
    logged = client.get_run(identity).data
    assert logged.metrics["kernelscope/calls"] == 3
    assert logged.tags["kernelscope.version.torch"] == torch.__version__
    history = client.get_metric_history(identity, f"kernelscope/{KERNEL}/out_ptr0/nan")
    assert [(point.step, point.value) for point in history] == [(0, 0), (1, 0), (2, 8)]
    names = {file.path for file in client.list_artifacts(identity, "kernelscope")}
    assert names == {f"kernelscope/{name}" for name in ("stats.kscope.zip", "report.html", "findings.json")}
    path = "kernelscope/stats.kscope.zip"
    packed = mlflow.artifacts.download_artifacts(run_id=identity, artifact_path=path)
    assert zipfile.ZipFile(packed).testzip() is None
    from kernelscope.integrations.mlflow import log_run

    with mlflow.start_run() as active:
        assert log_run("save") == active.info.run_id  # the user's own run is used, and stays open
        assert mlflow.active_run() is not None


def test_wandb_offline(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("wandb", reason="pip install 'kernelscope[wandb]'")
    assert main(["export", "stats", "--wandb", "-o", str(tmp_path)]) == 0
    folder = Path(capsys.readouterr().out.split("wandb sync ")[-1].strip())
    assert folder.name.startswith("offline-run-")
    [log] = folder.glob("run-*.wandb")
    wanted = [each.encode() for each in ("report.html", "stats.kscope.zip", "findings.json", KERNEL)]
    deadline = time.monotonic() + 60  # wandb writes it from a process of its own
    while not all(each in log.read_bytes() for each in wanted):
        assert time.monotonic() < deadline, log.read_bytes()
        time.sleep(0.2)


def test_tensorboard(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard", reason="pip install 'kernelscope[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for name in ("stats", "save"):
        assert main(["export", name, "--tensorboard", "-o", str(tmp_path / name)]) == 0
        said = capsys.readouterr().out
        assert "tensorboard --logdir" in said
        assert ("record with --values stats" in said) == (name == "save")  # it has histograms alone
    stats = EventAccumulator(str(tmp_path / "stats" / "stats"), {"histograms": 0}).Reload()
    points = [(event.step, event.value) for event in stats.Scalars(f"{KERNEL}/out_ptr0/nan")]
    assert points == [(0, 0), (1, 0), (2, 8)]
    largest = [event.value for event in stats.Scalars(f"{KERNEL}/out_ptr0/max")]
    assert largest == pytest.approx([0, float(torch.tensor(1.0).sin() / 2)])  # nothing is finite in step 2
    assert len(stats.Histograms(f"{KERNEL}/seconds")) == 3
    saved = EventAccumulator(str(tmp_path / "save" / "save"), {"histograms": 0}).Reload()
    histograms = saved.Histograms(f"{KERNEL}/out_ptr0")
    assert [(event.step, event.histogram_value.num) for event in histograms] == [(0, 8), (1, 8)]


def test_tensorboard_runs_in_one_folder_stay_apart(here: Path, tmp_path: Path) -> None:
    """TensorBoard draws all files of a folder as one curve: no point may come from another run."""
    pytest.importorskip("tensorboard", reason="pip install 'kernelscope[tensorboard]'")
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    for name in ("stats", "save", "stats"):
        assert main(["export", name, "--tensorboard", "-o", str(tmp_path / "logs")]) == 0
    seen = EventMultiplexer().AddRunsFromDirectory(str(tmp_path / "logs")).Reload()
    assert set(seen.Runs()) == {"stats", "save", "stats-2"}
    for name in ("stats", "stats-2"):
        assert [event.step for event in seen.Scalars(name, f"{KERNEL}/out_ptr0/nan")] == [0, 1, 2]


@pytest.mark.parametrize("tracker", ["mlflow", "wandb", "tensorboard"])
def test_filters_are_not_ignored(
    tracker: str, here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["--step", "0"], ["--kernel", "x*"], ["--limit", "2"]):
        assert main(["export", "stats", f"--{tracker}", *words, "-o", str(tmp_path / "x")]) == 2
        assert f"--{tracker} exports the whole run: leave out" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_place_that_cannot_be_written_is_a_sentence(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard", reason="pip install 'kernelscope[tensorboard]'")
    (tmp_path / "taken").touch()
    assert main(["export", "stats", "--tensorboard", "-o", str(tmp_path / "taken")]) == 2
    told = capsys.readouterr().err
    assert "cannot be written" in told
    assert "Traceback" not in told


def test_part_of_a_run_has_a_name_of_its_own(tmp_path: Path) -> None:
    from tests.support.sample_runs import write_sample

    from kernelscope.integrations.tracked_run import name_of

    for path, name in (("a.kscope/rank-0", "a-rank-0"), ("b.kscope/rank-0", "b-rank-0"), ("c.kscope", "c")):
        write_sample(tmp_path / path)
        assert name_of(kernelscope.load(tmp_path / path)) == name


def test_missing_package_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelscope.integrations import mlflow, packages, tensorboard, wandb

    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    logs = {"mlflow": mlflow.log_run, "wandb": wandb.log_run, "tensorboard": tensorboard.log_run}
    for name, log in logs.items():
        given = ("stats", "x") if name == "tensorboard" else ("stats",)
        with pytest.raises(ImportError, match=rf"needs {name}, .* pip install 'kernelscope\[{name}\]'"):
            log(*given)  # type: ignore[operator]


def test_findings_are_a_file(here: Path) -> None:
    from kernelscope.integrations.tracked_run import files_of, opened

    with files_of(opened("stats")) as files:
        found = json.loads(files[2].read_text())["findings"]
        assert isinstance(found, list)
        assert all(file.stat().st_size for file in files)
    assert not files[0].exists()
