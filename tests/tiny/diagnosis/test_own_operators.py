"""An operator of the program's that is registered wrongly is the program's fault, not the compiler's."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.sample_runs import write_sample

from kernelscope.diagnosis import verdicts
from kernelscope.diagnosis.answer import COMPILER, PROGRAM, Answer
from kernelscope.diagnosis.answer_text import answer_lines
from kernelscope.diagnosis.recorded import Recorded
from kernelscope.events import Frame
from kernelscope.shadowing.culprit import Culprit
from kernelscope.shadowing.script_parent import ScriptAnswer
from kernelscope.shadowing.text.culprit_text import culprit_lines

LINE = (Frame("/home/me/train.py", 12, "f"),)
UNDECLARED = Culprit(
    "foreign-write", "buf1 changed while mine.norm_.default ran, which does not declare a write to it", 1,
    "mine.norm_.default", "extern", "x", "buf1", origin=LINE,
)  # fmt: skip
MISDESCRIBED = Culprit(
    "wrong-function",
    "compiled, it raises AssertionError: expected size 4==4, stride 1==8 at dim=0, and uncompiled it does "
    "not. Error in op: torch.ops.mine.tr.default",
    -1, "f", "function", "it raises AssertionError", origin=LINE,
)  # fmt: skip
OF_TORCH = Culprit(
    "foreign-write", "buf1 changed", 1, "aten.index_put_.default", "extern", "x", "buf1", origin=LINE
)
OF_INDUCTOR = Culprit("foreign-write", "buf1 changed", 1, "cpp_fused_add_0", "cpp", "x", "buf1", origin=LINE)


@pytest.mark.parametrize(
    ("culprit", "operator", "remedy"),
    [
        (UNDECLARED, "torch.ops.mine.norm_.default", "mutates_args"),
        (MISDESCRIBED, "torch.ops.mine.tr.default", "register_fake"),
    ],
    ids=["undeclared write", "wrong fake"],
)
def test_its_registration_is_to_be_mended(
    culprit: Culprit, operator: str, remedy: str, tmp_path: Path
) -> None:
    text = "\n".join(culprit_lines(culprit, ["train.py"], verbose=False))
    assert f"{operator} is not torch's" in text
    assert f"torch.library.opcheck({operator}, args)" in text
    assert remedy in text
    assert "kernelscope bisect" not in text

    write_sample(tmp_path / "run.kscope").close()
    answer, found = Answer(), ScriptAnswer({"culprit": culprit.to_dict()}, "", "", 1)
    verdicts.of_culprit(answer, found, Recorded(tmp_path / "run.kscope", 0))

    assert answer.fault == PROGRAM
    assert verdicts.operator_of(found) is not None
    said = "\n".join(answer_lines(answer))
    assert operator in said
    assert remedy in said


@pytest.mark.parametrize("culprit", [OF_TORCH, OF_INDUCTOR], ids=["of torch", "of Inductor"])
def test_what_the_compiler_launches_is_the_compilers(culprit: Culprit, tmp_path: Path) -> None:
    assert any("kernelscope bisect" in line for line in culprit_lines(culprit, ["train.py"], verbose=False))
    write_sample(tmp_path / "run.kscope").close()
    answer, found = Answer(), ScriptAnswer({"culprit": culprit.to_dict()}, "", "", 1)
    verdicts.of_culprit(answer, found, Recorded(tmp_path / "run.kscope", 0))
    assert answer.fault == COMPILER
    assert not answer.next
