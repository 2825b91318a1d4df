"""What `kernelscope show` prints: the calls of a run, one call, times, or a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.events import Finding
from kernelscope.model.call import KernelCall
from kernelscope.model.derived_findings import findings_in
from kernelscope.model.listing import call_lines
from kernelscope.store import folder
from kernelscope.store.flight.crash import is_running
from kernelscope.store.flight.ending import ending_of
from kernelscope.store.flight.reader import UNKNOWN, is_recording
from kernelscope.store.stored_run import StoredRun
from kernelscope.text.amounts import counted

from . import plain, terminal
from .call_filter import CallFilter
from .call_table import folded_lines
from .nothing_found import nothing_matches

_FEW = 1000  # calls whose hashes are all compared, whatever is shown
_MOST_FINDINGS = 50
_MOST_FINDINGS_FIRST = 5  # on a terminal, where they stand before the calls


def call_at(run: StoredRun, index: int) -> KernelCall:
    found = run.select(first=index, limit=1)
    if not found or found[0].index != index:
        raise RunError(f"{run.path} has no call {index}; it has {counted(len(run), 'call')}")
    return found[0]


def show_call(run: StoredRun, index: int, *, source: bool, as_json: bool) -> None:
    call = call_at(run, index)
    saved = run.saved_tensors(index)
    if as_json:
        _dump(run, [plain.call_form(call, saved)], more=False, findings=[])
        return
    for line in terminal.call_block(call, saved):
        print(line)
    if source:
        _print_sources([call])


def show_calls(run: StoredRun, wanted: CallFilter, *, source: bool, as_json: bool) -> None:
    calls, more = wanted.page(run)
    findings = _findings(run, calls)
    if as_json:
        forms = [plain.call_form(call, run.saved_tensors(call.index)) for call in calls]
        _dump(run, forms, more=more, findings=[_finding_form(f) for f in findings])
        return
    print(run.heading())
    if not calls:
        print(nothing_matches(run, wanted))
    if terminal.room():
        _print_findings(findings, _MOST_FINDINGS_FIRST)
        notable = {f.call for f in findings}
        lines = folded_lines(calls, notable, terminal.room(), cut=more)
    else:
        lines = call_lines(calls)
    for line in lines:
        print(line)
    if more:
        rest = f"--first {calls[-1].index + 1}"
        print(f"… more: {rest}, --limit 0 for all, or filter with --kernel, --step, --graph")
    if not run.is_closed:
        print(_unclosed(run))
    others = [p.name for p in folder.parts(run.path) if p != run.path]
    if others:
        print(f"other processes of this run (--part): {', '.join(others)}")
    if not terminal.room():
        _print_findings(findings, _MOST_FINDINGS)
    if run.has_hashes() and len(run) > max(len(calls), _FEW):
        print(f"\ncompared the hashes of {counted(len(calls), 'call')}; --limit 0 compares all {len(run):,}")
    if wanted.kernel:
        _print_nodes(calls)
    if source:
        _print_sources(calls)
    elif terminal.room() and calls:
        print("one call with its arguments and values: --call N; every call in full: --wide")


def _print_findings(findings: list[Finding], most: int) -> None:
    if findings:
        print(f"\n{counted(len(findings), 'finding')}:")
        for finding in findings[:most]:
            print(f"  {finding}")
        if len(findings) > most:
            print(f"  … {len(findings) - most:,} more (kernelscope show --json)")


def _dump(run: StoredRun, calls: list[Any], *, more: bool, findings: list[Any]) -> None:
    plain.dump({"run": plain.run_form(run, run.path), "calls": calls, "more": more, "findings": findings})


def _unclosed(run: StoredRun) -> str:
    if run.stopped:
        return f"the recording stopped before the program did: {run.stopped}"
    running = is_recording(run.path / folder.FLIGHT)
    if running:
        return "the run is still being recorded"
    try:
        count = run.calls_in_flight_alone()
        newer = f"; {counted(count, 'call')} from the flight recorder only, without values" if count else ""
    except RunError as error:
        newer = f", and {error}"
    doubt = f"; {UNKNOWN}" if running is None else ""
    return f"the recording was not closed{newer}: kernelscope show --crash{doubt}"


def _findings(run: StoredRun, calls: list[KernelCall]) -> list[Finding]:
    """What was noted, and what the hashes show: of all calls if they are few, otherwise of those shown."""
    noted = run.noted_findings()
    if not run.has_hashes():
        return noted
    return run.findings if len(run) <= _FEW else [*noted, *findings_in(calls)]


def _finding_form(finding: Finding) -> dict[str, Any]:
    call = finding.call if finding.call >= 0 else None
    return {"kind": finding.kind, "message": finding.message, "call": call}


def _print_nodes(calls: list[KernelCall]) -> None:
    """The FX nodes that each launch of the kernels computes, of a run with stages."""
    found = {(c.kernel_name, c.wrapper_line): c for c in calls}
    for (name, _), call in found.items():
        if call.computed:
            print(f"\n{name} computes")
            for line in terminal.table([], terminal.node_rows(call.computed), indent=2):
                print(f"  {line}")


def _print_sources(calls: list[KernelCall]) -> None:
    kernels = {call.site.kernel.id: call.site.kernel for call in calls}
    for kernel in kernels.values():
        print(f"\n# {kernel.name} [{kernel.kind}]")
        print(kernel.source.strip() or "# no source: this kernel is not generated code")


def show_times(run: StoredRun, limit: int, *, as_json: bool) -> None:
    times = run.times()
    if not times:
        raise RunError(f"{run.path} has no times; record them: kernelscope run --time …")
    total = sum(nanoseconds for _, _, nanoseconds, _ in times)
    if as_json:
        rows = [
            {
                "kernel_name": site.kernel.name, "kind": site.kernel.kind, "calls": calls,
                "time": taken / 1e9, "share": taken / total if total else 0, "bytes": moved,
                "origin": str(site.origin[0]) if site.origin else None,
            }
            for site, calls, taken, moved in times
        ]  # fmt: skip
        plain.dump({"run": plain.run_form(run, run.path), "sites": rows})
        return
    print(run.heading())
    head = ["total", "share", "calls", "each", "GB/s", "kind", "line", "kernel"]
    shown = list(terminal.time_rows(times))[: limit or None]
    for line in terminal.table(head, shown, right=range(5)):
        print(line)


def show_ending(path: Path, *, as_json: bool) -> None:
    """How the program ended, and what was executing."""
    ending = ending_of(path)
    if as_json:
        crash = None if ending.crash is None else ending.crash.as_json()
        about = {"path": str(path), "running": is_running(path)}
        plain.dump({"run": about, "crash": crash, "ended": ending.as_json()})
    elif ending.crash is not None:
        print(ending.text)
    else:
        print(f"{path}: {ending.text}")
