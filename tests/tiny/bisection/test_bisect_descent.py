"""The way from axis to axis, over a compiler that is made up: which trials are run, and what is named."""

from __future__ import annotations

from tests.tiny.bisection.made_up_compiler import CONFIG, SWITCHES, Compiler, bisected, names

from kernelscope.bisection.axis_order import Descent
from kernelscope.bisection.result import workaround_of
from kernelscope.trials.journal import Journal
from kernelscope.trials.runner import SoughtFailure, TrialRunner
from kernelscope.trials.settings import AXES, EVERY_KERNEL, Settings, Switch


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


def test_a_pass_that_runs_in_two_places_is_named() -> None:
    """With the first one off, the second one finds something to change: the baseline did not see it."""
    both = {"post_grad_passes/p4", "joint_graph_passes/p4"}
    result, _ = bisected(lambda off, b: b == "" and not both <= off)
    assert result.cause is not None
    assert (result.cause.axis, {*names(result, "pass")}) == ("pass", both)
    assert workaround_of(result.cause) == ("torch._inductor.config.disabled_passes = 'p4'",)


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
