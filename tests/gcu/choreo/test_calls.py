"""What the C++ compiler says of a call's arguments is told of data and numbers, at the line of the call."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernelscope.gcu import toolchain
from kernelscope.gcu.choreo import ChoreoError, translate
from kernelscope.gcu.choreo.cpp.words import compiler_words
from kernelscope.gcu.choreo.cpp.words.call_words import of_call

KERNELS = """__cok__ {
__co_device__ void k(int* x, float* y) { x[0] = static_cast<int>(y[0]); }
template <class T> __co_device__ void t(T* x, T n) { x[0] = n; }
template <int N> __co_device__ void u(int* x) { x[0] = N; }
__co_device__ int o(int* x) { return x[0]; }
__co_device__ int o(float* x, int n) { return n + static_cast<int>(x[0]); }
__co_device__ float two(const float* x, int n) { return x[n]; }
}
__co__ void other(s32 [4] x) { x.at(0) = 1; }
__co__ void f(s32 [4] x, f32 [4] y, f16 [4] h, int n) {
  CALL
}
int main() {
  auto y = choreo::make_spandata<choreo::f32>(4);
  auto z = choreo::make_spandata<choreo::s32>(4, 4);
  HOST
}
"""
LINES = {  # what stands in f → what is said of it
    "call k(x, 3);": "argument 2 of `k` must be f32 data, not a number (s32); give it data",
    "call k(x);": "`k` takes 2 arguments (s32 data, f32 data); this call gives it fewer",
    "call k(x, y, n);": "`k` takes 2 arguments (s32 data, f32 data); this call gives it more",
    "call k(y, x);": "argument 1 of `k` must be s32 data, not f32 data; give it data of that type",
    "call two(y, x);": "argument 2 of `two` must be a number (s32), not s32 data; give it one element",
    "m = 1.0f + call two(y);": "`two` takes 2 arguments (f32 data, a number (s32)); this call gives it fewer",
}


def test_wrong_arguments_are_told_at_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_words, "MOST_PLACES", 99)
    body = "\n  ".join(LINES)
    source = KERNELS.replace("CALL", body).replace("HOST", "other(y);")
    cpp = tmp_path / "program.cpp"
    cpp.write_text(translate(source, "a.co", located=True).cpp, encoding="utf-8")
    command = toolchain.compile_command("-fsyntax-only", str(cpp), flags=("-std=c++17", "-O0"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = compiler_words.in_words(done.stderr, source, "a.co")
    for call, message in LINES.items():
        line = source[: source.index(f"  {call}\n")].count("\n") + 1
        assert f"a.co:{line}:{call.index('call') + 3}: error: {message}" in text
    line = source[: source.index("  other(y)")].count("\n") + 1
    where = f"a.co:{line}:"
    assert "argument 1 of `other` must be s32 data of rank 1, not f32 data of rank 1; give it data" in next(
        each for each in text.splitlines() if each.startswith(where)
    )


NO_MATCH = "no matching function for call to ‘{}’"
TOLD = [
    # the error, its notes (g++ or clang), what is said
    (
        NO_MATCH.format("t(choreo::names::s32* __restrict__&, float)"),
        "candidate: ‘template<class T> void t(T*, T)’\n"
        "  deduced conflicting types for parameter ‘T’ (‘int’ and ‘float’)",
        "`t` cannot be called with (s32 data, a number (f32)): `T` would be s32 and f32; give both one type",
    ),
    (
        "cannot convert ‘choreo::names::s32* __restrict__’ {aka ‘int* __restrict__’} to ‘float*’",
        "  initializing argument 1 of ‘void t(T*, T) [with T = float]’",
        "argument 1 of `t` must be f32 data, not s32 data; give it data of that type, or change the function",
    ),
    (
        NO_MATCH.format("u<n>(choreo::names::s32* __restrict__&)"),
        "candidate: ‘template<int N> void u(int*)’\n  ‘n’ is not a constant expression",
        "`n` stands between < and >, so it must be a number that is known before the program runs",
    ),
    (
        NO_MATCH.format("u(choreo::names::s32* __restrict__&)"),
        "candidate: ‘template<int N> void u(int*)’\n  couldn’t deduce template parameter ‘N’",
        "the arguments do not determine `N` of `u`; give it: `call u<…>(…)`",
    ),
    (
        NO_MATCH.format("o(choreo::names::f16* __restrict__&, int)"),
        "candidate: ‘int o(int*)’\n  candidate expects 1 argument, 2 provided\n"
        "candidate 2: ‘int o(float*, int)’",
        "`o` cannot be called with (f16 data, a number (s32)); there is `int o(int*)`, `int o(float*, int)`",
    ),
    (
        "‘const void z’ has incomplete type",
        "",
        "it returns nothing; write the call as a statement",
    ),
    (
        "no matching function for call to 'k'",
        "candidate function not viable: no known conversion from 'float *' to 'int *' for 1st argument",
        "argument 1 of `k` must be s32 data, not f32 data; give it data of that type, or change the function",
    ),
    (
        "no matching function for call to 'k'",
        "candidate function not viable: requires 2 arguments, but 1 was provided",
        "`k` takes 2 arguments; this call gives it 1",
    ),
]


@pytest.mark.parametrize(("error", "notes", "message"), TOLD)
def test_what_compilers_say(error: str, notes: str, message: str) -> None:
    found = of_call(error, "".join(f"a.co:2:3: note: {note}\n" for note in notes.split("\n")))
    assert found is not None
    assert message in found.text


@pytest.mark.parametrize("error", ["‘nothing’ was not declared in this scope", "cannot convert ‘int’ to ‘A’"])
def test_other_errors_stay(error: str) -> None:
    assert of_call(error, "a.co:2:3: note: declared here\n") is None


def test_a_name_between_angle_brackets_must_be_known() -> None:
    source = KERNELS.replace("CALL", "call u<nowhere>(x);")
    with pytest.raises(ChoreoError, match="`nowhere` is declared neither here nor in the C") as caught:
        translate(source)
    assert (caught.value.line, caught.value.column) == (11, 10)
