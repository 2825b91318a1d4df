"""Short answers of the commands that judge: diff, shadow, determinism, bisect, reduce, why."""

from __future__ import annotations

from typing import Any

from kernelscope.text.amounts import counted

from .answers import Form, answer, call, line_of


def diff_answer(a: str, b: str, form: Form) -> dict[str, Any]:
    """Where two runs first differ."""
    found, compared = form["divergence"], form["compared"]
    if found is None:
        return answer(f"runs {a} and {b} agree in {counted(compared['pairs'], 'call')}", notes=form["notes"])
    sides = [
        call("show", f"that call in {run}", run=run, call=found[f"index_{side}"])
        for side, run in (("a", a), ("b", b))
        if found.get(f"index_{side}") is not None
    ]
    return answer(
        f"runs {a} and {b} first differ at {found['kernel_name']}: {found['verdict']}", *sides,
        kernel=found["kernel_name"], argument=found["argument"], verdict=found["verdict"],
        reason=found["reason"], line=line_of(found["origin"]), source=found["source"],
        differences=found["differences"], compared=compared, notes=form["notes"],
    )  # fmt: skip


def shadow_answer(form: Form, script: Form) -> dict[str, Any]:
    """Which kernel, function or step of the compiler differs from eager."""
    found, problem = form.get("culprit"), form.get("problem")
    judged = {"judged": form.get("judged"), "notes": form.get("notes")}
    if found is None and problem:
        return answer(f"inconclusive: {problem}", call("why", "search with all commands", **script), **judged)
    if found is None:
        steps = call("determinism", "whether results vary from run to run", **script)
        return answer("no compiled kernel differs from eager by more than rounding", steps, **judged)
    numbers = {name: (found["numbers"] or {}).get(name) for name in ("compiled", "eager", "float64", "wrong")}
    return answer(
        f"{found['kernel_name'] or found['node']} is wrong ({found['verdict']}): {found['reason']}",
        call("bisect", "which part of the compiler makes it wrong", **script),
        call("reduce", "the smallest graph that still fails", **script),
        verdict=found["verdict"], kernel=found["kernel_name"], argument=found["argument"],
        line=line_of(found["origin"]), computes=found["nodes"], pattern=found["pattern"],
        numbers={name: value for name, value in numbers.items() if value is not None},
        others=len(form["culprits"]) - 1, **judged,
    )  # fmt: skip


def determinism_answer(form: Form, script: Form) -> dict[str, Any]:
    """Which kernels vary from run to run."""
    found = form["divergence"]
    if found is None:
        steps = call("shadow", "whether a kernel differs from eager", **script)
        return answer(f"{counted(form['runs'], 'run')} were identical", steps, notes=form["notes"])
    names = ("kernel_name", "argument", "verdict", "confirmed", "max_abs", "max_rel")
    return answer(
        f"{found['kernel_name']} gives varying results in {counted(form['runs'], 'run')}",
        call("show", "that call", run=form["path"], call=found["index"]) if _is_run(form) else
        call("list_runs", "the runs that were compared"),
        kernels=[{name: each[name] for name in names} for each in form["kernels"]],
        line=line_of(found["origin"]), unexplained=form["unexplained"], folder=form["path"],
        notes=form["notes"],
    )  # fmt: skip


def _is_run(form: Form) -> bool:
    return str(form["path"]).endswith(".kscope")


def bisect_answer(form: Form, script: Form) -> dict[str, Any]:
    """Which part of the compiler makes a script fail."""
    cause = form["cause"]
    facts = {
        "failure": form["failure"], "workaround": form["workaround"], "trials": form["trials"],
        "folder": form["folder"], "notes": form["notes"],
    }  # fmt: skip
    if cause is None:
        sentence = form["problem"] or "no part of the compiler explains it: it fails with each of them off"
        return answer(sentence, call("why", "search with all commands", **script), **facts)
    names = ", ".join(str(switch.get("name", "")) for switch in cause["switches"])
    steps = call("reduce", "the smallest graph that still fails", **script)
    return answer(f"the cause is {cause['axis']} {names}", steps, cause=cause, **facts)


def reduce_answer(form: Form, script: Form) -> dict[str, Any]:
    """The smallest graph that still fails."""
    if problem := form.get("problem"):
        return answer(f"nothing was reduced: {problem}", call("why", "search with all commands", **script))
    sentence = f"{counted(form['nodes_before'], 'node')} reduced to {form['nodes']}: {form['failure']}"
    names = ("code", "failure", "nodes_before", "nodes", "trials", "script", "reproduces_alone")
    return answer(sentence, **{name: form[name] for name in names})


def why_answer(form: Form) -> dict[str, Any]:
    """What is wrong with a script, and whose fault it is."""
    names = (
        "kind", "fault", "where", "reason", "how_wrong", "eager", "cause", "smallest", "workaround",
        "checked", "unchecked", "notes", "folder", "files", "stopped", "code",
    )  # fmt: skip
    facts = {name: form[name] for name in names}
    told = f"{form['kind']}: {form['what']}" if form["what"] else form["kind"]
    return answer(told, line=line_of(form["line"]), **facts) | {"advice": form["next"]}
