"""A bug report in Markdown, from a run and from what its scripts showed. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelscope.events import Finding
from kernelscope.model.call import KernelCall
from kernelscope.store.flight.crash import crash_in
from kernelscope.store.stored_run import StoredRun

from .composing import SHARED, rule

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


def findings_of(run: StoredRun) -> list[Finding]:
    """Also what the values show, unless that would take long."""
    return run.findings if len(run) <= _MOST_WALKED else run.noted_findings()


def report(run: StoredRun, call: KernelCall | None, shown: Sequence[Shown], notes: Sequence[str] = ()) -> str:
    parts = [
        f"# {_title(run, call, shown)}",
        *_verdict(run, call, shown),
        *notes,
        *[line for each in shown for line in _script(each)],
        *_expected(shown),
        *(_kernel(call) if call is not None else []),
        *_environment(run),
    ]
    return "\n\n".join(parts) + "\n"


def _title(run: StoredRun, call: KernelCall | None, shown: Sequence[Shown]) -> str:
    told = next((s.reduced["failure"] for s in shown if s.reduced.get("failure")), "")
    if told:
        return str(told).splitlines()[0][:120]
    if call is not None:
        failed = any(s.status == 1 for s in shown)
        how = "computes something else than it should" if failed else "in question"
        return f"{call.kernel_name} [{call.kind}] {how}"
    crash = crash_in(run.path)
    return crash.text().splitlines()[0] if crash is not None else f"A run of {len(run)} kernel calls"


def _verdict(run: StoredRun, call: KernelCall | None, shown: Sequence[Shown]) -> list[str]:
    lines = []
    crash = crash_in(run.path)
    if crash is not None:
        lines.append(f"The program died:\n\n{_fenced(crash.text())}")
    for each in shown:
        if each.reduced:
            before, after = each.reduced.get("nodes_before"), each.reduced.get("nodes")
            lines.append(f"{each.reduced.get('failure', '')}\n\nReduced from {before} FX nodes to {after}.")
    if call is not None and call.origin is not None:
        lines.append(f"The kernel computes `{call.origin}`.")
    if call is not None and call.error:
        lines.append(f"Its launch raised `{call.error}`.")
    findings = findings_of(run)
    if findings:
        told = [f"- {finding}" for finding in findings[:_MOST_FINDINGS]]
        more = len(findings) - len(told)
        told += [f"- … and {more} more"] if more else []
        lines.append("\n".join(["Noticed while it ran:", "", *told]))
    if not lines and not any(s.status == 1 for s in shown):
        lines.append("Nothing in this run tells what is wrong; say here what you expected.")
    return ["## What is wrong", *lines] if lines else []


def _fenced(text: str, language: str = "") -> str:
    """As a block of code, whatever is in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def _script(shown: Shown) -> list[str]:
    """What is special to the script in full; what all of them share is in the file."""
    own, _, rest = shown.text.partition(rule(SHARED))
    files = ", ".join(f"`{name}`" for name in shown.files)
    end = f"# … and the part that compares, in {shown.name}" if rest else ""
    return [f"## To reproduce\n\nRun `python {shown.name}` (attached: {files}). Its part that matters:",
            _fenced(f"{own.strip()}\n{end}", "python")]  # fmt: skip


def _expected(shown: Sequence[Shown]) -> list[str]:
    found = []
    for each in shown:
        if each.status is None:
            continue
        lines = each.printed.strip().splitlines()
        wrong = [line.removeprefix("FAIL ") for line in lines if line.startswith("FAIL ")]
        fine = [line.removeprefix("ok ").strip() for line in lines if line.startswith("ok ")]
        if wrong:
            found.append("## Expected\n\nWhat eager computes, and what was recorded, up to rounding.")
            found.append("## Actual\n\n" + "\n".join(f"- {line}" for line in wrong))
        if fine:
            found.append("As it should be:\n\n" + "\n".join(f"- {line}" for line in fine))
        if not wrong and not fine:
            said = _fenced(each.printed[-2000:].strip())
            found.append(f"## Actual\n\nThe script ended with status {each.status}:\n\n{said}")
    return found


def _kernel(call: KernelCall) -> list[str]:
    lines = [f"## The kernel\n\n`{call.kernel_name}` [{call.kind}], call {call.index}, {call.phase}."]
    provenance = call.provenance
    if provenance is not None and provenance.nodes:
        nodes = ", ".join(f"`{node.name}` ({node.target})" for node in provenance.nodes)
        lines.append(f"FX nodes: {nodes}.")
    if call.grid is not None:
        lines.append(f"Grid {call.grid}, config {call.config}.")
    rows = [
        f"| {arg.name} | {role} | {arg.tensor.short_dtype} | {_sizes(arg.tensor.shape, arg.tensor.stride)} |"
        for arg, role in zip(call.arguments, call.roles, strict=True)
        if arg.tensor is not None
    ]
    lines.append("\n".join(["| argument | role | dtype | shape | stride |", "|---|---|---|---|---|", *rows]))
    if call.source:
        language = "cpp" if call.kind in ("cpp", "gcu") else "python"
        source = call.source.strip()[:_MOST_SOURCE]
        lines.append(f"<details><summary>Source</summary>\n\n{_fenced(source, language)}\n\n</details>")
    return lines


def _sizes(shape: Sequence[int], stride: Sequence[int]) -> str:
    return f"{list(shape)} | {list(stride)}"


def _environment(run: StoredRun) -> list[str]:
    info = run.info
    rows = [f"| {name} | {version} |" for name, version in sorted(info.versions.items())]
    rows += [f"| GPU {i} | {device} |" for i, device in enumerate(info.devices)]
    if info.world_size > 1:
        rows.append(f"| rank | {info.rank} of {info.world_size} |")
    found = ["## Environment", "\n".join(["| | |", "|---|---|", *rows])]
    settings = [
        f"- `{module}.{name} = {value!r}`"
        for module, values in run.compiler_settings.items()
        if module != "environment"
        for name, value in values.items()
    ]
    if settings:
        found.append("Settings that differ from torch's own:\n\n" + "\n".join(settings))
    return found
