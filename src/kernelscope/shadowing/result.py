"""What shadowing found: what is wrong, what could not be checked, and how much was checked."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from kernelscope.shadowing.text.html import result_html
from kernelscope.shadowing.text.result_text import failed, result_lines
from kernelscope.text.amounts import counted

from .counts import Counts
from .culprit import Culprit, Failure, Padded, Unchecked
from .verdicts import kind_of

ENOUGH = 0.9  # of launches, and of output bytes, must be judged for a result to be conclusive


class ShadowResult:
    """Truthy when something is wrong; `culprit` is the first thing that is."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.unshadowed: list[str] = []  # graphs that ran and could not be followed
        self.notes: list[str] = []
        self.padded: dict[Padded, None] = {}  # results whose rows Inductor padded, in order
        self.command: Sequence[str] = ()  # the script and its arguments, where a command runs one
        self._wrong: dict[tuple[str, str, str, str], Culprit] = {}
        self._unchecked: dict[tuple[str, str, str], int] = {}
        self._failures: dict[tuple[str, str], Failure] = {}
        self._suspects: dict[tuple[str, str, str], Culprit] = {}

    # -- what was found --------------------------------------------------------------------------------

    @property
    def culprits(self) -> list[Culprit]:
        """Everything that is wrong, in the order in which it happened; a wrong stage comes first."""
        return sorted(self._wrong.values(), key=lambda c: (kind_of(c.verdict).rank, c.index))

    @property
    def culprit(self) -> Culprit | None:
        return next(iter(self.culprits), None)

    @property
    def unchecked(self) -> list[Unchecked]:
        return [Unchecked(*key, times) for key, times in self._unchecked.items()]

    @property
    def failures(self) -> list[Failure]:
        """Mistakes of kernelscope itself: never a clean bill."""
        return list(self._failures.values())

    def __bool__(self) -> bool:
        return bool(self._wrong)

    def __iter__(self) -> Iterator[Culprit]:
        return iter(self.culprits)

    @property
    def problem(self) -> str:
        """Why the result is inconclusive, where nothing was found."""
        if self._failures:
            return failed(self.failures)
        if self.unshadowed:
            were = "was" if len(self.unshadowed) == 1 else "were"
            many = counted(len(self.unshadowed), "compiled graph")
            return f"{many} {were} not shadowed: {self.unshadowed[0]}"
        if not self.counts.launches and not self.counts.regions:
            return f"no compiled kernel was launched{self._of_functions()}"
        if self.counts.launches and not self.counts.buffers:
            return "none of the kernels could be checked"
        for what, share in self.counts.shares.items():
            if share < ENOUGH and what != "steps":
                names = "output bytes" if what == "bytes" else what
                because = self._of_functions() if what == "functions" else ""
                return f"only {100 * share:.0f} % of the {names} could be judged{because}"
        return ""

    def _of_functions(self) -> str:
        """Why the first compiled function was not judged."""
        first = next((each for each in self.unchecked if each.kernel_name.startswith("function ")), None)
        return "" if first is None else f": {first.kernel_name.removeprefix('function ')}: {first.reason}"

    @property
    def status(self) -> int:
        """An exit status: 0 nothing wrong, 1 something is, 2 inconclusive."""
        return 1 if self else 2 if self.problem else 0

    # -- while it is being found -----------------------------------------------------------------------

    def add(self, *culprits: Culprit) -> None:
        for culprit in culprits:
            key = culprit.graph, culprit.kernel_name, culprit.buffer, culprit.wrapper
            known = self._wrong.get(key)
            self._wrong[key] = culprit if known is None else replace(known, times=known.times + 1)

    def suspect(self, culprit: Culprit) -> None:
        """It is not finite where eager is, and exact numbers explain that: wrong only if a function is."""
        self._suspects[culprit.graph, culprit.kernel_name, culprit.buffer] = culprit

    def suspects_since(self, launch: int) -> list[Culprit]:
        return sorted((c for c in self._suspects.values() if c.index >= launch), key=lambda c: c.index)

    def leave_out(self, kernel_name: str, argument: str, reason: str) -> None:
        key = kernel_name, argument, reason
        self._unchecked[key] = self._unchecked.get(key, 0) + 1

    def note(self, sentence: str) -> None:
        """What a reader should know; each sentence once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def fail(self, where: str, error: BaseException | str, trace: str = "") -> None:
        """Kernelscope itself failed here."""
        text = str(error)
        if isinstance(error, BaseException):
            text = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
            trace = "".join(traceback.format_exception(error)).strip()
        known = self._failures.get((where, text))
        times = known.times + 1 if known is not None else 1
        self._failures[where, text] = Failure(where, text, trace, times)

    # -- as data and as text ---------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        return {
            "culprit": self.culprit.to_dict() if self.culprit is not None else None,
            "culprits": [c.to_dict() for c in self.culprits],
            "status": self.status,
            "problem": self.problem,
            **self.counts.to_dict(),
            "unchecked": [asdict(each) for each in self.unchecked],
            "failures": [asdict(each) for each in self.failures],
            "unshadowed": self.unshadowed,
            "padded": [asdict(each) for each in self.padded],
            "notes": self.notes,
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        return "\n".join(result_lines(self))

    def details(self) -> str:
        """The same with all numbers, everything that was not checked, and tracebacks of our own failures."""
        return "\n".join(result_lines(self, verbose=True))

    def _repr_html_(self) -> str:
        """For notebooks."""
        wrong = self.culprits
        title = f"{len(wrong)} wrong" if wrong else self.problem or "nothing wrong"
        notes = [f"kernelscope itself failed at {each}" for each in self.failures]
        notes += [*map(str, self.padded), *self.notes]
        return result_html(title, self.status == 0, str(self.counts), wrong, self.unchecked, notes)

    def __repr__(self) -> str:
        found = self.culprit
        what = f"{found.verdict}: {found.kernel_name} {found.argument}" if found else "nothing wrong"
        return f"<ShadowResult: {what}, {self.counts.buffers} buffers checked>"
