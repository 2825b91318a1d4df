"""What an audit found: the share of what ran that is inside recorded calls, and the rest by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kernelscope.text.amounts import counted, duration
from kernelscope.text.visible import one_line


@dataclass(frozen=True, slots=True)
class Outside:
    """Work that belongs to no recorded call."""

    name: str  # of the operator, or of the kernel on the device
    launcher: str  # the operator or library that launched it; of an operator, what it ran inside of
    launches: int
    seconds: float
    in_compiled_code: bool


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of one audit."""

    device: str  # cpu: operators and generated code; cuda: kernels, copies and fills on the device
    calls: int  # recorded while the profiler ran
    launches: int  # that belong to a call
    seconds: float  # theirs
    outside: tuple[Outside, ...]
    generated: int = 0  # launches that the text of the generated wrappers has, for each execution
    generated_seen: int = 0  # of them, those with a call
    compiling: int = 0  # operators and kernels that ran while something was compiled
    incomplete: str = ""  # why it does not cover the whole program
    copies: int = 0  # that torch made into the inputs of CUDA graphs before it replayed them

    @property
    def missing(self) -> int:
        """Launches of compiled code without a call."""
        inside = sum(each.launches for each in self.outside if each.in_compiled_code)
        return inside + self.generated - self.generated_seen

    @property
    def share_of_launches(self) -> float:
        rest = sum(each.launches for each in self.outside) + self.generated - self.generated_seen
        return _share(self.launches, rest)

    @property
    def share_of_time(self) -> float:
        return _share(self.seconds, sum(each.seconds for each in self.outside))

    @property
    def summary(self) -> str:
        what = "kernels, copies and fills on the GPU" if self.device == "cuda" else "launches"
        told = (
            f"{_percent(self.share_of_launches)} of the {what} and {_percent(self.share_of_time)} of their "
            f"time are inside recorded calls"
        )
        if self.generated:
            told += f"; {self.generated_seen:,} of {self.generated:,} launches in generated code have a call"
        return told

    def lines(self, limit: int = 20) -> list[str]:
        found = [self.summary]
        shown = self.outside[:limit]
        if shown:
            found.append("outside of recorded calls:")
        for each in shown:
            how = "launched by" if self.device == "cuda" else "inside"
            where = f", {how} {one_line(each.launcher)}" if each.launcher else ""
            where += ", in compiled code" if each.in_compiled_code else ""
            found.append(f"  {each.launches:>6,}  {duration(each.seconds):>9}  {one_line(each.name)}{where}")
        if len(self.outside) > limit:
            found.append(f"  and {counted(len(self.outside) - limit, 'other name')}")
        if self.compiling:
            found.append(
                f"not counted: {counted(self.compiling, 'operator')} that ran while code was compiled"
            )
        if self.copies:
            found.append(
                f"not counted: {self.copies:,} copies into the inputs of CUDA graphs, before their replays"
            )
        if self.incomplete:
            found.append(f"incomplete: {one_line(self.incomplete)}")
        return found

    def as_json(self) -> dict[str, Any]:
        shares = {"share_of_launches": self.share_of_launches, "share_of_time": self.share_of_time}
        return asdict(self) | shares | {"missing": self.missing}

    @staticmethod
    def from_json(given: Mapping[str, Any]) -> Audit:
        outside = tuple(
            Outside(
                str(each["name"]), str(each["launcher"]), int(each["launches"]), float(each["seconds"]),
                bool(each["in_compiled_code"]),
            )
            for each in given["outside"]
        )  # fmt: skip
        return Audit(
            str(given["device"]), int(given["calls"]), int(given["launches"]), float(given["seconds"]),
            outside, int(given["generated"]), int(given["generated_seen"]), int(given["compiling"]),
            str(given["incomplete"]), int(given.get("copies", 0)),
        )  # fmt: skip


def _share(inside: float, outside: float) -> float:
    return inside / (inside + outside) if inside + outside else 1.0


def _percent(share: float) -> str:
    """Never 100 % for less."""
    return "100 %" if share == 1 else f"{min(share * 100, 99.9):.1f} %"
