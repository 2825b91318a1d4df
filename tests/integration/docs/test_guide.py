"""docs/guide.md: each block of the guide that it walks through runs, or is listed with what stock says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support import guide_blocks
from tests.support.guide_blocks import (
    COMMANDS,
    LOADING,
    MINIFIER_AFTER_INDUCTOR,
    PROFILING,
    REFUSED,
    SETTINGS,
)
from tests.support.torch_release import RELEASE

import kernelscope
from kernelscope.cli.command_list import COMMANDS as OURS

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "guide.md").read_text()
SCRIPT = "import torch\nf = torch.compile(lambda x: (x.sin() @ x).relu())\nprint(f(torch.ones(8, 8)).sum())\n"
SLOW = ("CPU codegen issues",)  # a wrapper in C++ takes a minute to compile


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Inductor's, put back afterwards; in a folder where it may write."""
    from torch._inductor import config

    monkeypatch.chdir(tmp_path)
    torch._dynamo.reset()
    before = config.shallow_copy_dict()
    yield config
    for name, value in before.items():
        if config._config[name].alias is None and getattr(config, name) != value:
            setattr(config, name, value)
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in SETTINGS]
)
def test_settings(name: str, config: Any) -> None:
    exec(SETTINGS[name], {})
    changed = re.findall(r"^config\.([\w.]+) =", SETTINGS[name], re.MULTILINE)
    x = torch.rand(8, 8)
    with kernelscope.record(stages=True) as run:
        result = torch.compile(lambda x: (x.sin() @ x).relu() * 2)(x)
    torch.testing.assert_close(result, (x.sin() @ x).relu() * 2)
    [graph] = run.stages
    assert "relu" in graph.stages["post_grad"].text
    kept = run.compiler_settings.get("torch._inductor.config", {})
    defaults = {n: e.default for n, e in config._config.items()}
    for setting in changed:
        value = getattr_path(config, setting)
        assert (setting in kept) == (value != defaults[setting]), setting


def getattr_path(config: Any, name: str) -> Any:
    for part in name.split("."):
        config = getattr(config, part)
    return config


def test_comparing_with_eager(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    space: dict[str, Any] = {}
    exec(guide_blocks.COMPARING, space)
    space["check_correctness"](lambda x: (x.cos() @ x).relu(), (torch.rand(8, 8),))
    assert capsys.readouterr().out == "Results match!\n"


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(SCRIPT)
    words = line.replace("python", sys.executable)
    return subprocess.run(words, shell=True, cwd=folder, capture_output=True, text=True, env=os.environ)


def test_variables_together(tmp_path: Path) -> None:
    """All that can stand together in one process; `test_variables` has each alone."""
    logs = "+inductor,+output_code,+fusion,+schedule"
    others = " ".join(c.rpartition(" python")[0] for c in COMMANDS if "TORCHINDUCTOR_" in c)
    done = shell(f'TORCH_LOGS="{logs}" TORCH_COMPILE_DEBUG=1 {others} python script.py', tmp_path)
    assert done.returncode == 0, done.stderr
    assert "tensor(430.8" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_variables(line: str, tmp_path: Path) -> None:
    done = shell(line, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "tensor(430.8" in done.stdout


def test_the_minifier_after_inductor_is_refused(tmp_path: Path) -> None:
    done = shell(MINIFIER_AFTER_INDUCTOR, tmp_path)
    assert done.returncode != 0
    said = REFUSED[MINIFIER_AFTER_INDUCTOR] if RELEASE > (2, 12) else "assert config.repro_after in"
    assert said in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU it runs")
def test_profiling_is_refused_without_a_gpu() -> None:
    with pytest.raises(AssertionError) as caught:
        exec(PROFILING, {"fn": torch.sin, "x": torch.ones(4)})
    assert f"AssertionError: {caught.value}" == REFUSED[PROFILING]


def test_loading_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError):
        exec(LOADING, {"torch": torch})
    assert REFUSED[LOADING] == "FileNotFoundError"


def test_the_guide_has_every_block() -> None:
    flat = " ".join(GUIDE.split())
    for block in [*SETTINGS.values(), guide_blocks.COMPARING, *REFUSED, *COMMANDS]:
        lines = [line.partition("#")[0].strip() for line in block.strip().splitlines()]
        for line in filter(None, lines):
            assert " ".join(line.split()) in flat, line
    for said in REFUSED.values():
        assert said in GUIDE


def test_every_command_of_the_guide_exists() -> None:
    named = set(re.findall(r"kernelscope (\w+)", " ".join(re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL))))
    assert len(named) >= 4
    assert named <= set(OURS)
