"""`kernelscope show --profile TRACE`: the calls of a run with their times in a profiler's trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernelscope.analysis.profiler_join import Profile, ProfiledCall, read_profile
from kernelscope.errors import RunError
from kernelscope.store.stored_run import StoredRun
from kernelscope.text.amounts import duration
from kernelscope.text.frames import frame_form, innermost

from . import plain, terminal


def show_profile(
    run: StoredRun, path: Path, *, call: int | None, by_time: bool, first: int, limit: int, as_json: bool
) -> None:
    profile = read_profile(path, run)
    calls = [each for each in profile.calls if call in (None, each.index)]
    if not calls:
        raise RunError(f"{path} has no call {call}: the profiler was not running then")
    if by_time:
        calls.sort(key=lambda each: -(each.device if profile.has_device else each.host))
    calls = [each for each in calls if each.index >= first]
    more = bool(limit) and len(calls) > limit
    calls = calls[:limit] if more else calls
    if as_json:
        plain.dump(
            {"run": plain.run_form(run, run.path), "calls": [_form(c) for c in calls], "more": more,
             "unclaimed": profile.unclaimed}
        )  # fmt: skip
        return
    print(run.heading())
    print(_summary(profile, len(run)))
    head = ["call", "at", "host", "device", "line", "kernel"]
    for line in terminal.table(head, [_row(each, profile) for each in calls], right=range(4)):
        print(line)
    if call is not None:
        for name, seconds in calls[0].on_device:
            print(f"  ran on the device: {name} {duration(seconds)}")
    if more:
        print("… more: --limit 0 for all, --sort time for the longest")


def _summary(profile: Profile, total: int) -> str:
    seen = len({call.index for call in profile.calls})
    host = duration(sum(call.host for call in profile.calls))
    told = f"{seen:,} of {total:,} calls are in {profile.path}: {host} on the host"
    if profile.has_device:
        told += f", {duration(sum(call.device for call in profile.calls))} on the device"
    if profile.unclaimed:
        told += f"; {profile.unclaimed:,} device kernels were not launched by a recorded call"
    return told


def _row(call: ProfiledCall, profile: Profile) -> tuple[str, ...]:
    began = min(each.start for each in profile.calls)
    device = duration(call.device) if call.on_device else ""
    where = innermost(call.origin)
    return (
        str(call.index), duration(call.start - began), duration(call.host), device, where,
        call.kernel_name,
    )  # fmt: skip


def _form(call: ProfiledCall) -> dict[str, Any]:
    return {
        "index": call.index,
        "kernel_name": call.kernel_name,
        "origin": frame_form(call.origin[0] if call.origin else None),
        "thread": call.thread,
        "start": call.start,
        "host": call.host,
        "device": call.device if call.on_device else None,
        "on_device": [{"name": name, "time": seconds} for name, seconds in call.on_device],
    }
