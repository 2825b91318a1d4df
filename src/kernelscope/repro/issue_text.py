"""A bug report in Markdown, from a run and from the output of its scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelscope.events import Finding
from kernelscope.model.call import KernelCall
from kernelscope.store.flight.crash import crash_in
from kernelscope.store.flight.ending import ending_of
from kernelscope.store.stored_run import StoredRun
from kernelscope.text.amounts import counted
from kernelscope.text.markdown import fenced, in_line, row

from .script_parts import SHARED, rule

_MOST_FINDINGS = 20
_MOST_WALKED = 100_000  # calls
_MOST_SOURCE = 20_000  # characters of a kernel


@dataclass(slots=True)
class Shown:
    """A script, and what running it printed."""

    name: str
    text: str
    printed: str = ""
    status: int | None = None
    files: Sequence[str] = ()
    reduced: dict[str, Any] = field(default_factory=dict)  # of a reduced one: result.json

    @property
    def did_not_reproduce(self) -> bool:
        """A reduced script that was run, and passed or was inconclusive."""
        return bool(self.reduced) and self.status in (0, 2)


def findings_of(run: StoredRun) -> list[Finding]:
    """With those that follow from values, unless that would take long."""
    return run.findings if len(run) <= _MOST_WALKED else run.noted_findings()


def report(
    run: StoredRun,
    call: KernelCall | None,
    shown: Sequence[Shown],
    notes: Sequence[str] = (),
    facts: Sequence[str] = (),
) -> str:
    parts = [
        f"# {in_line(facts[0]) if facts else _title(run, call, shown)}",
        *_verdict(run, call, shown, facts),
        *notes,
        *[line for each in shown for line in _script(each)],
        *_expected(shown),
        *(_kernel(call) if call is not None else []),
        *_environment(run),
    ]
    return "\n\n".join(parts) + "\n"


def _title(run: StoredRun, call: KernelCall | None, shown: Sequence[Shown]) -> str:
    failure = next((s.reduced["failure"] for s in shown if s.reduced.get("failure")), "")
    if failure:
        return in_line(str(failure).splitlines()[0][:120])
    if call is not None:
        failed = any(s.status == 1 for s in shown)
        what = "computes a wrong result" if failed else "is suspicious"
        return f"{in_line(call.kernel_name)} ({in_line(call.kind)}) {what}"
    crash = crash_in(run.path)
    if crash is not None:
        return in_line(crash.text().splitlines()[0])
    return f"A run of {counted(len(run), 'kernel call')}"


def _verdict(
    run: StoredRun, call: KernelCall | None, shown: Sequence[Shown], facts: Sequence[str]
) -> list[str]:
    lines = [fenced("\n".join(facts))] if facts else []
    crash = crash_in(run.path)
    if crash is not None:
        lines.append(f"The program crashed:\n\n{fenced(crash.text())}")
    elif (ending := ending_of(run.path)).kind in ("exception", "status", "stopped"):
        lines.append(f"How the program ended:\n\n{fenced(ending.text)}")
    for each in shown:
        if each.reduced:
            before, after = each.reduced.get("nodes_before"), each.reduced.get("nodes")
            failure = fenced(str(each.reduced.get("failure", "")))
            lines.append(f"{failure}\n\nReduced from {_number(before)} FX nodes to {_number(after)}.")
    if call is not None and call.origin is not None:
        lines.append(f"The kernel computes {in_line(call.origin)}.")
    if call is not None and call.error:
        lines.append(f"Its launch raised {in_line(call.error)}.")
    findings = findings_of(run)
    if findings:
        listed = [f"- {in_line(finding)}" for finding in findings[:_MOST_FINDINGS]]
        more = len(findings) - len(listed)
        listed += [f"- … and {more} more"] if more else []
        lines.append("\n".join(["Findings of the recording:", "", *listed]))
    if not lines and not any(s.status == 1 for s in shown):
        lines.append("The run shows nothing wrong; describe here what you expected.")
    return ["## What is wrong", *lines] if lines else []


def _number(given: object) -> str:
    return str(given) if isinstance(given, int) else "?"


def _script(shown: Shown) -> list[str]:
    """The script's own part in full; the part that all scripts share is in the file."""
    own, _, rest = shown.text.partition(rule(SHARED))
    files = ", ".join(in_line(name) for name in shown.files)
    end = f"# … the rest, which compares the results, is in {shown.name}" if rest else ""
    title = "The reduced graph, which did not fail alone" if shown.did_not_reproduce else "To reproduce"
    return [f"## {title}\n\nRun `python {shown.name}` (attached: {files}). Its specific part:",
            fenced(f"{own.strip()}\n{end}", "python")]  # fmt: skip


def _expected(shown: Sequence[Shown]) -> list[str]:
    found = []
    for each in shown:
        if each.status is None:
            continue
        lines = each.printed.strip().splitlines()
        wrong = [line.removeprefix("FAIL ") for line in lines if line.startswith("FAIL ")]
        fine = [line.removeprefix("ok ").strip() for line in lines if line.startswith("ok ")]
        if wrong:
            found.append("## Expected\n\nThe results of eager and of the recording, up to rounding.")
            found.append("## Actual\n\n" + "\n".join(f"- {in_line(line)}" for line in wrong))
        if fine:
            found.append("Correct:\n\n" + "\n".join(f"- {in_line(line)}" for line in fine))
        if not wrong and not fine:
            printed = fenced(each.printed[-2000:].strip())
            found.append(f"## Actual\n\nThe script exited with status {each.status}:\n\n{printed}")
    return found


def _kernel(call: KernelCall) -> list[str]:
    name, kind = in_line(call.kernel_name), in_line(call.kind)
    lines = [f"## The kernel\n\n{name} ({kind}), call {call.index}, {in_line(call.phase)}."]
    provenance = call.provenance
    if provenance is not None and provenance.nodes:
        nodes = ", ".join(f"{in_line(node.name)} ({in_line(node.target)})" for node in provenance.nodes)
        lines.append(f"FX nodes: {nodes}.")
    if call.grid is not None:
        lines.append(f"Grid {in_line(call.grid)}, config {in_line(call.config)}.")
    rows = [
        row(arg.name, role, t.short_dtype, list(t.shape), list(t.stride))
        for arg, role in zip(call.arguments, call.roles, strict=True)
        if (t := arg.tensor) is not None
    ]
    lines.append("\n".join(["| argument | role | dtype | shape | stride |", "|---|---|---|---|---|", *rows]))
    if call.source:
        language = "cpp" if call.kind in ("cpp", "gcu") else "python"
        source = call.source.strip()[:_MOST_SOURCE]
        lines.append(f"<details><summary>Source</summary>\n\n{fenced(source, language)}\n\n</details>")
    return lines


def _environment(run: StoredRun) -> list[str]:
    info = run.info
    rows = [row(name, version) for name, version in sorted(info.versions.items())]
    rows += [row(f"GPU {i}", device) for i, device in enumerate(info.devices)]
    if info.world_size > 1:
        rows.append(f"| rank | {info.rank} of {info.world_size} |")
    found = ["## Environment", "\n".join(["| | |", "|---|---|", *rows])]
    settings = [
        f"- {in_line(f'{module}.{name} = {value!r}')}"
        for module, values in run.compiler_settings.items()
        if module != "environment"
        for name, value in values.items()
    ]
    if settings:
        found.append("Settings that differ from torch's defaults:\n\n" + "\n".join(settings))
    return found
