"""Runs a share of the calls again on the spot, on the same inputs: another result is the device's fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelscope.events import Call, Finding
from kernelscope.probes.launch import Launch

from .run_again import Memory, RunAgain, hashes, written_by

_GOLDEN = 0x9E3779B97F4A7C15


class Rechecker(RunAgain):
    """Re-runs a share of the calls, once or twice.

    Collectives are not run again, and neither is the user's own code: that may do more than it declares.
    """

    def __init__(self, share: float, seed: int, report: Callable[[Finding], None]) -> None:
        super().__init__()
        self._limit = int(share * (1 << 64))
        self._seed, self._report = seed, report
        self.calls = 0
        self.left_out: dict[str, int] = {}  # why, and how many calls

    def wants(self, call: Call, launch: Launch) -> bool:
        if ((call.index + 1) * _GOLDEN + self._seed * 0x632BE59BD9B4E019) % (1 << 64) >= self._limit:
            return False
        if why := _why_not(launch):
            self._leave_out(why)
        return not why

    def failed(self, call: Call, launch: Launch, error: Exception) -> None:
        self._leave_out(f"running it again raised {type(error).__name__}")

    def _leave_out(self, why: str) -> None:
        self.left_out[why] = self.left_out.get(why, 0) + 1

    def check(self, call: Call, launch: Launch, found: Memory) -> None:
        first = hashes(written_by(launch, launch.result))
        if not first:
            return
        self.calls += 1
        second = self._again(launch, found)
        other = [i for i in first if second.get(i) != first[i]]
        if not other:
            return
        third = self._again(launch, found)
        name, argument = launch.site.kernel.name, launch.site.args[other[0]].name
        if third != second:
            what = f"{name} gives varying results when it is run again: see kernelscope determinism"
            self._report(Finding("varies", what, call.index, name, argument))
            return
        what = (
            f"{name} was run again twice on the same inputs, and both times {argument} differed from the "
            "first result: this device computed a wrong value once"
        )
        self._report(Finding("recheck", what, call.index, name, argument))

    def _again(self, launch: Launch, found: Memory) -> dict[int, int]:
        found.put_back()
        return hashes(written_by(launch, launch.func(*launch.args, **launch.kwargs)))

    def summary(self) -> dict[str, Any]:
        return {"calls": self.calls, "left_out": self.left_out}


def _why_not(launch: Launch) -> str:
    point = launch.point
    if launch.site.collective or point.is_over is not None or point.is_pending:
        return "it communicates"
    if point.is_opaque or "c10d" in launch.site.kernel.name:
        return "it is a custom operator"
    return "it was reported only after it had ended" if point.is_past else ""
