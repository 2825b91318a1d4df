"""A run of one's own that another person has changed where it is not signed: no text of it becomes code."""

from __future__ import annotations

import ast
import json
import sqlite3
from pathlib import Path

import pytest
from tests.support.sample_runs import info

import kernelscope
from kernelscope.cli import main
from kernelscope.errors import RunError
from kernelscope.events import Arg, Call, Kernel, Site
from kernelscope.repro.issue_folder import code_of
from kernelscope.repro.one_call import call_script
from kernelscope.repro.script_parts import docstring, tables
from kernelscope.store.run_db.codec import from_json
from kernelscope.store.writer_thread import Writer

CODE = "__import__('os').system('touch executed') or dict"
OBJECT = json.dumps({"$object": [CODE, {}]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """One eager operator whose argument varies from call to call, and is therefore not signed."""
    folder = tmp_path / "mine it's.kscope"
    folder.mkdir()
    writer = Writer(folder, info())
    kernel = Kernel(1, "aten.arange.default", "op", "aten", "", "")
    site = Site(1, kernel, (Arg("end", "scalar", None, "", varies=True),), "", 0, None, {}, (), "cpu")
    call = Call(next(writer.flight), site, -1, 1, -1, 7, 0, "forward", 0, scalars=(4,))
    writer.enter(call)
    writer.leave(call)
    writer.close()
    return folder


def _changed(path: Path, statement: str, *values: str) -> kernelscope.Run:
    with sqlite3.connect(path / "run.db") as db:
        assert db.execute(statement, values).rowcount == 1
    db.close()
    run = kernelscope.load(path)
    assert not run.why_not_made_here(), "what is changed here is not signed"  # type: ignore[attr-defined]
    return run


def test_an_argument_is_a_literal(path: Path) -> None:
    unchanged = call_script(kernelscope.load(path), 0).text  # type: ignore[arg-type]
    assert "torch.ops.aten.arange.default(end=4)" in unchanged
    for inner in (OBJECT, f"[{OBJECT}]", f'{{"a": {OBJECT}}}'):
        run = _changed(path, "UPDATE details SET scalars = ?", f"[{inner}]")
        with pytest.raises(RunError, match="only the recorded program knew"):
            call_script(run, 0)  # type: ignore[arg-type]


def test_tables_are_literals() -> None:
    with pytest.raises(RunError, match="only the recorded program knew"):
        tables({"x": {"min": from_json(OBJECT)}}, {}, ())


def test_versions_do_not_end_the_docstring(path: Path) -> None:
    for text in ('"""\nimport os\n"""', "'''\nimport os\n'''", '\\"""\nimport os\n', '""""\nimport os\n'):
        versions = {"torch": text, "python": "3.11"}
        [only] = ast.parse(docstring("a call", versions)).body
        assert isinstance(only, ast.Expr)
        assert isinstance(only.value, ast.Constant)
    run = _changed(path, "UPDATE info SET value = ? WHERE key = 'versions'", json.dumps(versions))
    script = call_script(run, 0).text  # type: ignore[arg-type]
    first, second, *_ = ast.parse(script).body
    assert isinstance(first, ast.Expr)
    assert isinstance(second, ast.ImportFrom)


def test_the_refusal_names_the_command_for_this_run(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`kernelscope show --call 0` would show the code of the newest run in the folder, another one."""
    monkeypatch.chdir(path.parent)
    with sqlite3.connect(path / "run.db") as db:
        db.execute("UPDATE kernels SET source = 'x'")
    db.close()
    assert main(["issue", str(path), "--call", "0"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "--trust executes it" in said
    assert "kernelscope show '" in said
    assert "mine it'\"'\"'s.kscope' --call 0 --source" in said
    run = kernelscope.load(path)
    assert "s.kscope' --graph '0 x'`" in code_of(run, None, "0 x")  # type: ignore[arg-type]
