"""Programs in the style that people write: they check themselves, and NumPy agrees with what they compute."""

from __future__ import annotations

import faulthandler
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernelscope.gcu import toolchain
from kernelscope.gcu.choreo import ChoreoError, translate
from kernelscope.gcu.command_line import run_main
from kernelscope.gcu.execution.program import Program
from kernelscope.gcu.races import FLAGS as THREADS

from .corpus_expected import CHECKED_BY_MAIN, EXPECTED
from .corpus_programs import PROGRAMS, together

QUICK = ("-std=c++17", "-O1", "-fwrapv", "-fopenmp", "-fPIC")


def built(translation: Any, folder: Path) -> Program:
    source, library = folder / "program.cpp", folder / "program.so"
    source.write_text(translation.cpp, encoding="utf-8")
    toolchain.run(toolchain.compile_command("-shared", str(source), "-o", str(library), flags=QUICK))
    return Program(translation, library)


@pytest.fixture(scope="module")
def corpus() -> Iterator[Program]:
    with tempfile.TemporaryDirectory() as folder:
        yield built(together(), Path(folder))


def test_every_program_passes_its_own_checks(corpus: Program) -> None:
    """In a process of its own: a failed check ends the program."""
    code = f"import ctypes; ctypes.CDLL({str(corpus.library)!r}).main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Test Passed") == len(PROGRAMS)


def test_every_function_has_an_expected_result(corpus: Program) -> None:
    assert {f.name for f in corpus.translation.functions} == set(EXPECTED) | CHECKED_BY_MAIN


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_the_result_is_what_numpy_computes(name: str, corpus: Program) -> None:
    arguments, expected = EXPECTED[name](np.random.default_rng(0))
    given = [torch.from_numpy(a.copy()) if isinstance(a, np.ndarray) else a for a in arguments]
    result = corpus.call(name, *given)
    assert result is not None
    np.testing.assert_allclose(result.numpy(), expected, rtol=3e-5 if name == "builtins" else 3e-6, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "made", [{}, {"elide": False}, {"elide": False, "as_threads": True}], ids=["elided", "copied", "threads"]
)
def test_no_two_threads_race(made: dict[str, bool], capfd: pytest.CaptureFixture[str]) -> None:
    # The threads of this one count one after another, as they do on this machine alone: test_races.py has it.
    chosen = [path for path in PROGRAMS if "as_threads" not in made or path.stem != "histogram"]
    assert run_main(together(**made, paths=chosen), THREADS) == 0
    captured = capfd.readouterr()
    assert captured.out.count("Test Passed") == len(chosen)
    assert "WARNING: ThreadSanitizer" not in captured.err


@pytest.mark.slow
def test_a_race_is_found_in_every_run(tmp_path: Path) -> None:
    """The check above can fail, however the threads are scheduled: without its barrier, one program races."""
    source = (Path(__file__).parent / "corpus" / "tree_reduction.co").read_text()
    broken = source.replace("      sync.shared;\n", "")
    assert broken != source
    text, program = tmp_path / "program.cpp", tmp_path / "program"
    text.write_text(translate(broken).cpp, encoding="utf-8")
    toolchain.run(toolchain.compile_command(str(text), "-o", str(program), flags=THREADS))
    for _ in range(12):
        done = subprocess.run([program], capture_output=True, text=True, timeout=60)
        assert "WARNING: ThreadSanitizer" in done.stderr, done.stderr


def call_with_time(program: Program, name: str, *arguments: Any) -> None:
    """Call it; a call that hangs ends the test run instead of stopping it forever."""
    faulthandler.dump_traceback_later(60, exit=True)
    try:
        program.call(name, *arguments)
    finally:
        faulthandler.cancel_dump_traceback_later()


STOPPED = {
    # two threads wait, one event is set once
    "lost": (
        "parallel p by 3 {\n shared event e;\n inthreads.async (p == 0) { trigger e; }\n"
        " inthreads.async (p > 0) { wait e; }\n}",
        4,
        r"this waits for event `e`, which no running thread can trigger",
    ),
    # each waits for the other
    "crossed": (
        "parallel p by 2 {\n shared event a, b;\n inthreads.async (p == 0) { wait a; trigger b; }"
        " inthreads.async (p == 1) { wait b; trigger a; }\n}",
        3,
        r"this waits for event `[ab]`, which .*; 1 other thread also waits",
    ),
    "missed": (
        "parallel p by 4 {\n inthreads.async (p == 1) { sync.shared; }\n}",
        2,
        r"some threads of the block never reach this barrier",
    ),
    "alone": (
        "global event e;\nif (x.at(0) > 5) { trigger e; }\nwait e;",
        3,
        r"this waits for event `e`",
    ),
    "crowd": (
        "parallel p by 2000 {\n sync.shared;\n}",
        1,
        r"2000 threads synchronise; at most 1024 can",
    ),
    "beyond": (
        "local s32 [2] b[3];\nmutable int n = x.at(0) + 3;\nb[n].at(0) = 1;",
        3,
        r"an index is out of bounds for 3 buffers",
    ),
    "outside": (
        "parallel p by 4 {\n if (x.at(0) == 0) { x.at(p + 1) = 1; }\n}",
        2,
        r"an index is out of bounds for 4 elements",
    ),
    "divided": ("mutable int n = 3;\nn /= x.at(0);\nx.at(1) = n;", 2, r"division by zero"),
    "remaining": ("x.at(1) = 7 % x.at(0);", 1, r"division by zero"),
    "stored": ("foreach i in [4] { x.at(i) /= x.at(3 - i); }", 1, r"division by zero"),
    "rounded": ("x.at(1) = cdiv(5, x.at(2));", 1, r"cdiv needs a divisor above 0"),
    "unchosen": (
        "local s32 [2] a, b, c;\nmutable int n = x.at(0) + 3;\nd = select(n, a, b, c);\nd.at(0) = 1;",
        3,
        r"an index is out of bounds for 3 choices",
    ),
}


def test_a_program_that_cannot_go_on_is_stopped(tmp_path: Path) -> None:
    text, lines = "", {}
    for name, (body, _, _) in STOPPED.items():
        lines[name] = text.count("\n") + 1
        text += f"__co__ void {name}(s32 [4] x) {{\n{body}\n}}\n"
    program = built(translate(text), tmp_path)
    for name, (_, line, message) in STOPPED.items():
        with pytest.raises(RuntimeError) as caught:
            call_with_time(program, name, torch.zeros(4, dtype=torch.int32))
        assert re.match(rf"{name}:{lines[name] + line}:\d+: {message}", str(caught.value)), caught.value


REFUSED = [
    # program, line, what is said
    ("__co__ void f() {\n  inthreads (1 == 1) { }\n}", 2, "inthreads needs a parallel around it"),
    (
        "__co__ void f() {\n  parallel p by 2 {\n    inthreads (1 == 1) { }\n  }\n}",
        3,
        "must depend on the thread",
    ),
    (
        "__co__ void f() {\n  parallel p by 2 {\n    inthreads (p == 0) {\n"
        "      inthreads.async (p == 1) { }\n    }\n  }\n}",
        4,
        "inthreads.async can only be the outermost inthreads",
    ),
    (
        "__co__ void f() {\n  parallel p by 2 {\n    shared event e;\n    wait e;\n  }\n}",
        4,
        "nothing triggers it",
    ),
    ("__co__ void f() {\n  trigger e;\n}", 2, "`e` is not an event"),
    ("__co__ void f() {\n  shared event e;\n  trigger e;\n}", 2, "a shared event needs a parallel around it"),
    ("__co__ void f() {\n  sync.shared;\n}", 2, "sync.shared needs a parallel around it"),
    ("__co__ void f() {\n  sync.nobody;\n}", 2, "there is no sync.nobody"),
    (
        "__co__ void f(int n) {\n  parallel p by 2 {\n    sync.global;\n    sync.shared;\n  }\n}",
        3,
        "sync.global inside parallel",
    ),
    (
        "__co__ void f() {\n  mutable int n = 0;\n  parallel p by 2 {\n    n = p;\n    sync.shared;\n  }\n}",
        4,
        "`n` is written by every thread at once",
    ),
    ("__co__ void f(s32 [4] x) {\n  a = dma.copy x => local;\n  rotate(a);\n}", 3, "at least two futures"),
    ("__co__ void f(s32 [4] x) {\n  rotate(x, x);\n}", 2, "`x` is not a future"),
    (
        "__co__ void f(s32 [4] x, f32 [4] y) {\n  a = dma.copy x => local;\n  b = dma.copy y => local;\n"
        "  swap(a, b);\n}",
        4,
        "they cannot be exchanged",
    ),
    (
        "__co__ void f(s32 [4] x) {\n  a = dma.copy.async x => local;\n"
        "  b = dma.copy.async a.data => local;\n  wait a, b;\n}",
        3,
        "the data of `a` is read before its wait",
    ),
    ("__co__ void f(s32 [4] x) {\n  b = dma.copy.async x => local after a;\n}", 2, "`a` is not a future"),
    (
        "__co__ void f(s32 [4] x, s32 [4] o) {\n  a = dma.copy.async x => local;\n  o.at(0) = a.at(0);\n"
        "  wait a;\n}",
        3,
        "read before its wait",
    ),
    (
        "__co__ void f(s32 [4] x, int n) {\n  a = dma.copy.async x => local;\n"
        "  b = dma.copy.async x => local;\n  c = select(n == 1, a, b);\n  wait c;\n}",
        5,
        "`c` is a selection; wait for a and b",
    ),
    (
        "__co__ void f(s32 [4] x) {\n  local s32 [4] b[2];\n  dma.copy x => b;\n}",
        3,
        "`b` is an array of buffers",
    ),
    (
        "__co__ void f(s32 [4] x) {\n  local s32 [4] b[2];\n  dma.copy x => b[2];\n}",
        3,
        "index 2 is out of bounds",
    ),
    (
        "__co__ void f(s32 [4] x) {\n  local s32 [4] b[2];\n  dma.copy x => b[0][1];\n}",
        3,
        "2 indices for an array",
    ),
    ("__co__ void f(s32 [4] x) {\n  b = select(1 == 1, x);\n}", 2, "at least two choices"),
    (
        "__co__ void f(s32 [4] x, s32 [5] y) {\n  b = select(1 == 1, x, y);\n}",
        2,
        "select needs choices of one shape",
    ),
    ("__co__ void f(s32 [4] x) {\n  parallel p by 2 {\n    return;\n  }\n}", 3, "return inside parallel"),
    ("__co__ int f(s32 [4] x) {\n  return;\n}", 2, "`f` must return a value"),
    ("__co__ int f(s32 [4] x) {\n}", 1, "`f` must end with a return"),
    ("__co__ int f(s32 [4] x) {\n  return x;\n}", 1, "`f` returns a number, not [4]"),
    ("__co__ f32 [4] f(s32 [4] x) {\n  return x;\n}", 1, "`f` returns f32, not s32"),
    (
        "__co__ auto f(s32 [4] x, s32 [5] y, int n) {\n  if (n > 0) { return x; }\n  return y;\n}",
        2,
        "this `return` gives s32 [4], another one s32 [5]",
    ),
    ("__co__ void f(f32 [4] x) {\n  x.at(0) = ~1.5f;\n}", 2, "`~` needs an integer"),
    ("__co__ void f(f32 [4] x) {\n  x.at(0) = __alignup(1.5f, 2);\n}", 2, "__alignup needs integers"),
    ("__co__ void f(f32 [4] x) {\n  x.at(0) = __alignup(3, 0);\n}", 2, "needs a divisor above 0"),
    ("__co__ void f(f32 [4] x) {\n  x.at(0) = __gelu(1.0f, 2.0f);\n}", 2, "__gelu takes 1 arguments, not 2"),
    ("__co__ void f(f32 [4] x) {\n  x.at(0) = __to<text>(1);\n}", 2, "`text` is not a type"),
    ("__co__ void f(f32 [4] x) {\n  local f32 [x.span / {2, 2}] y;\n}", 2, "needs spans of one rank"),
    (
        "__co__ void f(f32 [4] x) {\n  foreach i in [4] {\n"
        "    y = dma.copy x.chunkat(i - 1) => local;\n  }\n}",
        3,
        "chunk -1..2 is out of range",
    ),
    ("__co__ void f(f32 [4] x) {\n  break;\n}", 2, "`break` needs a loop around it"),
    (
        "__co__ void f(f32 [4] x) {\n  foreach {i, j} in [2, 2] {\n    break;\n  }\n}",
        3,
        "one of several loops",
    ),
    (
        "__co__ void f(f32 [4] x) {\n  println(&(1 + 2));\n}",
        2,
        "only a variable or an element has an address",
    ),
    ("__co__ void f(f32 [4] x) {\n  half a = 1.0f\n}", 3, "expected `;`"),
    ("#if 1\n__co__ void f() { }\n", 1, "this condition has no #endif"),
    ("#else\n__co__ void f() { }\n", 1, "#else without #if"),
    ("#if 0\n#elif 1/0\n#endif", 2, "division by zero"),
    ("__co__ void f() {\n#error not like this\n}", 2, "#error not like this"),
    ("#define F(a, b) a\n__co__ void f(f32 [F(4)] x) { }", 2, "macro `F` takes 2 arguments, not 1"),
    (
        "#define F(a) a\n__co__ void f(s32 [4] x) {\n  x.at(F((0) = 1;\n}",
        3,
        "its parenthesis is never closed",
    ),
    ("#define W $\n__co__ void f(f32 [4] x) {\n  x.at(W) = 1.0f;\n}", 3, "macro `W`: unexpected text"),
    ("#define N 3\n__co__ void f(f32 [4] x) {\n  x.at(N + 1) = 1.0f;\n}", 3, "index 4 is out of bounds"),
]


@pytest.mark.parametrize(("source", "line", "message"), REFUSED, ids=[r[2][:40] for r in REFUSED])
def test_a_wrong_program_gets_a_sentence(source: str, line: int, message: str) -> None:
    with pytest.raises(ChoreoError) as caught:
        translate(source, "bad.co")
    assert message in caught.value.message
    assert caught.value.line == line, str(caught.value)
