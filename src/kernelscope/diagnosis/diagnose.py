"""The order of the steps: what each question needs, and where the search stops."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path

from kernelscope.determinism.script_check import ScriptRuns
from kernelscope.errors import RunError
from kernelscope.processes.signals import terminable
from kernelscope.processes.time_limit import TimeIsUp, limited
from kernelscope.shadowing.script_parent import ScriptAnswer, shadow_script
from kernelscope.store.folder import SUFFIX
from kernelscope.text.amounts import counted

from . import verdicts
from .answer import INNOCENT, NOTHING, Answer
from .compile_troubles import compiling_of
from .compiler_search import add_cause, add_smallest, bisect, reduce
from .failures import compiler_failure, is_same_failure
from .output_files import OutputFiles
from .progress import Progress
from .question import Question
from .quiet_programs import last_line, output_to
from .recorded import EAGER, RECORDING, Recorded, record
from .steps import Steps

_RUNS = 3  # as the command `determinism` has it
OUTPUT = "output.txt"
NEVER_CHECKED = (
    "code that is not compiled",
    "compiled functions as a whole, except in their executions 1 to 4, 8, 16, 32 …",
    "other inputs",
    "kernels that came from Inductor's cache, where an earlier compiler may have put them",
    "speed",
)


class Diagnosis:
    """One search; `answer` holds what is known so far, also after an interruption."""

    def __init__(self, question: Question, folder: Path, progress: Progress) -> None:
        self._question, self._folder, self._progress = question, folder, progress
        self._steps = Steps(progress)
        self.answer = Answer(folder=str(folder), steps=self._steps.done)
        self._left = OutputFiles(folder, self._steps, question)
        self.interruption: KeyboardInterrupt | None = None

    def run(self) -> Answer:
        answer = self.answer
        try:
            with terminable(), limited(self._question.seconds):
                self._search()
        except KeyboardInterrupt as ended:
            unfinished = self._stop(ended)
            if answer.kind == NOTHING:
                answer.kind, answer.what = "unknown", f"{answer.stopped} during {unfinished}"
        except RunError as error:  # a step could not be taken; what the others found stays
            if not self._steps.done or self._left.run is None:
                raise
            failed = f"{self._steps.done[-1].name} could not be finished: {error}"
            answer.unchecked.append(failed)
            if answer.kind == NOTHING:
                answer.kind, answer.what = "unknown", failed
        try:
            with output_to(self._folder / OUTPUT), terminable():
                self._left.make(answer)
        except KeyboardInterrupt as ended:  # what was found in minutes must not be lost
            self._stop(ended)
        self._left.keep(answer)
        return answer

    def _stop(self, ended: KeyboardInterrupt) -> str:
        """Note the interruption; returns the step that it ended."""
        self.interruption = ended
        self.answer.stopped = str(ended) or "interrupted"
        unfinished = self._steps.done[-1].name if self._steps.done else "run"
        self.answer.unchecked.append(f"{unfinished} was not finished: {self.answer.stopped}")
        return unfinished

    @property
    def status(self) -> int:
        """An exit status: that of the answer, unless a person or a signal ended the search."""
        if self.interruption is None or isinstance(self.interruption, TimeIsUp):
            return self.answer.status
        return int(getattr(self.interruption, "status", 128 + signal.SIGINT))

    # -- the search ------------------------------------------------------------------------------------

    def _search(self) -> None:
        question, answer = self._question, self.answer
        self._progress.counts = False  # the program prints
        run = self._left.run = self._steps.take(
            "run", question.typed("run", "--values", "stats"), self._record, lambda r: r.ending.headline
        )
        self._progress.counts = True
        with output_to(self._folder / OUTPUT):
            if question.request is not None:
                self._search_by_check(run)
                return
            compiling = compiling_of(run.runs)
            answer.notes += compiling.remarks
            if run.failed:
                self._search_failure(run)
                return
            if run.has_left_early:  # in the other steps, too, before they can report
                verdicts.of_early_leaving(answer, run)
                return
            answer.checked.append("the script finishes normally")
            if compiling.trouble is not None and compiling.trouble.kind == "nothing-compiled":
                verdicts.of_trouble(answer, compiling.trouble)
                answer.unchecked.append("whether results are right: no compiled code ran")
                return
            found = self._shadow(run)
            if found.form["culprit"] is not None:
                self._search_culprit(run, found)
            elif run.nan is not None:
                self._search_nan(run, is_conclusive=found.status == 0)
            elif compiling.trouble is not None:
                verdicts.of_trouble(answer, compiling.trouble)
                answer.unchecked.append("whether results vary from run to run")
            else:
                answer.checked.append("no recorded kernel made a NaN")
                if verdicts.is_unseen(found, run):
                    verdicts.of_unseen_kernels(answer, run)
                    return
                if found.status:
                    answer.kind, answer.what = "unknown", verdicts.shadow_problem(found, run)
                self._search_variation()

    def _record(self) -> Recorded:
        return record(self._question.command, self._folder / "run", RECORDING)

    def _eager(self) -> Recorded:
        question = self._question
        return self._steps.take(
            "eager",
            f"TORCH_COMPILE_DISABLE=1 {question.typed('run')}",
            lambda: record(question.command, self._folder / "eager", "", dict(EAGER)),
            lambda r: r.ending.headline,
        )

    def _shadow(self, run: Recorded) -> ScriptAnswer:
        question, answer = self._question, self.answer
        found = self._steps.take(
            "shadow",
            question.typed("shadow"),
            lambda: shadow_script(question.words, offload=False, every=False, verbose=False, stdout=None),
            lambda f: (f.text or f.problem).partition("\n")[0],
        )
        self._left.shadow_text = found.text
        form = found.form
        if form.get("launches") or form.get("regions"):
            answer.checked.append(
                f"against eager: {counted(form['buffers'], 'buffer')} of compiled kernels, "
                f"{counted(form['regions'], 'compiled function')}"
            )
        answer.unchecked += [each for each in (verdicts.shadow_problem(found, run),) if each]
        if missed := len(form.get("unchecked", ())):
            answer.unchecked.append(f"{counted(missed, 'buffer')}, which shadow could not compare")
        return found

    def _search_failure(self, run: Recorded) -> None:
        answer = self.answer
        eager = self._eager()
        if is_same_failure(run, eager):
            verdicts.of_own_failure(answer, run, eager, last_line(self._folder / OUTPUT))
            return
        failure = verdicts.of_failure(answer, run, eager)
        if answer.fault in INNOCENT:  # no part of the compiler is to blame
            return
        crash = run.ending.crash
        self._left.call = crash.executing[-1].index if crash is not None and crash.executing else None
        if failure is None and run.ending.kind != "crash":
            found = self._shadow(run)
            if found.form["culprit"] is not None:
                self._search_culprit(run, found)
                return
            if found.form.get("given"):
                verdicts.of_random_numbers(answer, int(found.form["given"]))
                answer.next.append(self._question.typed("bisect", "--fails-on", "exception"))
                return
        self._search_compiler(
            "exception",
            bisects=not verdicts.names_its_cause(failure),
            reduces=failure is not None and failure.stage != "dynamo",
        )

    def _search_culprit(self, run: Recorded, found: ScriptAnswer) -> None:
        verdicts.of_culprit(self.answer, found, run)
        if verdicts.operator_of(found) is not None:
            return  # the compiler did what the registration says
        step = verdicts.known_step(found)
        self._search_compiler("shadow", bisects=not step, reduces=step != verdicts.DYNAMO)

    def _search_compiler(self, check: str, *, bisects: bool, reduces: bool) -> None:
        question, answer = self._question, self.answer
        if question.quick:
            answer.unchecked.append("which part of the compiler: --quick leaves out bisect and reduce")
            answer.next.append(question.typed("bisect", "--fails-on", check))
            return
        if bisects:
            add_cause(answer, bisect(question, check, self._folder, self._steps, self._progress))
        if reduces:
            self._left.has_reduced = add_smallest(answer, reduce(question, self._folder, self._steps))

    def _search_nan(self, run: Recorded, *, is_conclusive: bool) -> None:
        verdicts.of_nan(self.answer, run, is_conclusive=is_conclusive)
        if self._question.quick:
            return
        question, saving = self._question, ["--stop-on", "nan"]
        if (
            run.nan is not None and run.nan.call >= 0
        ):  # a script of that call needs its inputs, at whichever execution it is
            saving += ["--values", "save", "--save-call", str(run.nan.call)]
        stopped = self._steps.take(
            "stop",
            question.typed("run", *saving),
            lambda: record(question.command, self._folder / "stopped", shlex.join(["--stages", *saving])),
            lambda r: r.ending.headline,
        )
        self._left.stopped = stopped

    def _search_variation(self) -> None:
        question, answer = self._question, self.answer
        runs = ScriptRuns(question.command, "all", recompile=False)
        home = self._folder / "runs"
        try:
            found, _ = self._steps.take(
                "determinism",
                question.typed("determinism"),
                lambda: runs.check(_RUNS, str(home), question.stem, fresh=False),
                lambda pair: pair[0].by_the_program or str(pair[0]).partition("\n")[0],
            )
        except RunError as error:
            answer.unchecked.append(f"whether results vary from run to run: {error}")
            return
        if found:
            verdicts.of_variation(answer, found)
            self._left.varying = home / f"run-0{SUFFIX}", home / f"run-1{SUFFIX}"
            first = next(iter((*found.kernels, *found.unconfirmed)), None)
            self._left.call = None if first is None else first.index
        else:
            answer.checked.append(f"{_RUNS} runs from the same state are identical, call by call")
            answer.unchecked += NEVER_CHECKED

    def _search_by_check(self, run: Recorded) -> None:
        answer, question = self.answer, self._question
        assert question.request is not None
        found = self._shadow(run) if run.ending.kind != "crash" and not compiler_failure(run) else None
        culprit = found is not None and found.form["culprit"] is not None
        if culprit:
            assert found is not None
            verdicts.of_culprit(answer, found, run)
        else:
            answer.line = run.failing_line
        if question.quick:
            answer.unchecked.append("the check: --quick leaves out bisect, which runs it")
            if not culprit:
                self._take_check_from(run, found)
            return
        result = bisect(question, "", self._folder, self._steps, self._progress)
        if result.failed and not culprit:
            verdicts.of_failed_check(answer, result, found)
        elif not result.failed:
            answer.kind = answer.kind if culprit else "unknown"
            answer.what = answer.what or result.problem
        add_cause(answer, result)
        if culprit and answer.fault not in INNOCENT:
            self._left.has_reduced = add_smallest(answer, reduce(question, self._folder, self._steps))

    def _take_check_from(self, run: Recorded, found: ScriptAnswer | None) -> None:
        """As far as the run itself shows whether the check fails."""
        answer, request = self.answer, self._question.request
        assert request is not None
        if request.check == "exception" and run.failed and request.what in run.whole_failure:
            eager = self._eager()
            if is_same_failure(run, eager):
                verdicts.of_own_failure(answer, run, eager, last_line(self._folder / OUTPUT))
            else:
                verdicts.of_failure(answer, run, eager)
        elif request.check == "nan" and run.nan is not None:
            self._search_nan(run, is_conclusive=found is not None and found.status == 0)
        else:
            verdicts.of_unrun_check(answer, run)
