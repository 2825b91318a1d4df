"""What a machine of a cluster must have, addresses that cannot be reached, and Ray that is not installed."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from kernelscope.cli import main
from kernelscope.cli.parsing import parsed
from kernelscope.errors import RunError
from kernelscope.processes.cluster.place import host, move_to, place_here
from kernelscope.processes.cluster.ray_cluster import connected


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text("print(1)\n")
    return path


def test_a_machine_gets_the_folder_and_the_variables(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEARNING_RATE", "0.1")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    place = place_here(["train.py", "--epochs", "1"])
    assert "PATH" not in place["variables"]
    monkeypatch.delenv("LEARNING_RATE")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as Ray does, which would change how sums are rounded
    monkeypatch.setenv("RAY_JOB_ID", "7")
    monkeypatch.chdir("/")
    assert move_to(place) == ""
    assert Path.cwd() == script.parent
    assert os.environ["LEARNING_RATE"] == "0.1"
    assert "OMP_NUM_THREADS" not in os.environ
    assert os.environ["RAY_JOB_ID"] == "7"


def test_a_machine_that_cannot_run_the_script_says_why(script: Path) -> None:
    place = place_here(["train.py"])
    assert f"{host()} has torch" in move_to(place | {"versions": place["versions"] | {"torch": "1.0"}})
    assert f"the folder {script}/x cannot be used on" in move_to(place | {"folder": f"{script}/x"})
    script.write_text("print(2)\n")
    assert f"{script} on {host()} is a different file" in move_to(place)
    script.unlink()
    assert f"{script} does not exist on {host()}; all machines must see it" in move_to(place)


@pytest.mark.parametrize("command", ["bisect", "determinism"])
def test_ray_is_not_installed(
    command: str, script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main([command, "--ray", "train.py"]) == 2
    assert (
        "--ray needs Ray, which is not installed: pip install 'kernelscope[ray]'" in capsys.readouterr().err
    )
    assert not Path("kscope-runs").exists()


def test_an_address_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'kernelscope[ray]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"  # nothing listens there
        wanted = f"--ray: the Ray cluster {address} cannot be reached: Connection refused; without an address"
        with pytest.raises(RunError, match=wanted), connected(address, "--ray"):
            pass
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(RunError, match=wanted), connected("", "--ray"):
            pass
    with pytest.raises(RunError, match="'train' is not HOST:PORT"), connected("train", "--ray"):
        pass


def test_the_word_after_ray_is_the_script() -> None:
    plain = parsed(["bisect", "--ray", "train.py", "--ray=x"])
    assert (plain.ray, plain.command) == ("", ["train.py", "--ray=x"])
    given = parsed(["determinism", "--ray=10.0.0.7:6379", "--runs", "5", "train.py"])
    assert (given.ray, given.runs, given.command) == ("10.0.0.7:6379", 5, ["train.py"])
    assert parsed(["bisect", "train.py", "--ray"]).ray is None
