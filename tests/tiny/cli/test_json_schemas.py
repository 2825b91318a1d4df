"""What commands print with --json is what docs/commands.schema.json says. No torch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.json_schemas import DOCUMENT, wrong_in
from tests.support.long_runs import copy_with_a_fault, write_long_run
from tests.support.sample_runs import write_sample

from kernelscope.analysis.determinism import DeterminismResult
from kernelscope.bisection.result import BisectResult
from kernelscope.cli import main
from kernelscope.cli.command_list import COMMANDS
from kernelscope.diagnosis.answer import Answer
from kernelscope.store import folder

Capture = pytest.CaptureFixture[str]
SAMPLES = [
    ("ls", "ls"),
    ("show", "show one"),
    ("show", "show one --call 2"),
    ("show", "show long --limit 3"),
    ("show --crash", "show one --crash"),
    ("show --crash", "show crashed --crash"),
    ("stages", "stages one"),
    ("stages --settings", "stages one --settings"),
    ("stages --kernel", "stages one --kernel *"),
    ("stages --export", "stages one --export exported"),
    ("diff", "diff long fault"),
    ("diff", "diff long same"),
    ("pack", "pack one -o packed.zip"),
    ("pack", "pack one -o shared.zip --share"),
    ("report", "report one -o page.html"),
    ("tui", "tui one"),
    ("completion", "completion bash"),
    ("mcp", "mcp --allow-run"),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / folder.HOME
    write_sample(home / "one.kscope")
    write_sample(home / "crashed.kscope", close=False, executing=True).forget()
    long = write_long_run(home / "long.kscope", 60)
    copy_with_a_fault(long, home / "fault.kscope", 20)
    copy_with_a_fault(long, home / "same.kscope", 1000)
    return tmp_path


def test_every_command_has_a_definition() -> None:
    defined = {name.split()[0] for name in DOCUMENT["$defs"]}
    assert set(COMMANDS) - {"choreo"} <= defined
    assert wrong_in("ls", {"runs": [{"path": 1}]})  # and a wrong form is noticed


def test_what_is_printed_is_as_documented(here: Path, capsys: Capture) -> None:
    wrong = {}
    for name, words in SAMPLES:
        status = main([*words.split(), "--json"])
        out = capsys.readouterr().out
        assert status in (0, 1), words
        wrong[words] = wrong_in(name, json.loads(out))
    assert main(["query", "--json", "one", "SELECT id FROM call LIMIT 2"]) == 0
    wrong["query"] = wrong_in("query", json.loads(capsys.readouterr().out))
    assert main(["unpack", "packed.zip", "--json"]) == 0
    wrong["unpack"] = wrong_in("unpack", json.loads(capsys.readouterr().out))
    assert main(["export", "one", "--json", "-o", "-"]) == 0
    wrong["export"] = wrong_in("export", json.loads(capsys.readouterr().out))
    assert not any(wrong.values()), {words: found for words, found in wrong.items() if found}


def test_results_without_a_finding_are_as_documented() -> None:
    assert not wrong_in("why", Answer().to_json())
    assert not wrong_in("bisect", BisectResult().to_json())
    assert not wrong_in("determinism", DeterminismResult(2, 3).to_json() | {"path": "x"})
    assert not wrong_in("reduce", {"problem": "nothing fails"})
