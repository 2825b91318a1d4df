"""What a command printed as JSON, as a short answer: one sentence, the facts, and what to call next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelscope.text.amounts import counted
from kernelscope.text.visible import one_line, visible_form

Form = Mapping[str, Any]
_LONGEST_TEXT = 2000
_MOST_ITEMS = 30


def answer(sentence: str, *next: Form, **facts: Any) -> dict[str, Any]:
    """Facts that are empty are left out, long ones are cut, and what a terminal obeys is shown.

    A client may print them as they are.
    """
    kept = {name: short(value) for name, value in facts.items() if value not in (None, "", [], {}, ())}
    told = {"answer": one_line(short(sentence)), **kept, "next": [dict(each) for each in next]}
    return {name: visible_form(each) for name, each in told.items()}


def call(tool: str, why: str, **arguments: Any) -> Form:
    """A call that would tell more, ready to be made."""
    given = {name: value for name, value in arguments.items() if value not in (None, "", [])}
    return {"tool": tool, "arguments": given, "why": why}


def short(value: Any) -> Any:
    """The same with long texts and lists cut; what was cut is marked."""
    if isinstance(value, str):
        left_out = len(value) - _LONGEST_TEXT
        return value if left_out <= 0 else f"{value[:_LONGEST_TEXT]} … {left_out} more characters"
    if isinstance(value, Mapping):
        return {str(name): short(each) for name, each in value.items()}
    if isinstance(value, Sequence):
        kept = [short(each) for each in value[:_MOST_ITEMS]]
        return kept if len(value) <= _MOST_ITEMS else [*kept, f"… {len(value) - _MOST_ITEMS} more"]
    return value


def line_of(origin: Any) -> str:
    """file:line in function; the innermost of several."""
    frame = origin[0] if isinstance(origin, list) and origin else origin
    return f"{frame['file']}:{frame['line']} in {frame['function']}" if isinstance(frame, Mapping) else ""


def call_line(form: Form) -> dict[str, Any]:
    """One call in a list."""
    written = [arg["name"] for arg in form["args"] if arg["role"] in ("out", "inout")]
    facts = {
        "call": form["index"], "kernel": form["kernel_name"], "kind": form["kind"], "step": form["step"],
        "phase": form["phase"], "line": line_of(form["origin"]), "writes": written, "seconds": form["time"],
        "error": form["error"],
    }  # fmt: skip
    return {name: value for name, value in facts.items() if value not in (None, "", [])}


def calls_answer(run: str, form: Form, script: Form) -> dict[str, Any]:
    """What `show` lists."""
    calls, findings = form["calls"], form["findings"]
    more = " (there are more: give first, or a filter)" if form["more"] else ""
    first = next((finding for finding in findings if finding.get("call") is not None), None)
    steps = [call("show", "the call of the first finding", run=run, call=first["call"])] if first else []
    if calls and not steps:
        steps = [call("show", "one call with its arguments", run=run, call=calls[0]["index"])]
    steps.append(call("show", "how the program ended", run=run, crash=True))
    if script:
        steps.append(call("shadow", "which kernel differs from eager", **script))
    sentence = f"{counted(len(calls), 'call')} of run {run}{more}; {counted(len(findings), 'finding')}"
    return answer(sentence, *steps, calls=[call_line(each) for each in calls], findings=findings)


def call_answer(run: str, form: Form, script: Form) -> dict[str, Any]:
    """What `show --call` tells of one call."""
    [found] = form["calls"]
    name, findings = found["kernel_name"], form["findings"]
    nodes = [node["target"] for node in (found["provenance"] or {}).get("nodes", ())]
    steps = [call("stages", "its source, graph nodes and lines", run=run, kernel=name)]
    if script:
        steps.append(call("shadow", "whether its result differs from eager", **script))
    return answer(
        f"call {found['index']} of run {run} launches {name}", *steps, **call_line(found), computes=nodes,
        arguments=[_argument(arg) for arg in found["args"]], findings=findings, source=found.get("source"),
    )  # fmt: skip


def _argument(arg: Form) -> dict[str, Any]:
    if "value" in arg:
        return {"name": arg["name"], "value": arg["value"]}
    facts = {"name": arg["name"], "role": arg["role"], "shape": arg["shape"], "dtype": arg["dtype"]}
    stats = arg.get("stats_after") or arg.get("stats_before")
    return facts | {"before": arg["before"], "after": arg["after"]} | ({"statistics": stats} if stats else {})


def ending_answer(run: str, form: Form, script: Form) -> dict[str, Any]:
    """What `show --crash` tells."""
    ended, crash = form["ended"], form["crash"] or {}
    steps = [call("show", "the calls before it", run=run)]
    if (at := ended["call"]) is not None:
        steps.insert(0, call("show", "the call at which it ended, with its arguments", run=run, call=at))
    if ended["kind"] in ("crash", "exception", "status") and script:
        steps.insert(0, call("bisect", "which part of the compiler it is", fails_on="exception", **script))
    return answer(
        f"run {run}: {ended['how'] or ended['kind']}", *steps, kind=ended["kind"], status=ended["status"],
        exception=ended["exception"], call=at, executing=crash.get("executing"),
        completed_through=crash.get("completed_through"),
    )  # fmt: skip


def graphs_answer(run: str, form: Form) -> dict[str, Any]:
    """What `stages` lists."""
    graphs = [
        {
            "graph": each["name"], "function": line_of(each["function"]), "seconds": each["seconds"],
            "stages": [stage["name"] for stage in each["stages"]],
            "kernels": [kernel["name"] for kernel in each["kernels"]],
        }
        for each in form["graphs"]
    ]  # fmt: skip
    troubles = {name: form[name] for name in ("graph_breaks", "recompiles", "failures")}
    counts = ", ".join(counted(len(found), name.replace("_", " ")[:-1]) for name, found in troubles.items())
    steps = [
        call("stages", "one stage as text", run=run, graph=each["graph"], stage=each["stages"][-1])
        for each in graphs[:1]
        if each["stages"]
    ]
    sentence = f"{counted(len(graphs), 'graph')} in run {run}; {counts}"
    return answer(sentence, *steps, graphs=graphs, **troubles)


def kernels_answer(run: str, form: Form) -> dict[str, Any]:
    """What `stages --kernel` tells."""
    kernels = [
        {
            "kernel": each["name"], "graph": each["graph"], "lines": each["lines"], "source": each["source"],
            "computes": [n["target"] for launch in each["launches"] for n in launch["nodes"]],
        }
        for each in form["kernels"][:3]
    ]  # fmt: skip
    name = kernels[0]["kernel"] if kernels else ""
    steps = [call("show", "its calls", run=run, kernel=name)] if name else []
    return answer(f"{counted(len(form['kernels']), 'kernel')} in run {run}", *steps, kernels=kernels)
