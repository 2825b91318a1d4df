"""What `kernelscope why` says of compiler failures that are caught, and of memory that is not written."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.sample_runs import info

from kernelscope.diagnosis import verdicts
from kernelscope.diagnosis.answer import COMPILER, MACHINE, PROGRAM, UNKNOWN, Answer
from kernelscope.diagnosis.answer_text import answer_lines
from kernelscope.diagnosis.compile_troubles import compiling_of
from kernelscope.diagnosis.failures import is_same_failure
from kernelscope.diagnosis.recorded import Recorded
from kernelscope.events import Finding, Frame
from kernelscope.stages.records import FRAME, Compilation, Incident, Made, Stage
from kernelscope.stages.undefined_values import UndefinedMemory, undefined_memory
from kernelscope.store import folder
from kernelscope.store.writer_thread import Writer

LINE = Frame("/home/me/train.py", 5, "f")
DIVISION = "RuntimeError: inductor_cpu_throw_if_integer_div_error, /venv/cpp_prefix.h:827, ZeroDivisionError"
POST_GRAD = """\
class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[4, 8][8, 1]cpu"):
        # File: /home/me/train.py:5 in f, code: out = torch.empty(n, x.shape[1])
        empty: "f32[16, 8][8, 1]cpu" = torch.ops.aten.empty.memory_format([16, 8], device = device(type='cpu'))

        # No stacktrace found for following nodes
        slice_scatter: "f32[16, 8][8, 1]cpu" = torch.ops.aten.slice_scatter.default(empty, arg0_1, 0, 0, 4);  empty = None

        # File: /home/me/train.py:7 in f, code: return out.sum(0) * 2
        sum_1: "f32[8][1]cpu" = torch.ops.aten.sum.dim_IntList(slice_scatter, [0])
        mul: "f32[8][1]cpu" = torch.ops.aten.mul.Tensor(arg0_1, 2)
        return (sum_1, mul)
"""  # noqa: E501


def recorded(
    path: Path, status: int = 0, exception: str = "", *records: Compilation | Stage | Incident
) -> Recorded:
    path.mkdir()
    writer = Writer(path, info(settings={"stages": True}))
    writer.compiled.extend(records)
    if exception:
        writer.set_metadata("exception", exception)
        writer.set_metadata("exception_at", "/home/me/train.py:5 in f")
    elif not status:
        writer.finding(Finding("nothing-compiled", "no compiled code ran: Dynamo left f to Python"))
    writer.close()
    folder.write_invocation(path, folder.Invocation(("python", "train.py"), "/", 1, 2, status))
    return Recorded(path, status)


def compiled(made: Made) -> list[Compilation | Stage]:
    return [
        Compilation(0, "0/0", FRAME, name="f", made="compiled", origin=(LINE,)),
        Stage(0, "dynamo", "python", "class GraphModule: ..."),
        Compilation(1, "0/0", "inference", 0, "0_inference", "key", made, 1, 20),
    ]


def test_a_failure_of_the_compiler_that_the_program_survives(tmp_path: Path) -> None:
    failure = Incident("failure", 1, "0/0", "RuntimeError: no (lowering digamma)", (LINE,), stage="lowering")
    run = recorded(tmp_path / "a.kscope", 0, "", *compiled("failed"), failure)

    trouble = compiling_of(run.runs).trouble

    assert trouble is not None
    assert trouble.kind == "nothing-compiled"
    assert "the compiler fails, and the program goes on without it: RuntimeError: no" in trouble.what
    assert trouble.line == LINE
    assert "suppress_errors" in trouble.advice
    answer = Answer()
    verdicts.of_trouble(answer, trouble)
    assert answer.fault == COMPILER


def test_a_graph_that_another_backend_has_is_no_trouble(tmp_path: Path) -> None:
    run = recorded(tmp_path / "a.kscope", 0, "", *compiled("compiled")[:2])
    assert compiling_of(run.runs).trouble is None


@pytest.mark.parametrize(
    ("eager", "is_same"),
    [("RuntimeError: ZeroDivisionError", True), ("RuntimeError: other", False), ("RuntimeError: no", False)],
)
def test_compiled_code_that_says_where_it_noticed_it(eager: str, is_same: bool, tmp_path: Path) -> None:
    runs = recorded(tmp_path / "a.kscope", 1, DIVISION), recorded(tmp_path / "b.kscope", 1, eager)

    assert is_same_failure(*runs) == is_same
    answer = Answer()
    if is_same:
        verdicts.of_own_failure(answer, *runs, "")
        assert answer.fault == PROGRAM
    else:
        verdicts.of_failure(answer, *runs)
        assert answer.what.startswith("not as it fails without the compiler: ")


def test_memory_that_nothing_has_written() -> None:
    found = UndefinedMemory("empty", LINE)
    assert undefined_memory(POST_GRAD, ["sum_1", "slice_scatter"]) == found
    assert undefined_memory(POST_GRAD, ["mul"]) is None
    assert undefined_memory(POST_GRAD, ["sum_1"]) is None  # another kernel has made its input
    other = POST_GRAD.replace("empty.memory_format", "new_empty_strided.default")
    assert undefined_memory(other, ["slice_scatter"]) == found
    assert undefined_memory("not a graph", ["mul"]) is None


DATA_DEPENDENT = """\
Unsupported: Data-dependent branching
  Explanation: Detected data-dependent branching. Dynamo does not support tracing dynamic control flow.
  Hint: This graph break is fundamental - it is unlikely that Dynamo will ever be able to trace your code.
  Hint: Use `torch.cond` to express dynamic control flow.
"""
REFUSED = "RuntimeError: torch.compile with fullgraph=True found no compiled frames. Skipped frames:\n  - f"


def test_what_dynamo_cannot_trace_is_a_limit_and_not_a_bug(tmp_path: Path) -> None:
    reason, _, detail = DATA_DEPENDENT.partition("\n")
    failure = Incident("failure", 0, "0/0", reason, (LINE,), detail, stage="dynamo")
    run = recorded(tmp_path / "a.kscope", 1, DATA_DEPENDENT, *compiled("failed")[:2], failure)
    answer = Answer()

    assert verdicts.of_failure(answer, run, recorded(tmp_path / "b.kscope", 1, REFUSED)) is not None

    assert (answer.kind, answer.fault, answer.line) == ("crash-in-compile", PROGRAM, LINE)
    assert "the function returns; torch then refuses fullgraph=True" in answer.eager
    assert answer.reason == "torch's hint: Use `torch.cond` to express dynamic control flow."
    assert "leave out fullgraph=True" in answer.next[0]


@pytest.mark.parametrize(
    ("reason", "detail", "advice"),
    [
        (
            "InvalidCxxCompiler: No working C++ compiler found in cpp.cxx",
            "",
            "install g++",
        ),
        (
            "CppCompileError: C++ compile error",
            "error: Python.h: No such file or directory",
            "python3-dev",
        ),
        ("OSError: [Errno 28] No space left on device: '/x'", "", "free some space"),
    ],
)
def test_what_the_machine_lacks_is_not_a_bug_of_the_compiler(
    reason: str, detail: str, advice: str, tmp_path: Path
) -> None:
    failure = Incident("failure", 0, "0/0", reason, (LINE,), detail, stage="dag")
    run = recorded(tmp_path / "a.kscope", 1, f"InductorError: {reason}", *compiled("failed")[:2], failure)
    answer = Answer()

    verdicts.of_failure(answer, run, recorded(tmp_path / "b.kscope", 0, ""))

    assert (answer.kind, answer.fault, answer.where) == ("crash-in-compile", MACHINE, "")
    assert advice in answer.next[0]
    assert "(not a bug of the compiler)" in next(iter(answer_lines(answer)))


def test_a_failure_of_the_compiler_with_fullgraph_is_a_bug(tmp_path: Path) -> None:
    failure = Incident("failure", 1, "0/0", "RuntimeError: no", (LINE,), "no", stage="lowering")
    run = recorded(tmp_path / "a.kscope", 1, "InductorError: RuntimeError: no", *compiled("failed"), failure)
    answer = Answer()

    verdicts.of_failure(answer, run, recorded(tmp_path / "b.kscope", 1, REFUSED))

    assert answer.fault == COMPILER
    assert "fails differently" not in answer.eager


@pytest.mark.parametrize(
    ("eager", "is_same"),
    [
        ("IndexError: index 12 is out of bounds for dimension 0 with size 10", True),
        ("IndexError: index out of range in self", True),
        ("ValueError: no data", False),
    ],
)
def test_an_index_that_is_out_of_bounds_is_the_programs(eager: str, is_same: bool, tmp_path: Path) -> None:
    said = "RuntimeError: kernel, /cache/hz/chz.main.cpp:46, index out of bounds: 0 <= tmp10 < 10L"
    runs = recorded(tmp_path / "a.kscope", 1, said), recorded(tmp_path / "b.kscope", 1, eager)
    assert is_same_failure(*runs) == is_same


def test_other_random_numbers_than_eager_are_not_called_a_bug(tmp_path: Path) -> None:
    said = "AssertionError: (tensor(4140.), tensor(4006.))"
    answer, run = Answer(), recorded(tmp_path / "a.kscope", 1, said)
    verdicts.of_failure(answer, run, recorded(tmp_path / "b.kscope", 0))
    verdicts.of_random_numbers(answer, 1)
    assert (answer.kind, answer.fault) == ("exception", UNKNOWN)
    assert "code and eager draw different random numbers (1 buffer)" in answer.reason
    assert "fallback_random = True" in answer.next[0]
