"""What a diagnosis leaves in its folder: the page, the minimal script, the bug report, and the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from kernelscope.errors import RunError
from kernelscope.private_files import write_text
from kernelscope.report.file import MOST_CALLS, data, page_of, write
from kernelscope.repro import files
from kernelscope.repro.issue_folder import NOT_REPRODUCED, write_issue
from kernelscope.repro.one_call import call_script
from kernelscope.store.stored_run import StoredRun, load

from .answer import INNOCENT, Answer
from .answer_text import answer_facts, answer_lines
from .compiler_search import REDUCED
from .next_steps import add_next_steps
from .question import Question, on_run
from .recorded import Recorded
from .steps import Steps

PAGE, ISSUE, SHADOW = "report.html", "issue/issue.md", "shadow.txt"
_LOOK_AT_IMPORTS = (
    "do not send reduced.py: it did not reproduce with stock torch; look at what the script imports, "
    "which may change the compiler"
)


class OutputFiles:
    """Filled while the search goes on, and written at its end."""

    def __init__(self, folder: Path, steps: Steps, question: Question) -> None:
        self._folder, self._steps, self._question = folder, steps, question
        self.run: Recorded | None = None
        self.stopped: Recorded | None = None  # a run up to the first NaN, with its inputs
        self.varying: tuple[Path, Path] | None = None  # two runs that differ
        self.call: int | None = None  # that is at fault
        self.shadow_text = ""
        self.has_reduced = False

    def make(self, answer: Answer) -> None:
        """What can be made of what was found; what cannot be is noted."""
        if self.has_reduced:
            answer.files.append(f"{REDUCED}/reduced.py")
        runs = self._runs()
        if runs:
            other = ["--diff", runs[1].path] if len(runs) > 1 else []
            self._add(answer, "report", [runs[0].path, *other], lambda: self._page(runs))
            if answer.is_wrong and answer.fault not in INNOCENT and not answer.stopped:
                self._add(answer, "issue", self._about(runs[0]), lambda: self._issue(runs[0], answer))
            elif self.call is not None or self.stopped is not None:
                call = self._single_call()
                words = [runs[0].path, "--call", "N" if call is None else call]
                self._add(answer, "repro", words, lambda: self._script(runs[0]))

    def keep(self, answer: Answer) -> None:
        """Write the answer itself, whatever else there is."""
        if self.shadow_text:
            write_text(self._folder / SHADOW, self.shadow_text + "\n")
            answer.files.append(SHADOW)
        answer.files += ["answer.txt", "answer.json"]
        add_next_steps(answer, self._question)
        write_text(self._folder / "answer.txt", "\n".join(answer_lines(answer)) + "\n")
        write_text(self._folder / "answer.json", json.dumps(answer.to_json(), indent=2))

    def _runs(self) -> list[StoredRun]:
        """What the page shows: the run (its first process that made calls), or the two that differ."""
        if self.varying is not None:
            return [load(path) for path in self.varying]
        if self.stopped is not None and self.stopped.runs:
            return self.stopped.runs[:1]
        runs = self.run.runs if self.run is not None else []
        return [run for run in runs if len(run)][:1] or runs[:1]

    def _about(self, run: StoredRun) -> list[object]:
        """What a user types after `kernelscope issue` for the same."""
        if self.has_reduced:
            return [run.path, "--reduced", self._folder / REDUCED]
        return [run.path, *(["--call", self.call] if self.call is not None else [])]

    def _add(self, answer: Answer, name: str, words: Sequence[object], make: Callable[[], str]) -> None:
        try:
            answer.files.append(self._steps.take(name, on_run(name, *words), make, str))
        except (RunError, OSError) as error:
            answer.notes.append(f"there is no {name}: {' '.join(str(error).split())}")
        except Exception as error:  # what was found in minutes must not be lost
            answer.notes.append(f"there is no {name}: kernelscope itself failed: {error!r:.200}")

    def _page(self, runs: list[StoredRun]) -> str:
        other = runs[1] if len(runs) > 1 else None
        write(page_of(data(runs[0], other, first=None, limit=MOST_CALLS)), self._folder / PAGE)
        return PAGE

    def _issue(self, run: StoredRun, answer: Answer) -> str:
        target = self._folder / "issue"
        reduced = self._folder / REDUCED if self.has_reduced else None
        call = None if reduced is not None else self.call
        facts = list(answer_facts(answer))
        program = self._question.script
        try:
            notes = write_issue(
                run, target, call=call, graph=None, imports=[], reduced=reduced, facts=facts, program=program
            )
        except RunError as error:
            if call is None:
                raise
            answer.notes.append(f"the bug report has no script of call {call}: {error}")
            self._steps.done[-1].command = on_run("issue", run.path)
            notes = write_issue(
                run, target, call=None, graph=None, imports=[], reduced=None, facts=facts, program=program
            )
        if NOT_REPRODUCED in notes:
            answer.notes.insert(0, NOT_REPRODUCED)
            answer.next = [_LOOK_AT_IMPORTS]
        return ISSUE

    def _script(self, run: StoredRun) -> str:
        """The call that makes NaN, or that varies, alone."""
        call = self._single_call()
        if call is None or call < 0:
            raise RunError("the call was not recorded")
        path = files.write(call_script(run, call), self._folder / "repro")
        return str(path.relative_to(self._folder))

    def _single_call(self) -> int | None:
        if self.call is None and self.stopped is not None and self.stopped.nan is not None:
            return self.stopped.nan.call
        return self.call
