"""The order in which a bisection searches the axes: cheap and informative ones first.

Replacing kernels needs no compilation and splits the compiler in two. If the program passes with every kernel
replaced by its eager nodes, the graph was right, and only the parts of these kernels have to be searched. If
it still fails, something earlier is wrong: a pass, a decomposition, the backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelscope.compiler_control.cautious_settings import CAUTIOUS, INDUCTOR, PASSES
from kernelscope.errors import RunError
from kernelscope.text.amounts import counted
from kernelscope.trials.outcome import PASSED, Outcome
from kernelscope.trials.runner import TrialRunner
from kernelscope.trials.settings import AXES, EVERY_KERNEL, Settings, Switch

from .needed_switches import On, Search, drive, find_causes, upcoming
from .result import BisectResult, Cause, workaround_of

_OF_GRAPH = ("pass", "decomposition")  # what changes the graph before it is lowered
_BACKENDS = ("aot_eager_decomp_partition", "aot_eager")
_BEFORE_SWITCHES = ("functionalization", "tracing")  # steps of AOTAutograd
_OWN = "of the program"  # a backend that is not Inductor
_OF_INDUCTOR = ("pass", "lowering", "fusion", "kernel")  # a program that has any of these uses it
_STEPS = {  # by backend that fails where the one before it passes
    "eager": "Dynamo: the graph that it traced does not compute what the function does",
    "aot_eager": "AOTAutograd: functionalization, tracing to ATen, or its runtime wrappers",
    "aot_eager_decomp_partition": "decomposition or partitioning",
    "inductor": "Inductor",
    _OWN: "the program's own backend, which is not Inductor",
}


class Descent:
    """One bisection."""

    def __init__(
        self, trials: TrialRunner, check: str, axes: Sequence[str] = (), *, workaround: bool = True
    ) -> None:
        unknown = [axis for axis in axes if axis not in AXES]
        if unknown:
            raise RunError(f"there is no axis {unknown[0]!r}; use {', '.join(AXES)}")
        self._trials, self._check = trials, check
        self._axes = tuple(axes) or AXES
        self._is_quick = not axes  # stop at the finest axis that explains it
        self._wants_workaround = workaround
        self._ahead: dict[str, int] = {}  # by axis that is still to be searched: trials at most
        self._without_kernels: frozenset[Switch] = frozenset()  # off while the graph itself is searched
        self._is_of_function = False  # wrong in a way that any backend shows
        self.result = BisectResult()

    @property
    def trials_ahead(self) -> int:
        return sum(self._ahead.values())

    def run(self, runs: int) -> BisectResult:
        first = self._trials.baseline(runs)
        if self._says_nothing_to_find(first):
            return self._finished()
        self.result.failure = first.what
        if self._trials.failed < self._trials.runs:
            self.result.notes.append(
                f"the program is not deterministic: it failed in {self._trials.failed} of "
                f"{self._trials.runs} runs; each trial had to pass {counted(self._trials.repeats, 'time')}"
            )
        self._is_of_function = self._needs_a_backend(first)
        self._look_for_kernels(first)  # first: nothing has to be compiled again for it
        if "kernel" in self.result.causes:
            self._look_behind_kernels()
        elif self._check != "shadow" and self._fails_in_eager():
            return self._finished()
        else:
            self._look_before_kernels()
        if self._wants_workaround:
            self._find_workaround()
        return self._finished()

    def _needs_a_backend(self, first: Outcome) -> bool:
        """What shadow named is wrong before anything that a switch turns off."""
        culprit = first.details.get("culprit") or {}
        if culprit.get("verdict") == "wrong-stage" and culprit.get("buffer") == "decomposition":
            return culprit.get("kernel_name") not in {switch.name for switch in self._of("decomposition")}
        return culprit.get("verdict") == "wrong-function" or culprit.get("buffer") in _BEFORE_SWITCHES

    def _finished(self) -> BisectResult:
        result, trials = self.result, self._trials
        result.sought_workaround = self._wants_workaround
        result.trials, result.resumed, result.seconds = trials.count, trials.resumed, trials.seconds
        result.failed, result.runs = trials.failed, trials.runs
        result.repeats, result.confidence = trials.repeats, trials.confidence
        return result

    def _says_nothing_to_find(self, first: Outcome) -> bool:
        if self._trials.failed:
            return False
        times = counted(self._trials.runs, "baseline run")
        if first.kind == PASSED:
            why = first.details.get("problem") or "there is nothing to bisect"
            self.result.problem = f"The program did not fail in {times}: {why}."
        elif self._check == "exception":
            self.result.problem = f"The program failed differently in {times}: {first.first_line}."
        else:
            self.result.raised = first.first_line
            self.result.problem = (
                f"The program does not finish ({first.first_line}), so the check cannot run; "
                "use --fails-on exception to find the cause of that."
            )
        return True

    def _fails_in_eager(self) -> bool:
        outcome = self._trials.outcome(Settings(backend="eager"), "backend eager")
        if outcome.kind == PASSED:
            return False
        if self._trials.fails(Settings(backend="eager"), ""):
            self.result.innocent.clear()
            self.result.problem = (
                "The program fails with backend='eager' too, where nothing is compiled: the compiler is not "
                "the cause, or the check always fails."
            )
            return True
        self.result.notes.append(f"with backend='eager' the program fails differently: {outcome}")
        return False

    def _look_for_kernels(self, first: Outcome) -> None:
        kernels = self._of("kernel")
        if self._explain("kernel", kernels, guess=_named(first, kernels)) or not kernels:
            return
        replaced = Settings(frozenset(kernels))
        if self._trials.is_known(replaced) and self._trials.fails(replaced, ""):
            # The graph itself is wrong, so passes can be tried without building kernels.
            self._without_kernels = frozenset([EVERY_KERNEL])
            self._trials.know(Settings(self._without_kernels), as_of=replaced)

    def _look_behind_kernels(self) -> None:
        """The graph is right: search the parts of the kernels."""
        info = [switch.info for switch in self.result.causes["kernel"].switches]
        nodes = {node for each in info for node in each.get("nodes", ())}
        executions, configs = self._of("execution"), self._configs({str(each.get("kind")) for each in info})
        lowerings = [s for s in self._of("lowering") if s.info.get("node") in nodes]
        fusions = [s for s in self._of("fusion") if nodes & set(s.info.get("nodes", ()))]
        plan = [
            ("execution", executions if len(executions) > 1 else []),
            ("config", configs),
            ("autotune", self._of("autotune")),
            ("lowering", lowerings),
            ("fusion", fusions),
        ]
        if self._is_quick:
            del plan[3 if self._wants_workaround else 1 :]
        # If it fails with the other operators in eager too, only this kernel has to be compiled.
        self._follow(plan, stop=(), rest=[s for s in self._of("lowering") if s not in lowerings])
        if self._is_quick and self._wants_workaround and "config" not in self.result.causes:
            self._try_without_lowering(lowerings)

    def _look_before_kernels(self) -> None:
        """Search what the graph goes through, in that order, until something explains the failure."""
        if (self._check != "shadow" or self._is_of_function) and "backend" in self._axes:
            self._find_backend()
        backend = self.result.causes.get("backend")
        is_early = backend is not None and backend.switches[0].name != "inductor"
        if backend is not None and self._is_quick and backend.switches[0].name in ("eager", "aot_eager"):
            return  # before any decomposition or pass
        kinds = {str(switch.info.get("kind")) for switch in self._of("kernel")}
        if is_early and self._is_quick:  # Inductor's passes and settings come later
            self._follow([("decomposition", self._of("decomposition"))], stop=())
            return
        early = ("pass", "decomposition")
        later = () if is_early else ("lowering", "fusion", "autotune")
        plan = [(axis, self._of(axis)) for axis in (*early, *later)]
        stop = ("pass", "lowering", "fusion", "autotune") if self._is_quick else ()
        configs = self._configs(kinds)
        self._follow([*plan, ("config", configs)], stop)
        if self._wants_workaround and set(self.result.causes) & {"lowering", "fusion", "autotune"} and stop:
            # A setting that the program changed takes few trials, and is the best workaround.
            self._follow([("config", [s for s in configs if s.name not in CAUTIOUS])], stop=())
        if self._check == "shadow" and "backend" in self._axes and not self.result.causes:
            self._find_backend()  # last: a pass or an operator says more

    def _follow(
        self, plan: Sequence[tuple[str, list[Switch]]], stop: Sequence[str], rest: Sequence[Switch] = ()
    ) -> None:
        """Search one axis after the other, until one of `stop` explains it; configs with `rest` off."""
        chosen = [(axis, switches) for axis, switches in plan if axis in self._axes and switches]
        self._ahead = {axis: (len(switches) - 1).bit_length() + 2 for axis, switches in chosen}
        for axis, switches in chosen:
            del self._ahead[axis]
            changed = [i for i, s in enumerate(switches) if axis == "config" and s.name not in CAUTIOUS]
            base = self._harmless(rest) if axis == "config" else frozenset[Switch]()
            base |= self._without_kernels if axis in _OF_GRAPH else frozenset()
            if self._explain(axis, switches, guess=changed, base=base) and axis in stop:
                break
        self._ahead = {}

    def _harmless(self, switches: Sequence[Switch]) -> frozenset[Switch]:
        """These switches, if the program still fails with them off."""
        off = frozenset(switches)
        fails = off and self._trials.fails(Settings(off), "the rest of the graph in eager")
        return off if fails else frozenset()

    def _try_without_lowering(self, lowerings: list[Switch]) -> None:
        """Operators in eager need no compilation, so this is quick."""
        if lowerings and "lowering" in self._axes:
            outcome = self._trials.outcome(Settings(frozenset(lowerings)), "lowering: the kernel's operators")
            if outcome.kind == PASSED:
                self.result.workaround = workaround_of(Cause("lowering", tuple(lowerings)))

    def _find_backend(self) -> None:
        """The first backend, starting with eager, with which it fails."""
        is_judged = self._check == "shadow"  # as a whole, with any backend
        failing = "inductor" if any(map(self._of, _OF_INDUCTOR)) else _OWN
        passing = "" if is_judged else "eager"
        for backend in (*_BACKENDS, "eager") if is_judged else _BACKENDS:
            if not self._trials.fails(Settings(backend=backend), f"backend {backend}"):
                passing = backend
                break
            failing = backend
        switch = Switch("backend", failing, passing, info=self._step_in(failing))
        self.result.causes["backend"] = Cause("backend", (switch,), len(_BACKENDS) + 2)

    def _step_in(self, backend: str) -> dict[str, Any]:
        """As shadow names it where this backend fails, with the user's line; else all that it may be."""
        settings = Settings() if backend in ("inductor", _OWN) else Settings(backend=backend)
        culprit = self._trials.outcome(settings, f"backend {backend}").details.get("culprit") or {}
        step = str(culprit.get("step", ""))
        if _STEPS[backend].startswith(step):
            step = _STEPS[backend]
        origin = culprit.get("origin") or [{}]
        lines = [f"{f['file']}:{f['line']} in {f['function']}" for f in origin[:1] if f]
        return {"step": step} | ({"origin": lines[0]} if lines else {})

    def _of(self, axis: str) -> list[Switch]:
        return [switch for switch in self._trials.switches if switch.axis == axis]

    def _configs(self, kinds: set[str]) -> list[Switch]:
        """Without those of a language that none of the kernels is written in."""
        others = [name for name in ("cpp", "triton") if kinds and name not in kinds]
        prefixes = tuple(f"{INDUCTOR}.{name}." for name in others)
        return [switch for switch in self._of("config") if not switch.name.startswith(prefixes)]

    def _explain(
        self,
        axis: str,
        switches: list[Switch],
        guess: Sequence[int] = (),
        base: frozenset[Switch] = frozenset(),
    ) -> bool:
        """Whether it passes with these off, and which of them matter; `base` is off in every trial."""
        if axis not in self._axes or not switches:
            return False
        others: set[str] = set()

        def settings(on: On) -> Settings:
            return Settings(base | {switch for i, switch in enumerate(switches) if i not in on})

        def fails(on: On) -> bool:
            outcome = self._trials.outcome(settings(on), f"{axis}: {len(switches) - len(on)} off")
            is_failure = self._trials.fails(settings(on), axis)
            if outcome.kind != PASSED and not is_failure:
                others.add(outcome.first_line)
            return is_failure

        none = frozenset[int]()
        if len(self._axes) > 1 and not fails(none) and others:
            self.result.innocent[axis] = f"with all off the program fails differently: {others.pop()}"
            return False

        def search() -> Search:
            return find_causes(range(len(switches)), probe=len(self._axes) > 1, guess=guess)

        known: dict[On, bool] = {}

        def ask(on: On) -> bool:
            self._trials.expect([settings(each) for each in upcoming(search, known, self._trials.at_once)])
            return fails(on)

        found = drive(search(), known, ask)
        if not found and axis == "pass" and (others_of_name := _in_other_places(switches)):
            return self._explain(axis, [*switches, *others_of_name], guess, base)
        if not found:
            self.result.innocent[axis] = f"it still fails with all {len(switches)} off"
            return False
        cured = self._cured(base, frozenset(switches[i] for i in found.cure))
        after = self._trials.outcome(cured, f"{axis}: only the cause off")
        if after.kind != PASSED and EVERY_KERNEL in base and self._trials.fails(cured, ""):
            self.result.notes.append(f"{axis}: with the cause off, kernels fail too: fix it and bisect again")
        elif after.kind != PASSED:
            self.result.innocent[axis] = f"inconclusive: {', '.join(sorted(others | {str(after)}))}"
            return False
        if others:
            self.result.notes.append(f"{axis}: some trials failed differently: {', '.join(sorted(others))}")
        self.result.causes[axis] = _cause(axis, switches, found.causes)
        return True

    def _cured(self, base: frozenset[Switch], cure: frozenset[Switch]) -> Settings:
        """Only the cause off, with kernels; without them if no workaround is wanted."""
        if EVERY_KERNEL not in base or self._wants_workaround:
            return Settings(cure)
        self.result.notes.append("it passes with the cause off and with eager in place of the kernels")
        return Settings(base | cure)

    def _find_workaround(self) -> None:
        """The configs that help; otherwise the finest way to switch the cause off."""
        causes = self.result.causes
        if self.result.workaround:
            return
        if "pass" in causes:
            lines = workaround_of(causes["pass"])
            names = ",".join(dict.fromkeys(s.name.rpartition("/")[2] for s in causes["pass"].switches))
            tried = Settings(frozenset([Switch("config", f"{INDUCTOR}.disabled_passes", names)]))
            if self._trials.outcome(tried, "the workaround").kind == PASSED:
                self.result.workaround = lines
                return
        for axis in ("config", "lowering", "decomposition", "backend"):
            if axis in causes:
                self.result.workaround = workaround_of(causes[axis])
                return


def _cause(axis: str, switches: list[Switch], causes: Sequence[Sequence[int]]) -> Cause:
    if len(causes) == 1:
        together = _without_readers([switches[i] for i in causes[0]])
        return Cause(axis, together, len(switches), together=len(together) > 1)
    return Cause(axis, tuple(switches[cause[-1]] for cause in causes), len(switches))


def _without_readers(together: Sequence[Switch]) -> tuple[Switch, ...]:
    """Without kernels whose replacement also makes up for another of them, which cures the failure alone."""
    kernels = {switch.info.get("kernel") for switch in together}
    return tuple(switch for switch in together if kernels.isdisjoint(switch.info.get("joined", ())))


def _in_other_places(passes: list[Switch]) -> list[Switch]:
    """The same passes where they changed nothing: with the first one off, they find something to change."""
    known = {switch.name for switch in passes}
    names = dict.fromkeys(name.rpartition("/")[2] for name in known)
    found = [Switch("pass", f"{place}/{name}") for name in names for place in PASSES]
    return [switch for switch in found if switch.name not in known]


def _named(first: Outcome, kernels: list[Switch]) -> list[int]:
    """The kernel that shadow named, among those that can be switched off."""
    culprit = first.details.get("culprit") or {}
    name, line = culprit.get("kernel_name", ""), str(culprit.get("wrapper", "")).rpartition(":")[2]
    exact = [
        i for i, s in enumerate(kernels) if s.info.get("kernel") == name and s.name.endswith(f" {line})")
    ]
    return exact[:1]
