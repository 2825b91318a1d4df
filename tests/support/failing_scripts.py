"""The scripts of docs/why.md, and what `kernelscope why` has to answer for each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelscope.diagnosis.answer import KINDS

SCRIPTS = Path(__file__).parents[1] / "programs" / "failing_scripts"
COMPILER, PROGRAM = "compiler", "program"


@dataclass(frozen=True)
class Case:
    script: str
    kind: str
    fault: str
    line: int = 0  # of the script; 0: none is known
    texts: tuple[str, ...] = ()  # in the first screen
    steps: tuple[str, ...] = ()  # that are needed, in order
    files: tuple[str, ...] = ()
    status: int = 1
    only: tuple[int, int] = (0, 0)  # release of torch that has the bug

    def applies_to(self, release: tuple[int, int]) -> bool:
        return not any(self.only) or self.only == release


CASES = [
    Case("crash_in_compile", "crash-in-compile", COMPILER, 11, ("lowering digamma", "smallest"),
         ("run", "eager", "reduce", "report", "issue"), ("reduced/reduced.py", "issue/issue.md")),
    Case("crash_in_kernel", "crash", COMPILER, 11, ("SIGSEGV, inside a kernel", "cpp_fused_add_erf_sin_0"),
         ("run", "eager", "bisect", "report", "issue"), ("issue/issue.md",)),
    Case("makes_nan", "nan", PROGRAM, 8, ("made 8 NaN of 32 elements", "eager makes the same NaN"),
         ("run", "shadow", "stop", "report", "repro")),
    Case("wrong_lowering", "wrong-numbers", COMPILER, 11, ("cpp_fused_exp_mul_tanh_0", "tanh", "1 % off"),
         ("run", "shadow", "bisect", "reduce", "report", "issue"), ("reduced/reduced.py", "issue/issue.md")),
    Case("wrong_pass", "wrong-numbers", COMPILER, 11, ("post_grad_custom_post_pass", "where eager has"),
         ("run", "shadow", "reduce", "report", "issue"), ("reduced/reduced.py", "issue/issue.md")),
    Case("public_bug", "wrong-numbers", COMPILER, 9, ("functionalization", "unfold", "then send it to"),
         ("run", "shadow", "reduce", "report", "issue"), ("reduced/reduced.py", "issue/issue.md"),
         only=(2, 13)),
    Case("varies", "varies", PROGRAM, 27, ("varies.total", "different outputs"),
         ("run", "shadow", "determinism", "report", "repro")),
    Case("nothing_compiled", "nothing-compiled", PROGRAM, 10, ("because of a graph break",),
         ("run", "report")),
    Case("recompiles", "recompiles", PROGRAM, 6, ("step was compiled 8 times", "len(history)"),
         ("run", "shadow", "report")),
    Case("failing_assert", "wrong-numbers", COMPILER, 6, ("Dynamo", "AssertionError"),
         ("run", "eager", "shadow", "report", "issue"), ("issue/issue.md",), only=(2, 13)),
    Case("own_mistake", "exception", PROGRAM, 8, ("mat1 and mat2 shapes", "the same failure without"),
         ("run", "eager", "report")),
    Case("right", "nothing", "", 0, ("nothing is wrong, as far as it was checked", "against eager", "3 runs",
          "not checked code that is not compiled"),
         ("run", "shadow", "determinism", "report"), status=0),
]  # fmt: skip


def answer_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "answer.json").read_text(encoding="utf-8")))


def check_answer(case: Case, folder: Path, screen: str) -> dict[str, Any]:
    """The answer, which must be the right one: found with the steps that are needed, and no other."""
    answer = answer_of(folder)
    assert (answer["kind"], answer["fault"]) == (case.kind, case.fault), screen
    assert (answer["line"] or {"line": 0})["line"] == case.line, screen
    for text in case.texts:
        assert text in screen, screen
    assert len(screen.splitlines()) <= 15, screen
    assert screen == (folder / "answer.txt").read_text(encoding="utf-8")
    assert tuple(step["name"] for step in answer["steps"]) == case.steps
    for name in (*case.files, "report.html"):
        assert name in answer["files"]
    for name in answer["files"]:
        assert (folder / name).is_file(), name
    assert case.kind in KINDS
    return answer
