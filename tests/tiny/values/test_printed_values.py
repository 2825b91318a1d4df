"""Printing values of eager operators: levels, dtypes, names. Nothing is compiled."""

from __future__ import annotations

import math

import pytest
import torch
from tests.tiny.values.printing import blocks, number, printed

from kernelscope.events import Kernel
from kernelscope.fingerprint import fingerprint
from kernelscope.values import IntermediateValueDebuggingLevel as Level
from kernelscope.values.graph_inputs import input_names
from kernelscope.values.kernel_filter import KernelFilter, names_of
from kernelscope.values.tensor_text import tensor_lines


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


def test_inputs_of_a_wrapper() -> None:
    assert input_names("    def call(self, args):\n        arg0_1, arg1_1 = args\n") == ("arg0_1", "arg1_1")
    assert input_names("        arg0_1, = args\n") == ("arg0_1",)
    assert input_names("nothing") == ()


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
    from kernelscope.probes.cpp_wrappers.listening import Printed

    printed, one, other = Printed(), object(), object()
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
