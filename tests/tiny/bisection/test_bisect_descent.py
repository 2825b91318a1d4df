"""The way from axis to axis, over a compiler that is made up: which trials are run, and what is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelscope.bisection.axis_order import Descent
from kernelscope.bisection.result import BisectResult
from kernelscope.errors import RunError
from kernelscope.trials.journal import BISECT, FILE, Journal
from kernelscope.trials.outcome import FAILED, KILLED, PASSED, RAISED, TIMED_OUT, Outcome
from kernelscope.trials.runner import SoughtFailure, TrialRunner
from kernelscope.trials.settings import AXES, EVERY_KERNEL, Settings, Switch

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


def test_a_kernel_is_named_and_a_setting_that_helps() -> None:
    result, compiler = bisected(lambda off, b: b == "" and not {"k7", CONFIG + "cpp.simdlen"} & off)
    assert result.cause is not None
    assert (result.cause.axis, names(result, "kernel")) == ("kernel", ["k7 (0, line 7)"])
    assert result.workaround == ("torch._inductor.config.cpp.simdlen = 1",)
    assert result.cause.candidates == 20
    assert result.status == 0
    # Not of a language that the kernel is not written in.
    assert not any("triton" in s.name for t in compiler.trials for s in t.off)


def test_a_setting_of_the_program_is_the_workaround_where_kernels_cannot_be_replaced() -> None:
    """As in a CUDA graph: the operator is named, and then only settings that were changed are tried."""
    changed = Switch("config", CONFIG + "cpp.inject_relu_bug_TESTING_ONLY", None)
    result, compiler = bisected(
        lambda off, b: b == "" and not {"n7", changed.name, CONFIG + "cpp.simdlen"} & off,
        switches=[*SWITCHES, changed],
    )
    assert result.cause is not None
    assert (result.cause.axis, names(result, "lowering")) == ("lowering", ["n7 (graph 0)"])
    assert result.workaround == (f"{changed.name} = None",)
    assert not any(s.name == CONFIG + "cpp.simdlen" for t in compiler.trials for s in t.off)


def test_what_shadow_named_is_tried_first() -> None:
    result, compiler = bisected(lambda off, b: "k7" not in off, check="shadow")
    kernels = [t for t in compiler.trials if t.names("kernel")]
    assert names(result, "kernel") == ["k7 (0, line 7)"]
    assert len(kernels) == 3  # all off, all but that one, that one alone
    assert not any(t.backend for t in compiler.trials)


def test_all_axes_look_only_at_what_the_kernel_is_made_of() -> None:
    def fails(off: set[str], backend: str) -> bool:
        return backend == "" and not {"k7", "m7", "op7"} & off

    result, compiler = bisected(fails, axes=AXES)
    assert names(result, "lowering") == ["m7 (graph 0)"]
    assert names(result, "fusion") == ["op7 with op8 (graph 0)"]
    lowered = [t.names("lowering") for t in compiler.trials if t.names("lowering") and not t.configs]
    of_kernel = {"n7 (graph 0)", "m7 (graph 0)"}
    assert all(names <= of_kernel or names.isdisjoint(of_kernel) for names in lowered)
    assert "config" in result.innocent


def test_settings_are_tried_with_the_other_operators_in_eager() -> None:
    """So that only the guilty kernel is compiled for them; what is recommended was tried as it is."""
    simdlen = CONFIG + "cpp.simdlen"
    result, compiler = bisected(lambda off, b: b == "" and not {"k7", simdlen} & off)
    tried = [t for t in compiler.trials if t.configs]
    assert all(len(t.names("lowering")) == 38 for t in tried[:-1])
    assert tried[-1] == Settings(frozenset([Switch("config", simdlen, 1)]))
    assert result.workaround == (f"{simdlen} = 1",)

    def needs_neighbours(off: set[str], backend: str) -> bool:
        return backend == "" and not {"k7", simdlen} & off and "n3" not in off

    result, compiler = bisected(needs_neighbours)
    assert not any(t.names("lowering") for t in compiler.trials if t.configs)
    assert result.workaround == (f"{simdlen} = 1",)


def test_the_search_may_stop_at_the_cause() -> None:
    compiler = Compiler(lambda off, b: b == "" and "k7" not in off)
    trials = TrialRunner(compiler, Journal(), SoughtFailure("check"), confidence=0.99)
    result = Descent(trials, "check", workaround=False).run(3)
    assert names(result, "kernel") == ["k7 (0, line 7)"]
    assert all(t.of_compiler == Settings() for t in compiler.trials)
    assert "workaround" not in str(result)


def test_kernels_that_fail_only_together_are_both_named() -> None:
    result, _ = bisected(lambda off, b: b == "" and not {"k3"} & off and not {"k15"} & off)
    assert names(result, "kernel") == ["k3 (0, line 3)", "k15 (0, line 15)"]
    assert result.causes["kernel"].together
    assert "together with" in str(result)


def test_kernels_that_fail_each_alone_are_both_named() -> None:
    result, _ = bisected(lambda off, b: b == "" and not {"k3", "k15"} <= off)
    assert set(names(result, "kernel")) == {"k3 (0, line 3)", "k15 (0, line 15)"}
    assert not result.causes["kernel"].together


def test_a_set_of_configs_where_no_single_one_helps() -> None:
    needed = {CONFIG + "epilogue_fusion", CONFIG + "inplace_buffers"}
    result, _ = bisected(lambda off, b: b == "" and "k7" not in off and not needed <= off)
    assert set(names(result, "config")) == needed
    assert len(result.workaround) == 2


def test_a_pass_is_named_where_kernels_do_not_explain_it() -> None:
    result, _ = bisected(lambda off, b: b == "" and "post_grad_passes/p4" not in off)
    assert result.cause is not None
    assert (result.cause.axis, names(result, "pass")) == ("pass", ["post_grad_passes/p4"])
    assert result.workaround == ("torch._inductor.config.disabled_passes = 'p4'",)
    assert names(result, "backend") == ["inductor"]
    assert "kernel" in result.innocent


def test_a_wrong_graph_is_looked_at_without_building_kernels() -> None:
    """All kernels replaced, it fails: so passes are tried that way, and the one that is found for real."""
    result, compiler = bisected(lambda off, b: b == "" and "post_grad_passes/p4" not in off)
    tried = [t for t in compiler.trials if t.names("pass")]
    assert all(t.replaces_all for t in tried[:-1])
    assert tried[-1] == Settings(frozenset([Switch("pass", "post_grad_passes/p4")]))
    assert Settings(frozenset([EVERY_KERNEL])) not in compiler.trials  # known: all of them were off
    # Such a trial is compiled for itself: without its kernels it will not do for another.
    assert tried[0].of_compiler == tried[0]
    assert result.workaround == ("torch._inductor.config.disabled_passes = 'p4'",)


def test_a_kernel_that_is_wrong_beside_a_pass_is_not_hidden_by_it() -> None:
    def fails(off: set[str], backend: str) -> bool:
        has_kernel = "k7" not in off and "*" not in off
        return backend == "" and ("post_grad_passes/p4" not in off or has_kernel)

    result, _ = bisected(fails)
    assert names(result, "pass") == ["post_grad_passes/p4"]
    assert any("kernels fail too" in note for note in result.notes)
    assert not result.workaround or "disabled_passes" not in result.workaround[0]


def test_a_right_graph_is_never_tried_without_its_kernels() -> None:
    _, compiler = bisected(lambda off, b: b == "" and "k7" not in off, axes=AXES)
    assert not any(t.replaces_all for t in compiler.trials)


def test_the_exception_that_is_looked_for_is_no_other_way_to_fail() -> None:
    def fails(off: set[str], backend: str) -> bool | Outcome:
        return backend == "" and "k7" not in off and Outcome(RAISED, "ScriptFailed: it exited with 1")

    result, _ = bisected(fails, check="exception")
    assert names(result, "kernel") == ["k7 (0, line 7)"]
    assert not any("differently" in note for note in result.notes)


def test_a_backend_before_inductor_is_named() -> None:
    result, compiler = bisected(lambda off, b: b not in ("eager", "aot_eager") and "aten.d3" not in off)
    assert names(result, "backend") == ["aot_eager_decomp_partition"]
    assert names(result, "decomposition") == ["aten.d3"]
    assert not any(t.names("lowering") or t.names("fusion") for t in compiler.trials)


def test_one_axis_alone_keeps_to_its_bound() -> None:
    result, compiler = bisected(lambda off, b: b == "" and "k7" not in off, axes=("kernel",), runs=2)
    assert names(result, "kernel") == ["k7 (0, line 7)"]
    searched = [t for t in compiler.trials if not t.backend][1:]  # the first is the second run of the program
    assert len(searched) <= 5 + 2 + 1  # ⌈log₂ 20⌉ + 2, and that switching it off alone helps


# -- bad input ---------------------------------------------------------------------------------------------


def test_a_check_that_never_fails() -> None:
    result, compiler = bisected(lambda off, b: False)
    assert "did not fail in 3 baseline runs" in str(result)
    assert (result.status, len(compiler.trials)) == (2, 3)


def test_a_check_that_always_fails() -> None:
    result, compiler = bisected(lambda off, b: True)
    assert "fails with backend='eager' too" in str(result)
    assert "or the check always fails" in str(result)
    assert (result.status, len(compiler.trials)) == (2, 5)


def test_a_program_that_does_not_get_to_its_end() -> None:
    result, _ = bisected(lambda off, b: Outcome(RAISED, "KeyError: 'x'"))
    assert "KeyError: 'x'" in str(result)
    assert "--fails-on exception" in str(result)
    assert result.status == 2


def test_nothing_helps() -> None:
    result, _ = bisected(lambda off, b: b == "")
    assert result.cause is not None
    assert result.cause.axis == "backend"
    assert result.workaround == ('torch.compile(…, backend="aot_eager_decomp_partition")',)
    shadowed, _ = bisected(lambda off, b: True, check="shadow", axes=("pass", "lowering", "kernel"))
    assert "No cause was found" in str(shadowed)
    assert shadowed.status == 1


def test_what_shadow_finds_wrong_with_every_backend_is_dynamos() -> None:
    """With backend="eager" shadow compares the traced graph with the function, and nothing else."""
    result, _ = bisected(lambda off, b: True, check="shadow")
    assert result.cause is not None
    assert (result.cause.axis, result.cause.switches[0].name) == ("backend", "eager")
    assert "Dynamo" in str(result)
    assert (result.status, result.workaround) == (0, ())


def test_a_program_that_is_not_deterministic_is_repeated() -> None:
    runs = 0

    def fails(off: set[str], backend: str) -> bool:
        nonlocal runs
        runs += 1
        return backend == "" and "k7" not in off and runs % 3 != 0

    result, compiler = bisected(fails)
    assert names(result, "kernel") == ["k7 (0, line 7)"]
    assert "not deterministic: it failed in 6 of 8 runs" in str(result)
    assert result.repeats == 5
    assert 0.99 <= result.confidence < 1
    everything = Settings(frozenset(s for s in SWITCHES if s.axis == "kernel"))
    assert compiler.trials.count(everything) == 5


def test_all_off_may_break_the_program_in_another_way() -> None:
    def fails(off: set[str], backend: str) -> bool | Outcome:
        if len(off) > 30 and any(name.startswith("k") for name in off):
            return Outcome(RAISED, "AssertionError: no")
        return backend == ""

    result, _ = bisected(fails)
    assert "fails differently: raised: AssertionError: no" in result.innocent["kernel"]


def test_the_exception_that_was_seen_first_is_the_one() -> None:
    def fails(off: set[str], backend: str) -> bool | Outcome:
        if backend:
            return False
        if "k7" in off and 20 < len(off) < 35:
            return Outcome(RAISED, "ValueError: another")
        return Outcome(RAISED, f"RuntimeError: 17 at 0x{id(off):x}") if "k9" not in off else False

    result, _ = bisected(fails, check="exception")
    assert names(result, "kernel") == ["k9 (0, line 9)"]
    assert any("ValueError: another" in note for note in result.notes)


@pytest.mark.parametrize("kind", [KILLED, TIMED_OUT])
def test_a_crash_and_a_hang_are_outcomes(kind: str) -> None:
    end = Outcome(kind, "killed by SIGSEGV")
    result, _ = bisected(lambda off, b: end if b == "" and "k2" not in off else False, check="exception")
    assert names(result, "kernel") == ["k2 (0, line 2)"]
    assert result.failure == "killed by SIGSEGV"


def test_only_exceptions_with_a_message() -> None:
    raised = Outcome(RAISED, "RuntimeError: this one")
    failure = SoughtFailure("exception", "this")
    assert failure.is_met_by(raised)
    assert failure.is_met_by(Outcome(RAISED, "TypeError: also this"))
    assert not failure.is_met_by(Outcome(RAISED, "RuntimeError: that"))
    assert Outcome(RAISED, "E: 3.5 at 0x7f\nmore").signature == Outcome(RAISED, "E: 12 at 0x8").signature


def test_an_unknown_axis() -> None:
    with pytest.raises(RunError, match="no axis 'kernels'; use backend"):
        bisected(lambda off, b: True, axes=("kernels",))


# -- the journal -------------------------------------------------------------------------------------------


def failing_k7(off: set[str], backend: str) -> bool:
    return backend == "" and "k7" not in off


def test_an_interrupted_bisection_goes_on(tmp_path: Path) -> None:
    whole, _ = bisected(failing_k7)
    calls = 0

    def interrupted(off: set[str], backend: str) -> bool:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        return failing_k7(off, backend)

    with pytest.raises(KeyboardInterrupt):
        bisected(interrupted, folder=tmp_path)
    result, compiler = bisected(failing_k7, folder=tmp_path)
    assert result.resumed == 5
    assert result.trials == whole.trials == len(compiler.trials) + 5
    assert result.causes == whole.causes
    again, compiler = bisected(failing_k7, folder=tmp_path)
    assert not compiler.trials
    assert again.causes == whole.causes


def test_a_torn_line_is_dropped(tmp_path: Path) -> None:
    bisected(failing_k7, folder=tmp_path)
    path = tmp_path / FILE
    text = path.read_text()
    path.write_text(text + '{"trial": {"ba')
    result, compiler = bisected(failing_k7, folder=tmp_path)
    assert result
    assert not compiler.trials
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense\nmore\n", "line 1: not an entry of a journal"),
        ('{"a": 1}\n{"b": 2}\n', "is not a journal"),
        (
            json.dumps({"kernelscope-bisect": 2, "command": ["y"]}) + "\n{}\n",
            "another search: command was",
        ),
        ("", "is not a journal"),
    ],
)
def test_what_is_no_journal_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(RunError, match=message):
        bisected(failing_k7, folder=tmp_path)


def test_a_result_as_json() -> None:
    result, _ = bisected(failing_k7)
    told: dict[str, Any] = json.loads(json.dumps(result.to_json()))
    assert told["cause"]["switches"][0]["name"] == "k7 (0, line 7)"
    assert {"workaround", "trials", "seconds", "confidence", "failed", "runs", "status"} <= told.keys()


def test_a_journal_that_was_cut_off_or_is_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / FILE
    whole = json.dumps(BISECT) + "\n"
    for torn in ('{"trial": {', "\0\0\0\n"):
        path.write_text(whole + torn)
        Journal(path, BISECT)
        assert path.read_text() == whole
    path.write_text('{"of": "others"}\nno newline')
    with pytest.raises(RunError, match="is not a journal of kernelscope-bisect"):
        Journal(path, BISECT)
    assert path.read_text() == '{"of": "others"}\nno newline'


def test_nothing_behind_the_decompositions_is_searched_when_they_fail() -> None:
    """With a backend that has only decompositions it fails: Inductor's passes and settings come later."""
    early = ("inductor", "aot_eager_decomp_partition")
    result, compiler = bisected(
        lambda off, backend: (backend or "inductor") in early and "aten.d3" not in off
    )
    assert str(result.cause) == "decomposition aten.d3"
    assert not {switch.axis for trial in compiler.trials for switch in trial.off} & {
        "pass",
        "config",
        "fusion",
    }


@pytest.mark.parametrize("first", ["aot_eager", "eager"])
def test_an_early_backend_ends_the_search(first: str) -> None:
    result, compiler = bisected(lambda off, backend: backend != "eager" or first == "eager")
    off = {switch.axis for trial in compiler.trials for switch in trial.off}
    assert off <= {"kernel"}
    if first == "eager":
        assert "fails with backend='eager' too" in result.problem
    else:
        assert str(result.cause) == "backend aot_eager"


def test_no_confidence_in_a_failure_that_was_not_seen() -> None:
    result, _ = bisected(lambda off, backend: False)
    assert result.status == 2
    assert "confidence" not in str(result)


def test_a_program_that_raises_each_time_is_not_run_more_often_than_needed() -> None:
    raised = Outcome(RAISED, "AssertionError: 3 of 8 differ")
    result, compiler = bisected(lambda off, backend: raised)
    assert len(compiler.trials) == 2
    assert result.raised == "raised: AssertionError: 3 of 8 differ"
    assert "The program does not finish" in str(result)
