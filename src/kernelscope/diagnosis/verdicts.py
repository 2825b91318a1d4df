"""From what a step found to the answer: one function for each kind of failure."""

from __future__ import annotations

import re
from typing import Any

from kernelscope.analysis.determinism import DeterminismResult, Suspect
from kernelscope.analysis.varying_programs import advice_for
from kernelscope.bisection.result import BisectResult
from kernelscope.events import Frame
from kernelscope.shadowing.script_parent import ScriptAnswer
from kernelscope.shadowing.text.how_wrong import how_wrong
from kernelscope.shadowing.verdicts import OwnOperator, kind_of, own_operator
from kernelscope.stages.records import Incident
from kernelscope.text.amounts import counted
from kernelscope.text.visible import one_line
from kernelscope.trials.failure_signature import without_numbers

from .answer import COMPILER, MACHINE, PROGRAM, UNKNOWN, Answer
from .compile_troubles import Trouble
from .failures import compiler_failure, machine_advice
from .recorded import Recorded, own

DYNAMO = "Dynamo"  # shadow's name for it
_STAGES = {"dynamo": "Dynamo, tracing the function", "kernel": "the compiler of the generated kernel"}
_ADVICE = {  # by kind of trouble, and whether a line is known
    ("nothing-compiled", True): "remove what breaks the graph there, or move it out of the compiled function",
    ("nothing-compiled", False): "call what torch.compile returns, and check that nothing turns it off",
    ("recompiles", True): "keep that value the same, make it a tensor, or raise "
    "torch._dynamo.config.recompile_limit",
    ("recompiles", False): "see kernelscope stages for the reasons",
}
_REFUSED = "fullgraph=True found no compiled frames"  # torch says it after the function has returned
_LIMITS = ("Unsupported", "UserError", "UncapturedHigherOrderOpError")  # of Dynamo: not bugs
_HINT = re.compile(r"^ *Hint: (.+)$", re.MULTILINE)
_KNOWN_STAGES = ("dynamo", "kernel", "lowering")  # where a failure names what is at fault


def of_own_failure(answer: Answer, run: Recorded, eager: Recorded, printed: str) -> None:
    """`printed` is its last line of output, which is all that a program without an exception says."""
    answer.kind, answer.fault = ("crash" if eager.ending.kind == "crash" else "exception"), PROGRAM
    same = one_line(run.failure) == one_line(eager.failure)
    answer.what = eager.failure
    answer.line = eager.failing_line or run.failing_line
    answer.where = _executing(run)
    answer.eager = "the same failure without the compiler" + ("" if same else f"; compiled: {run.failure}")
    if printed and not eager.ending.exception and eager.ending.kind == "status":
        answer.reason = f"the last line that it printed: {printed}"
    answer.next = ["fix the program: the compiler is not the cause"]


def of_failure(answer: Answer, run: Recorded, eager: Recorded) -> Incident | None:
    """The failure of the compiler, if it is one."""
    answer.line = run.failing_line
    is_refused = _REFUSED in eager.whole_failure
    if is_refused:
        answer.eager = "without the compiler the function returns; torch then refuses fullgraph=True"
    elif eager.failed:
        answer.eager = f"without the compiler it fails differently: {eager.failure}"
    else:
        answer.eager = "without the compiler the script finishes normally"
    failure = compiler_failure(run)
    crash = run.ending.crash
    if failure is not None:
        answer.kind, answer.fault = "crash-in-compile", COMPILER
        answer.what = failure.reason
        answer.where = _STAGES.get(failure.stage, failure.stage and f"step of the compiler: {failure.stage}")
        answer.line = own(failure.origin[0]) if failure.origin else answer.line
        if failure.reason.partition(":")[0] in _LIMITS:
            _of_limit(answer, failure)
        elif advice := machine_advice(failure):
            answer.fault, answer.where = MACHINE, ""
            answer.next = [f"{advice}; kernelscope doctor lists what this machine lacks"]
    elif crash is not None:
        answer.kind, answer.fault = "crash", UNKNOWN
        answer.what = f"it {crash.ended}"
        answer.where = _executing(run)
        answer.what += ", inside a kernel" if answer.where else ""
    else:
        answer.kind, answer.fault = "exception", UNKNOWN
        how = (
            "not as it fails without the compiler"
            if eager.failed and not is_refused
            else "only when it is compiled"
        )
        answer.what = f"{how}: {run.failure}"
    return failure


def _of_limit(answer: Answer, failure: Incident) -> None:
    """What Dynamo says that it cannot trace: it would leave it to Python, but is not allowed to."""
    answer.fault = PROGRAM
    hints = [hint for hint in _HINT.findall(failure.detail) if not hint.startswith("This graph break")]
    answer.reason = f"torch's hint: {hints[-1]}" if hints else ""
    answer.next = ["change that line, or leave out fullgraph=True if it is set: Python then runs that line"]


def _executing(run: Recorded) -> str:
    """The kernel that was executing when the process crashed."""
    crash = run.ending.crash
    if crash is None or not crash.executing:
        return ""
    call = crash.executing[-1]
    return f"kernel {call.kernel_name} ({call.kind}), call {call.index}"


def names_its_cause(failure: Incident | None) -> bool:
    """Whether a failure of the compiler says which operator, line or kernel it is about."""
    return failure is not None and failure.stage in _KNOWN_STAGES


def of_culprit(answer: Answer, found: ScriptAnswer, run: Recorded) -> None:
    culprit: dict[str, Any] = found.form["culprit"]
    kind = kind_of(culprit["verdict"])
    name, numbers = str(culprit["kernel_name"]), dict(culprit["numbers"])
    failed = run.failure if run.failed else ""
    is_nan = run.nan is not None and numbers.get("compiled") == "nan"
    answer.kind, answer.fault = ("nan" if is_nan else "wrong-numbers"), COMPILER
    subject = "a kernel" if kind.subject == "kernel" else f"a {kind.subject} of the compiler"
    if kind.subject == "function":
        subject = "a compiled function"
    answer.what = f"{subject} {kind.sentence} ({culprit['verdict']})"
    launch = f", launch {culprit['index']}" if culprit["index"] >= 0 else ""
    answer.where = f"{kind.subject} {name} ({culprit['kind']}){launch}"
    if step := known_step(found):
        answer.where = f"step of the compiler: {step}"
    answer.how_wrong = how_wrong(numbers) or one_line(str(culprit["reason"]))
    origin = [Frame(each["file"], each["line"], each["function"]) for each in culprit["origin"]]
    answer.line = origin[0] if origin else run.line_of_node(str(culprit["node"])) or answer.line
    if failed:
        answer.notes.append(f"the script itself fails when it is compiled: {failed}")
    if (operator := operator_of(found)) is not None:
        answer.fault = PROGRAM
        answer.reason = f"{operator.name} is not torch's: {operator.fault}"
        answer.next = [f"{operator.remedy}; {operator.check}"]


def operator_of(found: ScriptAnswer) -> OwnOperator | None:
    """The program's own operator that is at fault instead of the compiler, if shadow has found one."""
    culprit = found.form["culprit"]
    facts = (str(culprit[key]) for key in ("verdict", "kind", "kernel_name", "reason"))
    return own_operator(*facts)


def known_step(found: ScriptAnswer) -> str:
    """The compiler's step that shadow has named; empty where it is still to be found."""
    culprit = found.form["culprit"]
    is_named = kind_of(culprit["verdict"]).is_step or (culprit["kind"] == "function" and culprit["buffer"])
    return str(culprit["kernel_name"]) if is_named else ""


def of_nan(answer: Answer, run: Recorded, *, is_conclusive: bool) -> None:
    finding = run.nan
    assert finding is not None
    answer.kind, answer.fault = "nan", PROGRAM if is_conclusive else UNKNOWN
    answer.what = finding.message.partition("\n")[0]
    answer.line = run.line_of_call(finding.call)
    answer.where = f"kernel {finding.kernel}, call {finding.call}" if finding.kernel else ""
    if is_conclusive:
        answer.eager = "eager makes the same NaN from the same inputs: the compiler is not the cause"
    if (undefined := run.undefined_memory(finding.call)) is not None:
        at = f" at {undefined.line}" if undefined.line is not None else ""
        answer.reason = (
            f"it reads memory of torch.empty{at}, whose values are not defined until it is written"
        )
        answer.next = ["write all of that memory before it is read, or make it with torch.zeros"]
        if is_conclusive:
            answer.eager = (
                "eager reads that memory too, with whatever is in it: the compiler is not the cause"
            )


def of_random_numbers(answer: Answer, buffers: int) -> None:
    """Of an exception only when compiled, where every kernel is right: a comparison with eager, perhaps."""
    answer.reason = f"compiled code and eager draw different random numbers ({counted(buffers, 'buffer')})"
    answer.checked.append("apart from random numbers, every kernel that was compared is right")
    answer.next = [
        "set torch._inductor.config.fallback_random = True, which draws eager's numbers: if the script then "
        "passes, the random numbers were the cause"
    ]


def of_variation(answer: Answer, found: DeterminismResult) -> None:
    first: Suspect | None = next(iter((*found.kernels, *found.unconfirmed)), None)
    answer.kind, answer.fault = "varies", UNKNOWN
    answer.what = f"in {found.runs} runs from the same state"
    if found.by_the_program:
        answer.fault = PROGRAM
        answer.what = f"the program itself varies: {found.by_the_program}"
        answer.line = found.divergence.origin
        answer.where = f"first seen at {found.divergence.kernel_name}; no kernel is at fault"
        source = found.divergence.source
        answer.reason = source.text if source is not None else found.divergence.reason
        answer.next = [advice_for(found.divergence)]
        return
    if first is None:
        answer.how_wrong = found.unexplained or str(found.divergence).partition("\n")[0]
        return
    answer.line = first.origin
    answer.where = f"kernel {first.kernel_name} ({first.kind}), call {first.index}, {first.argument}"
    answer.how_wrong = (
        f"same inputs, different outputs in {first.differed} of {counted(first.repeats, 'repeat')}"
    )
    if first.replays:
        answer.how_wrong += f"; alone, {first.replays_differed} of {first.replays} launches differ"
    if first.kind in ("op", "extern"):
        answer.fault = PROGRAM
        answer.eager = "it is an operator that eager calls too: the compiler is not the cause"


def of_early_leaving(answer: Answer, run: Recorded) -> None:
    """Of a script that ends its own process: only what was recorded until then is known."""
    if run.nan is not None:
        of_nan(answer, run, is_conclusive=False)
    else:
        answer.kind = "unknown"
        answer.what = "the script ends its process with os._exit(0), before results can be compared"
        answer.checked.append("no recorded kernel made a NaN")
    answer.unchecked.append("whether results are right, and whether they vary from run to run")
    answer.next.append("let the script end by its last line or by sys.exit, then run kernelscope why again")


def of_trouble(answer: Answer, trouble: Trouble) -> None:
    answer.kind, answer.what = trouble.kind, trouble.what
    answer.fault = COMPILER if trouble.is_compilers else PROGRAM
    answer.line = trouble.line
    answer.reason = trouble.reason
    answer.notes.clear()  # they say the same
    answer.next = [trouble.advice or _ADVICE[trouble.kind, trouble.line is not None]]


def shadow_problem(found: ScriptAnswer, run: Recorded) -> str:
    """Why shadow is inconclusive: above all, a script that fails in another way than the first time."""
    said = found.problem.removeprefix("the script failed: ").removeprefix("the script ").partition("\n")[0]
    first = run.ending.exception and without_numbers(run.failure)
    is_known = run.failed and (not first or first in without_numbers(said))
    if said and not is_known:
        return f"the script failed when it was run again: {said}"
    return str(found.form.get("problem") or "")


def is_unseen(found: ScriptAnswer, run: Recorded) -> bool:
    """Whether the first run launched kernels, and shadow saw none."""
    seen = found.form.get("launches") or found.form.get("regions")
    return not seen and not found.problem and run.calls > 0


def of_unseen_kernels(answer: Answer, run: Recorded) -> None:
    answer.kind = "unknown"
    answer.unchecked = ["whether results are right, and whether they vary from run to run"]
    if len(run.runs) > 1:
        answer.what = (
            "compiled code ran only in processes that the script starts; results are compared with eager, "
            "and from run to run, only in the script's own process"
        )
        answer.next = ["let the script do that work in its own process, with 0 workers, and try again"]
        return
    answer.what = (
        f"the first run made {counted(run.calls, 'call')} of kernels, and when the script was run again "
        "shadow saw none; later runs have no standard input"
    )
    answer.next = ["make all runs equal: let the script read a file, not standard input, and keep no state"]


def fails_in_eager(found: BisectResult) -> bool:
    return "backend='eager' too" in found.problem


def of_failed_check(answer: Answer, result: BisectResult, found: ScriptAnswer | None) -> None:
    """Of a check of the user that fails, where shadow has found nothing."""
    answer.kind = "condition"
    if not fails_in_eager(result):
        answer.fault = COMPILER
        answer.what = f"the check fails only when the program is compiled: {result.failure}"
        return
    is_right = found is not None and found.status == 0
    answer.fault = PROGRAM if is_right else UNKNOWN
    answer.what = "the check fails with backend='eager' too, where no kernel is compiled"
    answer.what += f": {result.failure}" if result.failure else ""
    answer.next = ["make sure that the check passes for a program that is right; then search in the program"]


def of_unrun_check(answer: Answer, run: Recorded) -> None:
    answer.kind, answer.fault = "unknown", ""
    how = f"ends with {run.failure}" if run.failed else "finishes normally"
    answer.what = f"the check was not run, because of --quick; the script {how}"
    answer.next = ["leave out --quick: bisect then runs the check"]
