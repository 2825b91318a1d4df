"""What `kernelscope show` shows: the calls of a run, one call, a kernel's source, times, or a crash."""

from __future__ import annotations

import argparse
from typing import Any

from kernelscope.cli.arguments import part_of
from kernelscope.errors import RunError
from kernelscope.events import Finding
from kernelscope.model.call import KernelCall
from kernelscope.model.derived_findings import findings_in
from kernelscope.model.listing import call_lines, heading
from kernelscope.store import folder
from kernelscope.store.flight.crash import crash_in, is_running
from kernelscope.store.flight.reader import UNKNOWN, is_recording
from kernelscope.store.stored_run import StoredRun, load

from . import plain, terminal
from .show_profile import show_profile
from .show_value import show_value

_FEW = 1000  # calls whose hashes are all compared, whatever is shown


def show(args: argparse.Namespace) -> int:
    if args.crash:
        return _crash(args)
    run = load(folder.resolve(args.run), part=part_of(args))
    if args.value is not None or args.output is not None or args.before:
        return show_value(args, run)
    if args.profile is not None:
        return show_profile(args, run)
    if args.sort == "time":
        return _times(args, run)
    calls, more = _calls(args, run)
    if args.json:
        saved = run.saved_tensors
        plain.dump(
            {
                "run": plain.run_form(run, run.path),
                "calls": [plain.call_form(call, saved(call.index)) for call in calls],
                "more": more,
                "findings": [_finding_form(f) for f in _findings(run, calls)] if args.call is None else [],
            }
        )
        return 0
    if args.call is not None:
        for line in terminal.call_block(calls[0], run.saved_tensors(calls[0].index)):
            print(line)
    else:
        _list(args, run, calls, more)
        if args.kernel:
            _origins(calls)
    if args.source:
        _sources(calls)
    return 0


def _calls(args: argparse.Namespace, run: StoredRun) -> tuple[list[KernelCall], bool]:
    """The wanted calls, and whether there are more than the limit lets through."""
    if args.call is not None:
        found = run.select(first=args.call, limit=1)
        if not found or found[0].index != args.call:
            raise RunError(f"{run.path} has no call {args.call}; it has {len(run)} calls")
        return found, False
    graph = int(args.graph) if args.graph and args.graph.isdecimal() else args.graph
    wanted: dict[str, Any] = {
        "kernel": args.kernel or "*", "kind": args.kind, "graph": graph, "step": args.step,
        "phase": args.phase,
    }  # fmt: skip
    if not args.changed:
        found = run.select(**wanted, first=args.first, limit=args.limit + 1 if args.limit else 0)
    else:
        found = _changed(run, args.first, args.limit, wanted)
    more = bool(args.limit) and len(found) > args.limit
    return found[: args.limit] if more else found, more


def _changed(run: StoredRun, first: int, limit: int, wanted: dict[str, Any]) -> list[KernelCall]:
    """Calls that changed an argument, one more than the limit; a long run is read only as far as needed."""
    found: list[KernelCall] = []
    while True:
        page = run.select(**wanted, first=first, limit=_FEW)
        found += [call for call in page if call.changed_args]
        if len(page) < _FEW or (limit and len(found) > limit):
            return found
        first = page[-1].index + 1


def _list(args: argparse.Namespace, run: StoredRun, calls: list[KernelCall], more: bool) -> None:
    print(heading(run, *run.totals()))
    for line in call_lines(calls):
        print(line)
    if more:
        print(
            f"… more: --first {calls[-1].index + 1}, --limit 0 for all, or choose: --kernel, --step, --graph"
        )
    if not run.is_closed:
        print(_unclosed(run))
    others = [p.name for p in folder.parts(run.path) if p != run.path]
    if others:
        print(f"other processes of this run (--part): {', '.join(others)}")
    findings = _findings(run, calls)
    if findings:
        print(f"\n{len(findings)} finding{'s' if len(findings) > 1 else ''}:")
        for finding in findings[:50]:
            print(f"  {finding}")
    if run.has_hashes() and len(run) > max(len(calls), _FEW):
        print(f"\nthe hashes of {len(calls):,} calls were compared; --limit 0 does so for all {len(run):,}")


def _unclosed(run: StoredRun) -> str:
    if run.stopped:
        return f"the recording stopped before the program did: {run.stopped}"
    running = is_recording(run.path / folder.FLIGHT)
    if running:
        return "it is still being recorded"
    try:
        newer = f", and {run.unwritten():,} calls are in the flight recorder alone"
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


def _finding_form(finding: Any) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "message": finding.message,
        "call": finding.call if finding.call >= 0 else None,
    }


def _origins(calls: list[KernelCall]) -> None:
    """What each launch of the chosen kernels computes, of a run with stages."""
    found = {(c.kernel_name, c.wrapper_line): c.provenance for c in calls}
    for (name, _), launch in found.items():
        if launch is not None and launch.nodes:
            print(f"\n{name} computes")
            for line in terminal.table([], terminal.node_rows(launch)):
                print(f"  {line}")


def _sources(calls: list[KernelCall]) -> None:
    kernels = {call._call.site.kernel.id: call._call.site.kernel for call in calls}
    for kernel in kernels.values():
        print(f"\n# {kernel.name} [{kernel.kind}]")
        print(kernel.source.strip() or "# no source: it is not generated code")


def _times(args: argparse.Namespace, run: StoredRun) -> int:
    times = run.times()
    if not times:
        raise RunError(f"{run.path} has no times; record them: kernelscope run --time …")
    total = sum(nanoseconds for _, _, nanoseconds, _ in times)
    if args.json:
        rows = [
            {
                "kernel_name": site.kernel.name, "kind": site.kernel.kind, "calls": calls,
                "time": taken / 1e9, "share": taken / total if total else 0, "bytes": moved,
                "origin": str(site.origin[0]) if site.origin else None,
            }
            for site, calls, taken, moved in times
        ]  # fmt: skip
        plain.dump({"run": plain.run_form(run, run.path), "sites": rows})
        return 0
    print(heading(run, *run.totals()))
    head = ["total", "share", "calls", "each", "GB/s", "kind", "line", "kernel"]
    rows_shown = list(terminal.time_rows(times))
    for line in terminal.table(head, rows_shown[: args.limit or None], right=range(5)):
        print(line)
    return 0


def _crash(args: argparse.Namespace) -> int:
    path = folder.resolve(args.run)
    crash, running = crash_in(path), is_running(path)
    stopped = [
        run.stopped for part in folder.parts(path) if not (run := load(part)).is_closed and run.stopped
    ]
    if args.json:
        about = {"path": str(path), "running": running}
        plain.dump({"run": about, "crash": None if crash is None else crash.as_json()})
    elif crash is not None:
        print(crash.text())
    elif running:
        print(f"{path}: the program is still running")
    elif stopped:
        print(f"{path}: the recording stopped before the program did: {stopped[0]}")
    else:
        print(f"{path}: the program came to its end")
    return 0
