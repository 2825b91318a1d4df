"""The answer to "why?": what is wrong, where, how wrong, and how that was found. Plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from kernelscope.events import Frame
from kernelscope.text.frames import frame_form, source_line

from .steps import Step

NOTHING = "nothing"
KINDS = {
    "crash-in-compile": "the compiler fails",
    "crash": "the process crashes",
    "exception": "the program fails",
    "wrong-numbers": "a result differs from eager",
    "nan": "a kernel makes NaN",
    "varies": "results vary from run to run",
    "nothing-compiled": "nothing is compiled",
    "recompiles": "a function is compiled repeatedly",
    "condition": "the script fails as described",
    NOTHING: "nothing is wrong",
    "unknown": "no answer",
}
COMPILER, PROGRAM, MACHINE, UNKNOWN = "compiler", "program", "machine", "unknown"  # whose fault it is
INNOCENT = (PROGRAM, MACHINE)  # of whom the compiler is not to blame


@dataclass
class Answer:
    """Everything that the first screen and answer.json show."""

    kind: str = NOTHING  # a key of KINDS
    fault: str = ""  # one of them; empty where nothing is wrong
    what: str = ""  # one sentence
    line: Frame | None = None  # of the user's program
    where: str = ""  # the kernel, or the step of the compiler
    reason: str = ""  # what the compiler itself says
    how_wrong: str = ""
    eager: str = ""  # what eager does instead, or too
    cause: str = ""  # the part of the compiler that bisect found
    smallest: str = ""  # the smallest graph that fails
    workaround: tuple[str, ...] = ()
    checked: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    next: list[str] = field(default_factory=list)  # commands, or what to do
    steps: list[Step] = field(default_factory=list)
    folder: str = ""
    files: list[str] = field(default_factory=list)  # names in the folder
    stopped: str = ""  # why the search ended early

    @property
    def is_wrong(self) -> bool:
        return self.kind not in (NOTHING, "unknown")

    @property
    def status(self) -> int:
        """An exit status: 0 nothing is wrong, 1 something is, 2 inconclusive."""
        if self.is_wrong:
            return 1
        return 2 if self.kind == "unknown" or self.stopped else 0

    @property
    def seconds(self) -> float:
        return sum(step.seconds for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        plain = asdict(self) | {"line": frame_form(self.line), "workaround": list(self.workaround)}
        code = source_line(self.line) if self.line is not None else ""
        return plain | {"code": code, "status": self.status, "seconds": round(self.seconds, 2)}
