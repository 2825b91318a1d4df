"""The processes in which `kernelscope compare` runs the two scripts: the other program first."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from kernelscope.comparison.api import observed
from kernelscope.comparison.candidate import CandidateRun
from kernelscope.comparison.matching import Matching
from kernelscope.comparison.reference import ReferenceRun
from kernelscope.comparison.result import ComparisonResult
from kernelscope.comparison.verdict.judging import judged
from kernelscope.shadowing.script_child import run_words

from .saved_flow import load, save


def main(argv: list[str]) -> int:
    split = argv.index("--")
    (answer, part, folder, verbose), words = argv[:split], argv[split + 1 :]
    found = _other(Path(folder), words) if part == "other" else _reference(Path(folder), words, verbose)
    Path(answer).write_text(json.dumps(found), encoding="utf-8")
    return 0


def _other(folder: Path, words: list[str]) -> dict[str, Any]:
    run = CandidateRun()
    with observed(run, compiled=True):
        failed = run_words(words)
    save(folder, run)
    return {"failed": failed}


def _reference(folder: Path, words: list[str], verbose: str) -> dict[str, Any]:
    other = load(folder)
    run = ReferenceRun(Matching(other.flow, other.kept))
    with observed(run, compiled=False):
        failed = run_words(words)
    result: ComparisonResult = judged(run, other.failures)
    if failed:
        where = ", after values of the other program had been put into it" if result.values["matched"] else ""
        result.failed = f"{words[0]} failed{where}: {failed}"
    text = result.details() if verbose == "verbose" else str(result)
    return {"result": result.to_dict(), "text": text, "failed": failed}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
