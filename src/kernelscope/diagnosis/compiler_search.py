"""Which part of the compiler, and the smallest graph: bisect and reduce, as part of a diagnosis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernelscope.bisection.result import BisectResult
from kernelscope.bisection.script_search import bisect_script
from kernelscope.private_files import make_folder
from kernelscope.reduction.script_parent import Search, open_folder
from kernelscope.text.amounts import counted

from .answer import COMPILER, UNKNOWN, Answer
from .progress import Progress, TrialsLine
from .question import Question, check_words
from .steps import Steps
from .verdicts import fails_in_eager

_REPEATS, _TIMEOUT = 1, 300  # as the command `reduce` has them
REDUCED = "reduced"
_FEW = 3  # statements of a graph that fit the first screen


def bisect(question: Question, check: str, folder: Path, steps: Steps, progress: Progress) -> BisectResult:
    request = question.bisection(check)
    home = folder / "bisect"
    make_folder(home)
    return steps.take(
        "bisect",
        question.typed("bisect", *check_words(request)),
        lambda: bisect_script(request, home.absolute(), TrialsLine(progress)),
        lambda found: str(found.cause) if found.cause is not None else found.problem or "no switch helps",
    )


def add_cause(answer: Answer, found: BisectResult) -> None:
    """What a bisection adds to an answer."""
    if found.cause is not None:
        steps = [str(switch.info.get("step")) for switch in found.cause.switches if switch.info.get("step")]
        answer.cause = f"{found.cause}" + (f" ({steps[0]})" if steps else "")
        answer.fault = COMPILER
        others = [str(cause) for axis, cause in found.causes.items() if axis != found.cause.axis]
        answer.cause += "".join(f"; {other}" for other in others[:1])
    elif found.problem:
        if fails_in_eager(found) and answer.fault == UNKNOWN and answer.eager:
            answer.cause = "Dynamo: it fails with backend='eager' too, and not without torch.compile"
        else:
            answer.notes.append(f"bisect: {found.problem}")
    else:
        answer.notes.append("bisect: it fails with each part of the compiler switched off")
    answer.workaround = found.workaround
    answer.notes += found.notes


def reduce(question: Question, folder: Path, steps: Steps) -> dict[str, Any]:
    home = folder / REDUCED

    def search() -> dict[str, Any]:
        open_folder(home, resume=False)
        return Search(question.words, home, _REPEATS, _TIMEOUT, None).run()

    return steps.take("reduce", question.typed("reduce"), search, _reduced)


def _reduced(result: dict[str, Any]) -> str:
    if result.get("problem"):
        return str(result["problem"])
    return f"{result['nodes_before']} nodes → {result['nodes']}, {counted(result['trials'], 'trial')}"


def add_smallest(answer: Answer, result: dict[str, Any]) -> bool:
    """Whether there is a reduced script."""
    if result.get("problem"):
        answer.notes.append(f"reduce: {result['problem']}")
        return False
    lines = [line.partition(";")[0].strip() for line in str(result["code"]).splitlines()[1:]]
    body = [line for line in lines if line and not line.startswith("return")]
    answer.smallest = "; ".join(body) if 0 < len(body) <= _FEW else counted(int(result["nodes"]), "node")
    return True
