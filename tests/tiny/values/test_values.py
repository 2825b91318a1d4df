"""Printing, saving and watching values, on eager operators: nothing is compiled."""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import kernelscope
from kernelscope.config import (
    FILTERED,
    PRINTER,
    RUN,
    printer_from_environment,
    recorded_environment,
    wants_printer,
)
from kernelscope.errors import RunError
from kernelscope.events import Kernel
from kernelscope.fingerprint import fingerprint
from kernelscope.fingerprint.stats import Stats
from kernelscope.values import IntermediateValueDebuggingLevel as Level
from kernelscope.values import WatchHit, observe, parse_watch, watch
from kernelscope.values.graph_inputs import input_names
from kernelscope.values.kernel_filter import KernelFilter, names_of
from kernelscope.values.session import folder_for_values
from kernelscope.values.tensor_text import tensor_lines


def printed(program: Callable[[], object], level: Level | str = "2", **options: object) -> str:
    stream = io.StringIO()
    with observe(level, ops="all", stream=stream, **options) as run:  # type: ignore[arg-type]
        program()
    assert not [f for f in run.findings if f.kind == "recorder-error"]
    return stream.getvalue()


def blocks(text: str) -> dict[str, list[str]]:
    """The lines below each title."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith(("inductor: ", "aoti_model_inputs - ")):
            lines = found.setdefault(line, [])
        else:
            lines.append(line)
    return found


def number(lines: list[str], name: str) -> float:
    [line] = [line for line in lines if line.startswith(f"{name}:")]
    return float(line.split(":")[1].split()[0])


def test_the_levels_are_torchs() -> None:
    from torch._inductor.codegen.debug_utils import IntermediateValueDebuggingLevel as Stocks

    assert {level.name: level.value for level in Level} == {level.name: level.value for level in Stocks}


def test_prints_what_torch_computes() -> None:
    x = torch.randn(5, 7)
    found = blocks(printed(lambda: x.exp()))
    before = found["inductor: before_launch - aten.exp.default - self"]
    after = found["inductor: after_launch - aten.exp.default - result"]
    for lines, tensor in ((before, x), (after, x.exp())):
        assert "\n".join(lines).startswith(str(tensor))
        assert f"Size:  {tensor.size()}" in lines
        assert "Dtype:  torch.float32" in lines
        assert number(lines, "Number of elements") == 35
        for name in ("Mean", "Min", "Max", "Std"):
            expected = getattr(tensor.double(), name.lower())().item()
            assert number(lines, name) == pytest.approx(expected)
        assert lines[-1] == f"Bits:  {fingerprint(tensor).bits:#018x}"


def test_large_tensors_are_told_in_numbers_only() -> None:
    text = printed(lambda: torch.arange(65.0).neg())
    assert "tensor(" not in text
    assert "tensor(" in printed(lambda: torch.arange(65.0).neg(), most_shown=65)


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.tensor([2**60 + 1, -3]), ["Min:  -3", f"Max:  {2**60 + 1}"]),
        (torch.tensor([2**64 - 1, 5], dtype=torch.uint64), ["Min:  5", f"Max:  {2**64 - 1}"]),
        (torch.tensor([True, False]), ["Min:  False", "Max:  True", "Zeros:  1"]),
        (torch.tensor([1 + 2j, 3 - 4j]), ["Min (real):  1.0", "Min (imaginary):  -4.0"]),
        (torch.tensor([1 + 2j]).conj(), ["Max (imaginary):  -2.0"]),
        (torch.tensor([1.0, 448.0]).to(torch.float8_e4m3fn), ["Max:  448.0", "Dtype:  torch.float8_e4m3fn"]),
        (torch.tensor([1.5], dtype=torch.bfloat16), ["Mean:  1.5", "Std:  nan"]),
        (torch.empty(0, 3), ["Number of elements:  0", "Values:  none, it is empty"]),
        (torch.tensor(2.5), ["Size:  torch.Size([])", "Mean:  2.5"]),
        (
            torch.tensor([math.nan, math.inf, -math.inf, 0.0]),
            ["NaN:  1", "Inf:  +1 -1", "Zeros:  1", "Mean:  0.0  (of the 1 finite elements)"],
        ),
        (torch.tensor([math.nan]), ["Mean:  none, nothing is finite"]),
    ],
)  # fmt: skip
def test_dtypes(tensor: torch.Tensor, expected: list[str]) -> None:
    lines = tensor_lines(tensor)
    assert [line for line in expected if line not in lines] == []


def test_uninitialised_contents_are_not_printed() -> None:
    found = blocks(printed(lambda: torch.mul(torch.ones(3), 2, out=torch.empty(3))))
    before = found["inductor: before_launch - aten.mul.out - out"]
    assert "Values:  uninitialised memory" in before
    assert not any(line.startswith(("Mean", "tensor(")) for line in before)
    assert "tensor([2., 2., 2.])" in found["inductor: after_launch - aten.mul.out - out"]


def test_numbers_are_printed_too() -> None:
    found = blocks(printed(lambda: torch.ones(3).add(torch.ones(3), alpha=4)))
    assert found["inductor: before_launch - aten.add.Tensor - alpha"] == ["Value:  4"]


def test_names_only() -> None:
    text = printed(lambda: torch.ones(3).neg(), Level.PRINT_KERNEL_NAMES_ONLY)
    assert text.splitlines()[-2:] == [
        "[ before_launch: aten.neg.default ]",
        "[ after_launch: aten.neg.default ]",
    ]


def test_off_does_nothing() -> None:
    assert printed(lambda: torch.ones(3).neg(), "0") == ""


def test_files(tmp_path: Path) -> None:
    x = torch.arange(12.0).view(3, 4)
    with observe(Level.SAVE_ONLY, folder=tmp_path / "v", ops="all") as run:
        y = x.t().exp()
        x.add_(1)
    exp, add = (call.index for call in run)
    load = lambda path: torch.load(tmp_path / "v" / path, weights_only=True)  # noqa: E731
    assert torch.equal(load(f"{exp}/after_launch_aten.exp.default_result_cpu.pt"), y)
    assert torch.equal(load(f"{add}/after_launch_aten.add_.Tensor_self_cpu.pt"), x)
    assert torch.equal(load(f"{add}/before_launch_aten.add_.Tensor_self_cpu.pt"), x - 1)
    assert load(f"{exp}/before_launch_aten.exp.default_self_cpu.pt").untyped_storage().nbytes() == 48


def test_files_are_never_overwritten(tmp_path: Path) -> None:
    x = torch.ones(2, 2)
    with observe("1", folder=tmp_path / "v", ops="all"):
        x.mm(x)
    saved = {path: path.read_bytes() for path in (tmp_path / "v").rglob("*.pt")}
    assert len(saved) == 5  # two arguments twice, and what is returned
    with pytest.raises(RunError, match="is not empty"), observe("1", folder=tmp_path / "v", ops="all"):
        pass
    assert {path: path.read_bytes() for path in (tmp_path / "v").rglob("*.pt")} == saved


def test_the_default_folder_is_new_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        with observe("1", ops="all"):
            torch.ones(2).neg()
    assert sorted(path.name for path in (tmp_path / "kscope-values").iterdir()) == ["1", "2"]
    # Two processes that look for one at the same time do not get the same.
    assert folder_for_values() != folder_for_values()
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    Path("kscope-values").touch()
    with pytest.raises(RunError, match="values cannot be saved to kscope-values/1"), observe("1", ops="all"):
        pass


@pytest.mark.parametrize("text", ["aten.neg*", "ATEN.NEG.default", "neg", "aoti_torch_cpu_neg", "x*,neg"])
def test_filter(text: str) -> None:
    titles = blocks(printed(lambda: torch.ones(3).neg().exp(), kernels=text))
    assert {title.split(" - ")[1] for title in titles} == {"aten.neg.default"}


def test_shim_names() -> None:
    addmm = Kernel(0, "extern_kernels.addmm", "extern", "inductor")
    assert "aoti_torch_cuda_addmm_out" in names_of(addmm, "cuda:0")
    fused = Kernel(1, "cpp_fused_add_0", "cpp", "inductor")
    assert names_of(fused, "cpu") == ["cpp_fused_add_0"]
    assert KernelFilter(["AOTI_torch_CPU_addmm_out"]).wants(addmm, "cpu")


def test_a_filter_that_matches_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(lambda: torch.ones(3).neg().exp(), kernels="aten.nge.default") == ""
    said = capsys.readouterr().err
    assert "no kernel matched 'aten.nge.default'" in said
    assert "aten.neg.default" in said


def test_bad_settings(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown level; use 0"), observe("4"):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be saved"), observe("1", folder=tmp_path / "file" / "v"):
        pass
    with pytest.raises(ValueError, match="only level 1 saves"), observe("2", folder=tmp_path / "v"):
        pass
    with pytest.raises(ValueError, match="use one of 'stop'"), watch("nan", on_hit="cry"):
        pass
    with pytest.raises(ValueError, match="needs a condition"), watch():
        pass
    with pytest.raises(TypeError, match="several globs, not 3"), observe("2", kernels=3):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nun", "did you mean nan"),
        ("max>", "max>1e4"),
        ("max>high", "'high' is not a number"),
        ("max>nan", "write nan alone"),
        ("mix>3", "did you mean m"),
        ("nan@", "CONDITION@KERNEL"),
        ("nan@a@b@c", "CONDITION@KERNEL"),
        ("", "CONDITION"),
    ],
)
def test_watches_that_do_not_parse(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"cannot watch {text!r}")) as error:
        parse_watch(text)
    assert said in str(error.value)


def test_conditions() -> None:
    stats = Stats(10, -3.0, 5.0, 1.0, 2.0, 9.0, 1, 0, 2, 4)
    held = ["nan", "-inf", "max>4.5", "max >= 5", "min<0", "absmax==5", "zeros>3", "nan<2", "std!=1", "l1<=9"]
    assert [text for text in held if not parse_watch(text).holds(stats)] == []
    missed = ["inf", "+inf", "max>5", "nan>1", "changed", "mean<1"]
    assert [text for text in missed if parse_watch(text).holds(stats)] == []


def test_watch_stops_at_the_producer_with_its_inputs(tmp_path: Path) -> None:
    x = torch.tensor([1.0, -1.0])
    ran = []

    def program() -> None:
        x.add(0).log_()
        ran.append("after")

    with pytest.raises(WatchHit) as stopped, watch("nan", ops="all", folder=tmp_path / "v"):
        program()
    hit = stopped.value.hit
    assert not ran
    assert (hit.kernel, hit.arg, hit.is_producer) == ("aten.log_.default", "self", True)
    assert "1 NaN of 2 elements" in str(hit)
    assert torch.equal(hit.inputs["self"], x)
    [before] = [path for path in hit.files if path.name.startswith("before_launch")]
    assert torch.equal(torch.load(before, weights_only=True), x)
    assert f"{Path(__file__).name}:" in hit.origin


def test_watch_tells_what_came_in() -> None:
    x = torch.tensor([math.nan])
    with pytest.raises(WatchHit) as stopped, watch("nan", ops="all"):
        x.relu()
    assert not stopped.value.hit.is_producer
    assert "already in input self" in str(stopped.value)


def test_watch_tells_of_uninitialised_memory() -> None:
    torch.use_deterministic_algorithms(True)  # which fills new memory with NaN
    try:
        with pytest.raises(WatchHit) as stopped, watch("nan", ops="all"):
            torch.empty(4).relu()
    finally:
        torch.use_deterministic_algorithms(False)
    assert stopped.value.hit.kernel == "aten.relu.default"
    assert "uninitialised memory" in str(stopped.value)


def test_watch_tells_who_made_the_infinity() -> None:
    x = torch.tensor([3e38])
    with pytest.raises(WatchHit) as stopped, watch("nan", ops="all"):
        x.mul(10).sub(torch.tensor([math.inf]))
    assert stopped.value.hit.kernel == "aten.sub.Tensor"
    assert "produced by call 0, aten.mul.Tensor" in str(stopped.value)


def test_masks_are_no_hits() -> None:
    scores = torch.randn(3, 3)
    with watch("nan", "inf", ops="all") as hits:
        masked = scores.masked_fill(torch.ones(3, 3).triu(1).bool(), -math.inf)
        torch.softmax(masked, -1)
    assert not hits
    with pytest.raises(WatchHit), watch("-inf", ops="all"):
        scores.masked_fill(torch.ones(3, 3).triu(1).bool(), -math.inf)


def test_watch_bounds_patterns_and_functions() -> None:
    x = torch.ones(4)
    with watch(
        "max>2@aten.exp*", "changed@*@self", lambda t: t.sum() > 100, on_hit="note", ops="all"
    ) as hits:
        x.mul(30)
        x.mul(30)  # told already
        x.exp()
        x.add_(1)
    assert [(hit.kernel, hit.condition) for hit in hits] == [
        ("aten.mul.Tensor", "<lambda>"),
        ("aten.exp.default", "max>2@aten.exp*"),
        ("aten.add_.Tensor", "changed@*@self"),
    ]
    assert "this call produced it" in str(hits[1])
    assert "this call produced it" not in str(hits[2])  # of a change there is nothing to be said


def test_what_changed_is_what_was_written_to() -> None:
    """Also where another argument, before it, is the same memory."""
    x = torch.ones(4)
    with watch("changed", on_hit="note", ops="all") as hits:
        torch.add(x, 1, out=x)
    assert [(hit.kernel, hit.arg) for hit in hits] == [("aten.add.out", "out")]


@pytest.mark.parametrize("typed", ["quit", ""])
def test_the_debugger(
    typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`continue` goes on; `quit`, or the end of what is typed, ends the block."""
    x = torch.tensor([1.0, -1.0])
    monkeypatch.setattr("sys.stdin", io.StringIO("p hit.kernel, hit.inputs\ncontinue\n"))
    with watch("nan@*log*", on_hit="pdb", ops="all") as hits:
        x.log().add(1)
    assert [hit.kernel for hit in hits] == ["aten.log.default"]
    assert f"('aten.log.default', {{'self': {x}}})" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO(typed and f"{typed}\n"))
    with pytest.raises(WatchHit, match=r"aten\.log\.default"), watch("nan", on_hit="pdb", ops="all"):
        x.log()


def test_a_function_that_fails() -> None:
    asked: list[int] = []

    def fails(tensor: torch.Tensor) -> bool:
        asked.append(1)
        raise KeyError("it")

    def program() -> None:
        torch.ones(3).neg().neg()
        asked.append(2)  # it goes on

    with (
        pytest.raises(RuntimeError, match=r"your predicate raised an exception.*KeyError: 'it'"),
        watch(fails, ops="all"),
    ):
        program()
    assert asked == [1, 2]
    with pytest.raises(RuntimeError, match="ambiguous"), watch(lambda t: t > 0, ops="all"):
        torch.ones(3).neg()


def test_a_program_that_catches_everything_is_stopped() -> None:
    def program() -> None:
        with contextlib.suppress(Exception):
            torch.tensor(-1.0).log()

    with pytest.raises(WatchHit), watch("nan", ops="all"):
        program()


def test_inputs_of_a_wrapper() -> None:
    assert input_names("    def call(self, args):\n        arg0_1, arg1_1 = args\n") == ("arg0_1", "arg1_1")
    assert input_names("        arg0_1, = args\n") == ("arg0_1",)
    assert input_names("nothing") == ()


def test_values_are_public() -> None:
    assert kernelscope.values.observe is observe
    with pytest.raises(AttributeError, match="it has"):
        _ = kernelscope.values.nothing


def test_torchs_own_printer_is_switched_off_and_passed_on() -> None:
    import torch._inductor.config as config

    from kernelscope.compiler_control.stock_printer import StockPrinter

    told: list[tuple[str, str]] = []
    printer = StockPrinter(lambda level, kernels: told.append((level, kernels)))
    with config.patch({"aot_inductor.debug_intermediate_value_printer": "2"}):
        printer.install()
        try:
            assert config.aot_inductor.debug_intermediate_value_printer == "0"
            config.aot_inductor.filtered_kernel_names = "a,b"
            config.aot_inductor.debug_intermediate_value_printer = "3"
            config.debug = False  # not ours
            assert config.aot_inductor.debug_intermediate_value_printer == "0"
        finally:
            printer.remove()
        assert told == [("", "a,b"), ("3", "a,b")]
        assert config.aot_inductor.debug_intermediate_value_printer == "2"
    config.aot_inductor.filtered_kernel_names = None
    assert config.aot_inductor.debug_intermediate_value_printer == "0"


def test_a_session_can_be_turned_to_other_settings() -> None:
    from kernelscope.config import Config, ValueSettings
    from kernelscope.recording import Recording
    from kernelscope.values.session import ValueSession

    stream = io.StringIO()
    recording = Recording(Config(ops="all"), keeps_calls=False)
    session = ValueSession(recording, ValueSettings(), stream=stream)
    recording.open()
    try:
        torch.ones(2).neg()
        session.turn_to(ValueSettings(names=True, kernels=("*neg*",)))
        torch.ones(2).neg().exp()
        session.turn_to(ValueSettings())
        torch.ones(2).neg()
    finally:
        session.close()
        recording.close()
    assert stream.getvalue() == "[ before_launch: aten.neg.default ]\n[ after_launch: aten.neg.default ]\n"
    assert len(recording.run) == 0


def test_what_a_program_sets_in_torchs_config() -> None:
    """A level goes before that of the command line until it is off again; so do names of kernels."""
    from kernelscope.config import Config, ValueSettings
    from kernelscope.recording import Recording
    from kernelscope.startup.script_values import _SetInCode
    from kernelscope.values.session import ValueSession

    asked = ValueSettings(names=True, kernels=("*exp*",))
    stream = io.StringIO()
    recording = Recording(Config(ops="all"), keeps_calls=False)
    session = ValueSession(recording, asked, stream=stream)
    set_in_code = _SetInCode(session, asked, None)

    def seen() -> set[str]:
        stream.seek(0)
        stream.truncate()
        torch.ones(2).neg().exp().sin()
        return set(re.findall(r"(?:before_launch: |after_launch - )aten\.(\w+)", stream.getvalue()))

    recording.open()
    try:
        assert seen() == {"exp"}
        set_in_code("", "NEG")  # only the kernels are set: the level stays
        assert seen() == {"neg"}
        assert "[ before_launch" in stream.getvalue()
        set_in_code("2", "NEG")
        assert seen() == {"neg"}
        assert "inductor: before_launch" in stream.getvalue()
        set_in_code("0", "NEG")
        assert seen() == {"neg"}
        set_in_code("", "")
        assert seen() == {"exp"}
        set_in_code("2", "")
        assert seen() == {"exp"}
        set_in_code("0", "")
        assert seen() == {"exp"}
        assert "[ before_launch" in stream.getvalue()
        with pytest.raises(ValueError, match="debug_intermediate_value_printer='9': unknown level"):
            set_in_code("9", "")
    finally:
        session.close()
        recording.close()


def test_kernels_from_the_command_line_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelscope.options import parse_options, take_over_printer, value_settings_of

    def kernels(text: str) -> tuple[str, ...]:
        given = parse_options(text)
        take_over_printer(given)
        return value_settings_of(given).kernels

    assert kernels("--print --values-of a,b --values-of c") == ("a", "b", "c")
    monkeypatch.setenv(FILTERED, "x, y")
    assert kernels("--print") == kernels("--save-to d") == ("x", "y")
    assert kernels("--stop-on nan") == ()  # it is about what is printed


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ("0", ())),
        ({PRINTER: " 2 ", FILTERED: "a, b,"}, ("2", ("a", "b"))),
        ({PRINTER: "", FILTERED: "a"}, ("0", ("a",))),
    ],
)
def test_variables(environ: dict[str, str], expected: tuple[str, tuple[str, ...]]) -> None:
    assert printer_from_environment(environ) == expected


def test_a_wrong_variable() -> None:
    with pytest.raises(ValueError, match="unknown level; use 0"):
        printer_from_environment({PRINTER: "four"})
    assert wants_printer({PRINTER: "2"})
    assert not wants_printer({PRINTER: "2", RUN: "x"})  # a recorded process has it among its options
    child = recorded_environment(Path("r"), "--print", Path("s"), {PRINTER: "2"})
    assert child[PRINTER] == "0"


def test_replace_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.ones(3)
    replace = kernelscope.replace
    with replace("aten.neg*", lambda args: args["self"] * 5, ops="all") as replacer:
        assert torch.equal(x.neg(), torch.full((3,), 5.0))
    assert replacer.replaced == 1
    for wrong, said in [
        (lambda args: torch.ones(4), r"has shape \(3,\), not \(4,\)"),
        (lambda args: {"out": x}, "does not write out; it writes result"),
        (lambda args: 3, "returned int, not a tensor"),
        (lambda args: args["nothing"], "nothing"),
    ]:
        with pytest.raises(RuntimeError, match=said), replace("aten.neg*", wrong, ops="all"):
            assert torch.equal(x.neg(), -x)  # the kernel's own
    with replace("aten.neg*", torch.full((3,), 7.0), ops="all"):
        assert torch.equal(x.neg(), torch.full((3,), 7.0))
    with replace("aten.neg*", {"result": x.double() * 8}, ops="all"):
        assert torch.equal(x.neg(), torch.full((3,), 8.0))
    with pytest.raises(ValueError, match="not int"), replace("aten.neg*", 3):  # type: ignore[arg-type]
        pass
    with (
        pytest.raises(RuntimeError, match="float32 cannot replace it"),
        replace("aten.neg*", x * 0.5, ops="all"),
    ):
        torch.ones(3, dtype=torch.int64).neg()
    with replace("aten.nge*", lambda args: x, ops="all"):
        x.neg()
    assert "no kernel matched 'aten.nge*'" in capsys.readouterr().err


def test_replays_are_said_to_be_missed(capsys: pytest.CaptureFixture[str]) -> None:
    from kernelscope.config import Config, ValueSettings
    from kernelscope.probes.launch import Capture
    from kernelscope.recording import Recording
    from kernelscope.values.session import ValueSession

    recording = Recording(Config())
    session = ValueSession(recording, ValueSettings(names=True))
    recording.open()
    recording.replayed(Capture(), 0, -1)
    session.close()
    recording.close()
    assert "that the program captured itself are not printed" in capsys.readouterr().err
    assert [finding.kind for finding in recording.run.findings] == ["values-in-cuda-graph"]


def test_who_asked_for_names_from_c() -> None:
    from kernelscope.probes.cpp_wrappers.instrumented_graphs import _Printed

    printed, one, other = _Printed(), object(), object()
    assert printed.globs is None
    printed.want(one, ("a",))
    printed.want(other, ("b",))
    assert printed.globs == ("a", "b")
    printed.want(other, ())
    assert printed.globs == ()  # all
    printed.want(other, None)
    assert printed.globs == ("a",)
    printed.want(one, None)
    assert printed.globs is None
