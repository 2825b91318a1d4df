"""Failures of a program: of the compiler, or of the program itself, where eager fails in the same way."""

from __future__ import annotations

import re

from kernelscope.stages.records import Incident
from kernelscope.trials.failure_signature import without_numbers

from .recorded import Recorded

_OUT_OF_BOUNDS = re.compile(r"\bindex\b.* out of (?:bounds|range)")
_OF_THE_MACHINE = (  # what a failed compilation says, and what to do about it
    (
        re.compile(r"InvalidCxxCompiler|No working C\+\+ compiler"),
        "install g++ (Debian, Ubuntu: apt-get install g++), or set CXX",
    ),
    (
        re.compile(r"Python\.h: No such file"),
        "install the headers of Python (Debian, Ubuntu: apt-get install python3-dev)",
    ),
    (
        re.compile(r"No space left on device"),
        "free some space, or set TORCHINDUCTOR_CACHE_DIR and TMPDIR to folders on another disk",
    ),
    (re.compile(r"TritonMissing|Cannot find a working triton"), "install triton: pip install triton"),
)
_FEWEST = 8  # characters of a message that is worth looking for


def compiler_failure(run: Recorded) -> Incident | None:
    """The failed compilation that ended the program; others were survived."""
    said = run.ending.exception
    for each in (f for one in run.runs for f in reversed(one.stages.failures)):
        message = each.reason.partition(" (lowering ")[0].partition(": ")[2] or each.reason
        if said and (message in said or (each.detail and each.detail[:200] in said)):
            return each
    return None


def machine_advice(failure: Incident) -> str:
    """What to do where a compilation failed because something is missing on this machine; else empty."""
    said = f"{failure.reason}\n{failure.detail}"
    return next((advice for pattern, advice in _OF_THE_MACHINE if pattern.search(said)), "")


def is_same_failure(compiled: Recorded, eager: Recorded) -> bool:
    """Whether both end with the same status, and with the same exception if there is one.

    The compiler may wrap an exception: then its text names the type, and has the message or the same line.
    Of the same type it has eager's message, and may say more.
    """
    if not (compiled.failed and eager.failed) or compiled.ending.status != eager.ending.status:
        return False
    if without_numbers(compiled.failure) == without_numbers(eager.failure):
        return True
    if all(_OUT_OF_BOUNDS.search(each.ending.exception) for each in (compiled, eager)):
        return True  # a kernel's check of an index has words of its own
    kind, _, message = (part.strip() for part in eager.failure.partition(":"))
    said = compiled.ending.exception
    if not said or not eager.ending.exception:
        return False
    if said.partition(":")[0] == kind:  # compiled code may say where it noticed it, too
        return len(message) >= _FEWEST and message in said
    if not re.search(rf"(?<!\w){re.escape(kind)}(?!\w)", said):
        return False
    return bool(_lines(compiled) & _lines(eager)) or (len(message) >= _FEWEST and message in said)


def _lines(run: Recorded) -> set[tuple[str, int]]:
    """The user's lines at which it failed: where an exception arose, and what the compiler was working on."""
    failure = compiler_failure(run)
    found = [run.failing_line, *(failure.origin[:1] if failure is not None else ())]
    return {(frame.file, frame.line) for frame in found if frame is not None}
