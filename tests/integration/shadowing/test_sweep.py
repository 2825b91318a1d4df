"""A short choice of torch's operator and module databases: no alarm, no failure of ours, same results."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.sweep.databases import Program, spread
from tests.sweep.journal import Journal, together
from tests.sweep.one_sample import _differs, _outcome, _perturbed
from tests.sweep.table import details, kind_of, table

import kernelscope

ROOT = Path(__file__).parents[3]


@pytest.mark.timeout(900)
def test_a_short_choice_of_the_databases(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    words = [sys.executable, "-m", "tests.sweep", "--short", "--samples", "1", "--jobs", "1"]
    words += ["--journal", str(journal), "--cache", tempfile.gettempdir()]  # its precompiled headers are slow
    given = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(words, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
    rows = Journal(journal).rows
    assert done.returncode == 0, f"{details(rows)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert len(rows) > 20
    launches = sum(row.get("launches", 0) for row in rows)
    assert sum(row.get("unjudged", 0) for row in rows) <= 0.02 * launches


def row(status: str, **facts: Any) -> dict[str, Any]:
    return {"job": "op:nn.functional.avg_pool2d:float32", "sample": 0, "status": status, **facts}


def test_a_known_bug_of_torch_is_not_a_false_alarm() -> None:
    known = {"verdict": "wrong-kernel", "kernel_name": "cpp_fused_avg_pool2d_backward_0"}
    other = {"verdict": "wrong-kernel", "kernel_name": "cpp_fused_sum_0"}
    assert kind_of(row("alarm", culprits=[known])) == "true bug"
    assert kind_of(row("alarm", culprits=[known, other])) == "false alarm"
    assert kind_of(row("ok", findings=["unowned-write: x"])) == "false alarm"


def test_a_journal_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    lines = [
        row("ok", launches=3, unjudged=1),
        {"job": "op:sin:float32", "event": "end"},
        {"job": "op:cos:float32", "event": "end", "problem": "its samples cannot be made"},
        row("crash", sample=2),
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"cut off')
    journal = Journal(path)
    assert journal.over == {"op:sin:float32"}
    assert journal.tried == {"op:nn.functional.avg_pool2d:float32": {0, 2}}
    assert len(Journal(path, ["crash"]).rows) == 1
    assert "| 1 | 2 | 3 | 33.3 % | 0 | 1 |" in table(journal.rows, [])
    later = tmp_path / "later.jsonl"
    later.write_text(json.dumps(row("ok", sample=2, commit="abc", launches=1)))
    rows, _ = together([journal, Journal(later)])
    assert "| 1 | 2 | 4 | 25.0 % | 0 | 0 |" in table(rows, [])
    assert "not noted (1), abc (1)" in table(rows, [])
    refused = [*rows, row("fails-bare", sample=3, launches=5, unjudged=5)]
    assert "| 1 | 3 | 4 | 25.0 % | 0 | 0 |" in table(refused, [])


def test_bits_are_compared_whatever_the_strides() -> None:
    one = torch.arange(12.0)[::6][1:]  # a single element with stride 6
    assert _differs([one], [one.clone().as_strided((1,), (6,))]) is None
    assert _differs([one], [(one + 1).as_strided((1,), (6,))]) is not None
    zero = torch.zeros(1)
    assert _differs([zero], [-zero]) is not None
    assert _differs([zero / 0], [zero / 0]) is None


def test_samples_are_spread() -> None:
    assert spread(2, 3) == [0, 1]
    assert spread(101, 3) == [0, 50, 100]
    assert spread(9, 1) == [4]


def test_writes_that_a_schema_does_not_declare_happen_once() -> None:
    """aten.native_batch_norm updates the running statistics."""

    def step() -> tuple[torch.Tensor, torch.Tensor]:
        mean, variance = torch.zeros(3), torch.ones(3)
        compiled = torch.compile(lambda x: torch.nn.functional.batch_norm(x, mean, variance, training=True))
        compiled(torch.arange(24.0).view(2, 3, 4))
        return mean, variance

    bare = step()
    with kernelscope.shadow() as result:
        shadowed = step()
    assert not result, result
    assert all(torch.equal(a, b) for a, b in zip(bare, shadowed, strict=True))


def _program(call: Callable[[torch.Tensor], torch.Tensor]) -> Program:
    return Program(call, (torch.ones(3),), lambda result: result, backward=False)


def test_what_varies_without_kernelscope_is_not_perturbed() -> None:
    calls = itertools.count()

    @torch.library.custom_op("kernelscope_sweep::counted", mutates_args=())
    def counted(x: torch.Tensor) -> torch.Tensor:
        return x + next(calls)

    counted.register_fake(torch.empty_like)
    found = _perturbed(_program(counted), [torch.ones(3)], {"shadowed": [torch.zeros(3)]})
    assert found == {"varies": "runs without kernelscope differ"}


def test_uninitialised_memory_is_not_perturbed() -> None:
    found = _perturbed(_program(torch.empty_like), [torch.ones(3)], {"shadowed": [torch.zeros(3)]})
    assert found == {"varies": "it returns what uninitialised memory holds"}


def test_what_only_shadow_changes_is_perturbed() -> None:
    @torch.library.custom_op("kernelscope_sweep::steady", mutates_args=())
    def steady(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    steady.register_fake(torch.empty_like)
    program = _program(steady)
    bare, _ = _outcome(program, torch.compile(program.call))
    found = _perturbed(program, bare, {"recorded": bare, "shadowed": [part + 1 for part in bare]})
    assert found["status"] == "perturbed"
    assert _perturbed(program, bare, {"recorded": bare, "shadowed": bare}) == {}
