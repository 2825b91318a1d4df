"""`kernelscope show --profile TRACE`: the calls of a run with their times in a profiler's trace."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from kernelscope.analysis.profiler_join import Profile, ProfiledCall, read_profile
from kernelscope.errors import RunError
from kernelscope.model.listing import heading
from kernelscope.store.stored_run import StoredRun

from . import plain, terminal


def show_profile(args: argparse.Namespace, run: StoredRun) -> int:
    profile = read_profile(Path(args.profile), run)
    calls = list(profile.calls)
    if args.call is not None:
        calls = [call for call in calls if call.index == args.call]
        if not calls:
            raise RunError(f"{args.profile} has no call {args.call}; the profiler was not at work then")
    if args.sort == "time":
        calls.sort(key=lambda call: -(call.device if profile.has_device else call.host))
    calls = [call for call in calls if call.index >= args.first]
    more = bool(args.limit) and len(calls) > args.limit
    calls = calls[: args.limit] if more else calls
    if args.json:
        plain.dump(
            {"run": plain.run_form(run, run.path), "calls": [_form(c) for c in calls], "more": more,
             "unclaimed": profile.unclaimed}
        )  # fmt: skip
        return 0
    print(heading(run, *run.totals()))
    print(_summary(profile, len(run)))
    head = ["call", "at", "host", "device", "line", "kernel"]
    for line in terminal.table(head, [_row(call, profile) for call in calls], right=range(4)):
        print(line)
    if args.call is not None:
        for name, seconds in calls[0].on_device:
            print(f"  ran on the device: {name} {terminal.seconds(seconds)}")
    if more:
        print("… more: --limit 0 for all, --sort time for the longest")
    return 0


def _summary(profile: Profile, total: int) -> str:
    seen = len({call.index for call in profile.calls})
    host = terminal.seconds(sum(call.host for call in profile.calls))
    told = f"{seen:,} of {total:,} calls are in {profile.path}: {host} on the host"
    if profile.has_device:
        told += f", {terminal.seconds(sum(call.device for call in profile.calls))} on the device"
    if profile.unclaimed:
        told += f"; {profile.unclaimed:,} kernels there belong to no call"
    return told


def _row(call: ProfiledCall, profile: Profile) -> tuple[str, ...]:
    began = min(each.start for each in profile.calls)
    device = terminal.seconds(call.device) if call.on_device else ""
    where = f"{os.path.basename(call.origin[0].file)}:{call.origin[0].line}" if call.origin else "?"
    return (
        str(call.index), terminal.seconds(call.start - began), terminal.seconds(call.host), device, where,
        call.kernel_name,
    )  # fmt: skip


def _form(call: ProfiledCall) -> dict[str, Any]:
    return {
        "index": call.index,
        "kernel_name": call.kernel_name,
        "origin": plain.frame_form(call.origin[0]) if call.origin else None,
        "thread": call.thread,
        "start": call.start,
        "host": call.host,
        "device": call.device if call.on_device else None,
        "on_device": [{"name": name, "time": seconds} for name, seconds in call.on_device],
    }
