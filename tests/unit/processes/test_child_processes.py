"""What `kernelscope run` hands on to the command that it runs: files, signals, keys. No torch."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kernelscope import config
from kernelscope.startup import autorecord

SRC = Path(__file__).parents[3] / "src"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(SRC)}
RUN = [sys.executable, "-m", "kernelscope", "run"]


def script(folder: Path, text: str) -> str:
    (folder / "script.py").write_text(text)
    return "script.py"


def test_open_files_are_handed_on(tmp_path: Path) -> None:
    """`kernelscope run script.py 3>log`"""
    words = " ".join([*RUN, script(tmp_path, "import os\nos.write(3, b'to 3')\n"), "3>log"])
    subprocess.run(["bash", "-c", words], cwd=tmp_path, env=ENVIRONMENT, check=True)
    assert (tmp_path / "log").read_text() == "to 3"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_does_not_change_the_status(tmp_path: Path, closed: str) -> None:
    words = " ".join([*RUN, script(tmp_path, "import sys\nsys.exit(6)\n"), closed])
    assert subprocess.run(["bash", "-c", words], cwd=tmp_path, env=ENVIRONMENT, check=False).returncode == 6


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP])
def test_signals_are_the_commands(tmp_path: Path, sent: signal.Signals) -> None:
    """Slurm says with SIGUSR1 that time is up; without us, the script would hear it."""
    text = (
        "import signal, sys, time\n"
        f"signal.signal({int(sent)}, lambda *_: sys.exit(17))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    child = subprocess.Popen(
        [*RUN, script(tmp_path, text)], cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    child.send_signal(sent)
    assert child.wait(30) == 17
    child.stdout.close()


@pytest.mark.parametrize("stdin", ["terminal", "pipe"])
def test_ctrl_c_is_heard_once(tmp_path: Path, stdin: str) -> None:
    text = (
        "import signal, time\n"
        "heard = []\n"
        "signal.signal(signal.SIGINT, lambda *_: heard.append(1))\n"
        "print('ready', flush=True)\n"
        "until = time.monotonic() + 60\n"
        "while time.monotonic() < until and not heard:\n"
        "    time.sleep(0.05)\n"
        "time.sleep(1.5)\n"
        "print(f'heard {len(heard)}')\n"
    )
    name = script(tmp_path, text)
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        if stdin == "pipe":
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execve(sys.executable, [*RUN, name], ENVIRONMENT)
    shown, pressed, deadline = b"", False, time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            shown += os.read(terminal, 1000)
        except OSError:  # the other side is closed
            break
        if b"ready" in shown and not pressed:
            pressed = True
            os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(terminal)
    assert b"heard 1" in shown


def test_a_keyboard_is_known_whatever_standard_input_is() -> None:
    code = (
        "import os\n"
        "from kernelscope.startup.recorded_child import _has_keyboard\n"
        "os.dup2(os.open(os.devnull, os.O_RDONLY), 0)\n"
        "print('keyboard', _has_keyboard())\n"
    )
    child, terminal = pty.fork()
    if child == 0:
        os.execve(sys.executable, [sys.executable, "-c", code], ENVIRONMENT)
    shown = b""
    with suppress(OSError):  # the other side is closed
        while read := os.read(terminal, 1000):
            shown += read
    os.waitpid(child, 0)
    os.close(terminal)
    assert b"keyboard True" in shown
    words = [sys.executable, "-c", code]
    away = subprocess.run(words, env=ENVIRONMENT, start_new_session=True, capture_output=True, check=True)
    assert away.stdout == b"keyboard False\n"


def test_an_application_in_a_zip_file(tmp_path: Path) -> None:
    import zipapp

    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text("print('in a zip file')")
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz", interpreter="/usr/bin/env python3")
    ran = subprocess.run(
        [*RUN, "app.pyz"], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "in a zip file\n"


def test_output_that_has_no_arrows(tmp_path: Path) -> None:
    environment = ENVIRONMENT | {"PYTHONIOENCODING": "ascii"}
    (tmp_path / "ö.kscope").mkdir()
    words = [sys.executable, "-m", "kernelscope"]
    for given in (["show", "--help"], ["ls"], ["ls", "--json"]):
        ran = subprocess.run(
            [*words, *given], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        assert ran.stdout.isascii()
    assert json.loads(ran.stdout)["runs"][0]["path"] == "ö.kscope"


def test_a_full_disk_under_the_output() -> None:
    words = [sys.executable, "-m", "kernelscope", "completion", "bash"]
    with open("/dev/full", "w") as full:
        ran = subprocess.run(words, env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE, check=False)
    assert ran.returncode == 2
    assert ran.stderr == b"kernelscope: cannot write: No space left on device\n"


@pytest.mark.parametrize(
    ("words", "is_helper"),
    [
        ("python /site/torch/_inductor/compile_worker/__main__.py --workers=2", True),
        ("python -m torch.distributed.run train.py", True),
        ("python -mtorch.distributed.launch train.py", True),
        ("python -X dev /usr/bin/torchrun train.py", True),
        ("python /home/me/torchrun_tests/train.py", False),
        ("python torchrun-demo/compile_worker.py", False),
        ("python -m torchrun_tests.train", False),
        ("python train.py torchrun", False),
        ("python -W ignore -u train.py -m torch.distributed.run", False),
    ],
)
def test_only_helpers_are_helpers(words: str, is_helper: bool) -> None:
    assert autorecord.is_helper(words.split()) is is_helper
    code = ["python", "-c", "from multiprocessing.resource_tracker import main;main(5)"]
    assert autorecord.is_helper(code)
    assert not autorecord.is_helper(["python", "-c", "import torch; print('torchrun')"])


def test_the_variable_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is started after a change of directory belongs to the same run."""
    monkeypatch.chdir(tmp_path)
    text = (
        "import os, subprocess, sys\n"
        "os.chdir('below')\n"
        "subprocess.run([sys.executable, '-c', 'import os; print(os.environ[\"KERNELSCOPE_RUN\"])'])\n"
    )
    (tmp_path / "below").mkdir()
    environment = ENVIRONMENT | {"KERNELSCOPE_RUN": "alone/"}
    environment["PYTHONPATH"] = f"{SRC / 'kernelscope' / 'startup'}{os.pathsep}{SRC}"
    ran = subprocess.run(
        [sys.executable, script(tmp_path, text)], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"{tmp_path / 'alone.kscope'}\n"
    wanted = config.autorecord_from_environment({"KERNELSCOPE_RUN": "alone/"})
    assert wanted is not None
    assert wanted.path == tmp_path / "alone.kscope"
