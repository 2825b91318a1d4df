"""The steps of the GitHub Action, run by bash in a repository with a changed branch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
ACTION = ROOT / ".github" / "actions" / "compare-kernels" / "action.yml"
BASE = "import torch\nprint(torch.compile(lambda x: {body})(torch.arange(8.0)).sum().item())\n"
SAME, OTHER_KERNEL, OTHER_VALUE = "x.sin() * 2 + 1", "(x.sin() * 2).clone() + 1", "x.sin() * 3 + 1"


def action() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML, which mkdocs brings")
    return dict(yaml.safe_load(ACTION.read_text(encoding="utf-8")))


def test_inputs_reach_the_shell_as_variables_only() -> None:
    """A script's name in the text of a step would be a way to run commands."""
    steps = action()["runs"]["steps"]
    assert [step["name"] for step in steps] == ["Install kernelscope", "Record both, and compare"]
    assert not any("${{" in step["run"] for step in steps)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "fail_on", "status"),
    [(OTHER_VALUE, "values", 1), (OTHER_VALUE, "nothing", 0), (SAME, "kernels", 0)],
)
def test_branch_is_compared_with_its_base(body: str, fail_on: str, status: int, tmp_path: Path) -> None:
    repository, programs = tmp_path / "repository", tmp_path / "bin"
    for folder in (repository, programs):
        folder.mkdir()
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]

    def commit(text: str, *words: str) -> None:
        (repository / "train.py").write_text(text)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", "x", "--allow-empty"], check=True)

    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    commit(BASE.format(body=SAME))
    subprocess.run([*git, "checkout", "-q", "-b", "change"], check=True)
    commit(BASE.format(body=body))
    program = programs / "kernelscope"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kernelscope "$@"\n')
    program.chmod(0o755)
    files = {name: str(tmp_path / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    given = {"SCRIPT": "train.py --x 1", "BASE": "main", "FAIL_ON": fail_on, "RUNNER_TEMP": str(tmp_path)}
    path = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", action()["runs"]["steps"][1]["run"]]
    environment = os.environ | files | given | path
    done = subprocess.run(words, cwd=repository, env=environment, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    report = Path((tmp_path / "GITHUB_OUTPUT").read_text().strip().removeprefix("report="))
    assert report.read_text().startswith("<!")
    summary = (tmp_path / "GITHUB_STEP_SUMMARY").read_text()
    assert ("no divergence" in summary) == (body == SAME)
