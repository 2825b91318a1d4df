"""A compiler that is made up, with switches and a kernel that fails, for tests of the search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kernelscope.bisection.axis_order import Descent
from kernelscope.bisection.result import BisectResult
from kernelscope.trials.journal import BISECT, FILE, Journal
from kernelscope.trials.outcome import FAILED, PASSED, Outcome
from kernelscope.trials.runner import SoughtFailure, TrialRunner
from kernelscope.trials.settings import Settings, Switch

CONFIG = "torch._inductor.config."
CULPRIT = {"culprit": {"kernel_name": "k7", "wrapper": "file.py:7"}}


def kernel(i: int) -> Switch:
    info = {"kernel": f"k{i}", "kind": "cpp", "nodes": [f"n{i}", f"m{i}"]}
    return Switch("kernel", f"k{i} (0, line {i})", info=info)


def lowering(node: str) -> Switch:
    return Switch("lowering", f"{node} (graph 0)", info={"node": node, "target": f"aten.{node}"})


def fusion(i: int) -> Switch:
    return Switch("fusion", f"op{i} with op{i + 1} (graph 0)", info={"nodes": [f"n{i}", f"m{i}"]})


SWITCHES = [
    *(kernel(i) for i in range(20)),
    *(lowering(f"{letter}{i}") for i in range(20) for letter in "nm"),
    *(fusion(i) for i in range(19)),
    *(Switch("pass", f"post_grad_passes/p{i}") for i in range(6)),
    *(Switch("decomposition", f"aten.d{i}") for i in range(5)),
    Switch("config", CONFIG + "epilogue_fusion", False),
    Switch("config", CONFIG + "cpp.simdlen", 1),
    Switch("config", CONFIG + "triton.persistent_reductions", False),
    Switch("config", CONFIG + "inplace_buffers", False),
]  # fmt: skip


class Compiler:
    """Fails if `fails(off, backend)` says so, where `off` are names."""

    def __init__(
        self, fails: Callable[[set[str], str], bool | Outcome], switches: list[Switch] = SWITCHES
    ) -> None:
        self._fails, self._switches = fails, switches
        self.trials: list[Settings] = []

    def run(self, settings: Settings, *, discover: bool = False) -> Outcome:
        self.trials.append(settings)
        off = {name for switch in settings.off for name in (switch.name, switch.name.split(" ")[0])}
        if CONFIG + "disabled_passes" in off:
            (value,) = (s.value for s in settings.off)
            off |= {f"post_grad_passes/{name}" for name in value.split(",")}
        said = self._fails(off, settings.backend)
        if isinstance(said, Outcome):
            return said
        return Outcome(FAILED, "wrong", CULPRIT) if said else Outcome(PASSED)

    def found(self) -> list[Switch]:
        return self._switches


def bisected(
    fails: Callable[[set[str], str], bool | Outcome],
    *,
    check: str = "check",
    axes: tuple[str, ...] = (),
    folder: Path | None = None,
    runs: int = 3,
    message: str = "",
    switches: list[Switch] = SWITCHES,
) -> tuple[BisectResult, Compiler]:
    compiler = Compiler(fails, switches)
    journal = Journal(folder and folder / FILE, {**BISECT, "command": ["x"]})
    trials = TrialRunner(compiler, journal, SoughtFailure(check, message), confidence=0.99)
    return Descent(trials, check, axes).run(runs), compiler


def names(result: BisectResult, axis: str) -> list[str]:
    return [switch.name for switch in result.causes[axis].switches]
