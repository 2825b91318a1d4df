"""`kernelscope repro` and `reduce` on the command line: bad input, eager operators, settings, issues."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import torch
from tests.support.training_runs import write_training

import kernelscope
from kernelscope.cli import main
from kernelscope.repro import files, script_parts
from kernelscope.repro.one_call import call_script
from kernelscope.store import folder

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    with kernelscope.record(ops="all", values="save", path=tmp_path / "saved"):
        torch.arange(6.0).add_(1)
    with kernelscope.record(ops="all", path=tmp_path / "bare"):
        torch.arange(6.0).add_(1)
    return tmp_path


def test_what_it_says_of_bad_input(recorded: Path, capsys: Capture) -> None:
    def said(*words: str) -> str:
        assert main(["repro", *words]) == 2
        return capsys.readouterr().err

    assert "give either --call N" in said("saved.kscope")
    assert "has no call 99; it has 2 calls" in said("saved.kscope", "--call", "99")
    assert "has no graph 7; it has none" in said("saved.kscope", "--graph", "7")
    assert "kernelscope run --values save" in said("bare.kscope", "--call", "1")
    with pytest.raises(SystemExit):
        main(["repro", "saved.kscope", "--call", "1", "--import", "a; b"])
    assert "give the name of a module" in capsys.readouterr().err
    assert main(["repro", "saved.kscope", "--call", "1"]) == 0
    assert "not overwritten" in said("saved.kscope", "--call", "1")
    assert main(["issue", "saved.kscope", "--reduced", "nowhere"]) == 2
    assert "nowhere was not written by `kernelscope reduce`" in capsys.readouterr().err


def test_what_reduce_says_of_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "a.py"
    script.write_text("print(1)")

    def said(*words: str) -> str:
        assert main(["reduce", *words]) == 2
        return capsys.readouterr().err

    assert "nothing to run" in said()
    assert "there is no script nowhere.py" in said("nowhere.py")
    assert "nothing to resume" in said("--resume", "a.py")
    assert "use at least 1" in said("--repeats", "0", "a.py")
    (tmp_path / "a-reduced").mkdir()
    assert "add --resume to continue" in said("a.py")


def status_of(path: Path, capsys: Capture) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(path), run_name="__main__")
    return int(left.value.code), capsys.readouterr().out


def test_scripts_of_eager_operators(tmp_path: Path, capsys: Capture) -> None:
    """Lists of tensors, dtypes, memory that is shared, names that are words of Python, a path with quotes."""
    folder = tmp_path / 'it\'s a "folder"'
    with kernelscope.record(ops="all", values="save", path=tmp_path / "r"):
        x = torch.arange(12.0).reshape(3, 4)
        torch.cat([x, x[1:]])
        x.to(torch.bfloat16)
        x[:, torch.tensor([0, 2])]
        x[1:].add_(x[:2].clone())
        torch.empty(0, 3).sum(0)
        torch.view_as_complex(x.reshape(3, 2, 2)).exp()
        (x.expand(2, 3, 4) * 2).float()
        torch.full((2,), float("-inf")).random_(3, 5)
    run = kernelscope.load(tmp_path / "r.kscope")
    statuses = {}
    for call in run.calls:
        path = files.write(call_script(run, call.index), folder / str(call.index))
        assert "kernelscope" not in path.read_text().partition("Written by kernelscope")[2]
        status, said = status_of(path, capsys)
        statuses.setdefault(call.kernel_name, status)
        assert status == 0 or call.kernel_name == "aten.random_.from", said
    wanted = {
        "aten.cat.default",
        "aten._to_copy.default",
        "aten.index.Tensor",
        "aten.add_.Tensor",
        "aten.exp.default",
    }
    assert wanted <= statuses.keys()
    assert statuses["aten.random_.from"] == 2, "nothing to compare it with"


def test_settings_that_are_no_words_keep_their_type() -> None:
    """A run has the text of a list; a script that set the text would make torch fail."""
    notes: list[str] = []
    found = {
        "aot_inductor.metadata": "{'AOTI_DEVICE_KEY': 'cpu'}", "cpp.cxx": "(None, 'g++')", "post": "<a pass>",
        "aot_inductor.filtered_kernel_names": "a,b", "max_autotune_gemm_backends": "ATEN", "cpp.simdlen": 8,
    }  # fmt: skip
    lines = script_parts.settings(found, notes)
    assert [line.partition("config.")[2] for line in lines if " = " in line] == [
        "aot_inductor.metadata = {'AOTI_DEVICE_KEY': 'cpu'}",
        "cpp.cxx = (None, 'g++')",
        "aot_inductor.filtered_kernel_names = 'a,b'",
        "max_autotune_gemm_backends = 'ATEN'",
        "cpp.simdlen = 8",
    ]
    assert notes == ["Inductor's setting post is left out: <a pass>"]


def test_an_issue_of_a_plain_run_says_which_command_tells_more(tmp_path: Path, capsys: Capture) -> None:
    path = write_training(tmp_path / "train-1.kscope", findings=False)
    words = (sys.executable, "train.py", "--epochs", "1")
    folder.write_invocation(path, folder.Invocation(words, str(tmp_path), 1, 2, 1))
    assert main(["issue", str(path), "-o", str(tmp_path / "bug")]) == 0
    out = capsys.readouterr().out
    assert "kernelscope shadow train.py --epochs 1 compares each kernel with eager" in out
    assert "kernelscope reduce train.py --epochs 1, then kernelscope issue --reduced DIR" in out
    report = (tmp_path / "bug" / "issue.md").read_text()
    assert "the program ended with status 1" in report
    assert "kernelscope shadow" not in report  # it is for whoever writes the report
