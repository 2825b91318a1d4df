"""Constructs of hardware-minded programs: what is wrong with them is said; what C++ says is put in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelscope.cli import main
from kernelscope.gcu.choreo import ChoreoError, parse, show, translate

from .corpus_programs import PROGRAMS

HEAD = "__co__ void f(s32 [4, 8] x, f32 [8] y, int n) {\n"

REFUSED = [
    # body, line (the body starts on 2), what is said
    ("with i in [2], j in [3] where i <-> j { }", 2, "i <-> j: the bounds 2 and 3 differ"),
    ("with i in [2] where i <-> n { }", 2, "i <-> n needs two bounded variables of this `with`"),
    ("with {i, j} in [2, 2] where i < j { }", 2, "of <-> between two bounded variables"),
    ("a = dma.copy x.modspan(3, _).at(2, 0) => local;", 2, "tile 2 is out of range: 4 elements have 2 such"),
    ("a = dma.copy x.modspan(0, _).at(0, 0) => local;", 2, "a size must be above 0, not 0"),
    ("a = dma.copy x.modspan(3, _) => local;", 2, "at(…) after modspan(…)"),
    ("a = dma.copy x.view(2, 2).from(3, 0) => local;", 2, "tile 3 is out of range: 4 elements have 3 such"),
    ("a = dma.copy x.view(2, 2) => local;", 2, "from(…) after view(…)"),
    ("a = dma.copy x.subspan(2, 2).step(0, 1).at(0, 0) => local;", 2, "a step must be above 0, not 0"),
    ("a = dma.copy x.subspan(2, 2).stride(4, 1).at(0, 0) => local;", 2, "4 elements have 0 such tiles"),
    ("a = dma.copy x.chunk(2, 2).step(1, 1).at(0, 0) => local;", 2, "`step` cannot stand here, after chunk"),
    ("a = dma.copy x.subspan(2) => local;", 2, "a tile of rank 1 in data of rank 2"),
    ("sync.barrier : block;", 2, "sync.barrier : block needs a parallel around it"),
    ("parallel p by 2 { sync.barrier : device; }", 2, "only all threads of one block can synchronise"),
    ("__atomic_add(x, 1);", 2, "__atomic_add changes an element: its first argument is data.at(…)"),
    ("__atomic_add(x.at(0, 0));", 2, "__atomic_add takes 2 arguments, not 1"),
    ("__atomic_and(y.at(0), 1);", 2, "__atomic_and cannot change an element of f32"),
    ("__atomic_nand(x.at(0, 0), 1);", 2, "there is no builtin `__atomic_nand`"),
    ("foreach i in [2] : faster { }", 2, "`faster` is not a directive for loops; use vectorize or unroll"),
    ("for (int i = 0; i < 4; ++i) { }", 2, "`for` is C++; a loop of Choreo is"),
    ("const int k = 3;", 2, "`const` is C++"),
    ("__cok__ { }", 2, "move it above the `__co__`"),
    ("c = mma.fill 0.0f;\nmma.row.col c, x, x;", 3, "a matrix that mma.fill or mma.load has made"),
    ("a = mma.load x;\nc = mma.fill 0.0f;\nmma.row.col c, a, a;", 4, "[4, 8] and [4, 8] do not fit"),
    ("a = mma.load x;\nmma.store a, x.subspan(4, 4).at(0, 0);", 3, "shapes [4, 8] and [4, 4] do not fit"),
    ("a = mma.load y;", 2, "mma needs data of rank 2, not [8]"),
    ("c = mma.fill 0.0f;\nmma.row.col.sp c, c, c;", 3, "`mma.row.col.sp` is only known to the hardware"),
    ("c = mma.fill 0.0f;\nc = 3;", 3, "a matrix can be changed by += -= *= /= and a number"),
    ("c = mma.fill 1;\nc /= 2;", 3, "write 2.0f, not 2"),
    ("tma.transp<1, 0> x => x;", 2, "there is no tma.transp; use copy or any"),
    ("dma.move x => x;", 2, "there is no dma.move; use copy, pad, transp or any"),
    ("a = dma.copy x.span_as([]) => local;", 2, "at least one size is expected here"),
    ("local s32 [] z;", 2, "at least one size is expected here"),
    ("parallel p by [] { }", 2, "at least one size is expected here"),
    ("foreach i in [] { }", 2, "there is nothing to count here"),
    ("a = dma.copy x.subspan().at() => local;", 2, "a tile of rank 0 in data of rank 2"),
    ("a = dma.copy x.view().from() => local;", 2, "a tile of rank 0 in data of rank 2"),
    (
        "with i in [4] {\nforeach i(:1:) {\nx.at(i, 0) = 1;\n}\n}",
        4,
        "index 0..4 is out of bounds for 4 elements",
    ),
    ("mdspan s = 3", 3, "expected `;`"),
    ("shared f32 z;", 2, "a shared buffer needs its shape in brackets"),
    ("a = dma.copy.swiz<1, 2> x => local;", 2, "one setting is expected between < and >"),
    ("f32 a = 1.0f;\na = 2.0f;", 3, "declare it `mutable`"),
    ("local s32 [4] z;\ntma.copy.async<e> y => z;", 3, "`e` is not an event"),
    ("local s32 [4] z;\ntma.copy.async<z> y => z;", 3, "`z` is not an event"),
    ("local s32 [2 - 4] z;", 2, "a dimension cannot be below 0, as -2 is"),
    ("local s32 [99999, 99999, 99999, 99999] z;", 2, "has more elements than any memory"),
    ("a = dma.copy.async y => local;\nif (n > 1) { wait a; }", 2, "a condition can skip its wait"),
    ("a = dma.copy.async y => local;\nif (n > 1) { n2 = 1; } else { wait a; }", 2, "can skip its wait"),
    (
        "a = dma.copy y => local;\nb = dma.copy x.subspan(1, 8).at(0, 0) => local;\nswap(a, b);",
        4,
        "`b` holds s32, `a` f32: they cannot be exchanged",
    ),
    (
        "a = dma.copy x => local;\nb = dma.copy x.subspan(4, 4).at(0, 0) => local;\nswap(a, b);",
        4,
        "`b` holds [4, 4], `a` [4, 8]: they cannot be exchanged",
    ),
    (
        "dma.copy x => local;",
        2,
        "nothing can read the result of this DMA, because it has no name; write `f =",
    ),
    ("y = dma.copy x => local;\ny = 3;", 2, "`y` is already declared, and not as a future"),
    ("a = dma.copy x => local;\na = 2.0f;", 3, "it is a future, which only a DMA fills: `a = dma.copy …;`"),
    ("x = y;", 2, "write `x.at(…) = …;` for an element, `dma.copy … => x;` for all of them"),
    ("n = 3;", 2, "a parameter keeps its value, so copy it: `mutable other = n;`"),
    ("q += 3;", 2, "`q` is not declared, so it cannot be assigned to; write `mutable` and its first value"),
    ("foreach i in [4] { i += 1; }", 2, "only its loop or `parallel` gives it a value"),
    ("local s32 [4] b[2];\nb = 3;", 3, "it is an array of buffers: write `dma.copy … => b[…];`"),
    ("z = x.map<local>;", 2, "there is no member `map`; data has .at(…), .chunkat(…)"),
    (
        "c = mma.fill 0.0f;\nreduce_max(y, c, 1);",
        3,
        "put the matrix into a buffer with mma.store, and",
    ),
    ("frag.reduce_max y, y, 1;", 2, "`frag.` works on the registers of an accelerator and is not part of"),
    ("apply {i, j} in x.span { }", 2, "`apply` works on the registers of an accelerator"),
    ("frag f32 [4] a;", 2, "`frag` works on the registers of an accelerator"),
    (f"x.at(0, 0) = {'(' * 3000}1{')' * 3000};", 1, "nested too deeply"),
]


AT_COLUMN = [
    # body, its column on line 2, what is said
    ("a = dma.copy x.subspan(2, 2).step(1, -1).at(0, 0) => local;", 38, "a step must be above 0, not -1"),
    ("a = dma.copy x.subspan(2, 2).stride(0, 1).at(0, 0) => local;", 37, "a stride must be above 0, not 0"),
]


@pytest.mark.parametrize(("body", "column", "message"), AT_COLUMN, ids=["step", "stride"])
def test_what_is_wrong_is_pointed_at(body: str, column: int, message: str) -> None:
    with pytest.raises(ChoreoError) as caught:
        translate(HEAD + body + "\n}\n")
    assert message in caught.value.message
    assert (caught.value.line, caught.value.column) == (2, column)


def test_the_shape_of_the_result_is_known_before_the_function_runs() -> None:
    head = "__co__ auto f(s32 [4] x) {\n"
    with pytest.raises(ChoreoError, match=r"and `a` of its shape while it runs") as caught:
        translate(head + "a = dma.pad<{1}, {1}, {0}, 0> x => local;\ns32 [a.span] o;\nreturn o;\n}")
    assert caught.value.line == 3


def test_a_word_of_cpp_names_no_function() -> None:
    with pytest.raises(ChoreoError, match="`double` is a word of C"):
        translate("__co__ void double(s32 [4] x) {\n}")


def test_a_dimension_of_one_says_nothing_about_the_order() -> None:
    """A whole block of an array lies in one piece, however many dimensions it is one element of."""
    target = "out.subspan(1, 1, 2, 3).at(a, b, 0, 0).span_as(6)"
    body = f"foreach {{a, b}} in [2, 2] {{ dma.copy y => {target}; }}"
    translate(f"__co__ void f(s32 [6] y, s32 [2, 2, 2, 3] out) {{\n{body}\n}}")
    with pytest.raises(ChoreoError, match="only contiguous data"):
        translate(f"__co__ void f(s32 [6] y, s32 [2, 2, 2, 4] out) {{\n{body}\n}}")


@pytest.mark.parametrize(("body", "line", "message"), REFUSED, ids=[r[2][:40] for r in REFUSED])
def test_a_wrong_use_gets_a_sentence(body: str, line: int, message: str) -> None:
    with pytest.raises(ChoreoError) as caught:
        translate(f"{HEAD}{body}\n}}", "bad.co")
    assert message in caught.value.message
    assert caught.value.line == line, str(caught.value)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_a_program_is_the_same_after_formatting(path: Path) -> None:
    tree = parse(path.read_text(encoding="utf-8"))
    assert parse(show(tree)).functions == tree.functions


def check(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    file = tmp_path / "k.co"
    file.write_text(text)
    done = main(["choreo", "check", str(file)])
    return done, capsys.readouterr().err.replace(str(tmp_path), "")


KERNEL = """__cok__ {{
__co_device__ void k(int* x) {{
  {}
}}
}}
__co__ void f(s32 [4] x) {{
  call k(x);
}}
"""


SQUARES = """__co__ auto squares(s32 [2, 2] x) {
  s32 [2, 2] out;
  parallel p by 1 {
    m = mma.load x;
    mma.row.col m, m, m;
    mma.store m, out;
  }
  return out;
}

int main() {
  auto x = choreo::make_spandata<choreo::s32>(2, 2);
  for (int i = 0; i < 4; ++i) x.data()[i] = i + 1;
  auto y = squares(x.view());
  for (int i = 0; i < 4; ++i) std::cout << y.data()[i] << " ";
}
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("int i = threadIdx.x;", "/k.co:3:11: error: `threadIdx` belongs to an accelerator"),
        ("auto v = __dtu_l_vclr_va();", "/k.co:3:12: error: `__dtu_l_vclr_va` belongs to an accelerator"),
        ('}\n#include "tcle.h"\nvoid g() {', "error: `tcle.h` comes with an accelerator"),
        ('}\n#include "tops/runtime.h"\nvoid g() {', "error: `tops/runtime.h` comes with an accelerator"),
        ('}\n#include "mine.h"\nvoid g() {', "error: the header `mine.h` is neither beside this file nor"),
        ('}\n#include "topsort.h"\nvoid g() {', "error: the header `topsort.h` is neither beside this file"),
        ("float4 v{};", "/k.co:3:3: error: `float4` belongs to an accelerator"),
        ("cutlass::half_t v{};", "/k.co:3:3: error: `cutlass` belongs to an accelerator"),
        ("struct dim3 { int x; }; *x = dim3{}.nothing;", "/k.co:3:39: error: "),
        ("*x = nothing; // not a float4", "/k.co:3:8: error: "),
        ("*x = nothing;", "/k.co:3:8: error: "),
    ],
)
def test_what_cpp_does_not_know_is_said_at_its_line(
    line: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done, err = check(tmp_path, KERNEL.format(line), capsys)
    assert done == 1
    assert said in err
    assert ("accelerator" in err) is ("accelerator" in said)
    assert "-std=c++17" not in err  # not the compiler's command


def test_a_matrix_may_be_multiplied_into_itself(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "squares.co"
    file.write_text(SQUARES, encoding="utf-8")
    assert main(["choreo", "run", str(file)]) == 0
    assert capfd.readouterr().out.split() == ["8", "12", "18", "26"]


def test_a_header_beside_the_program_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.h").write_text("#define WIDTH 4\ninline int three() { return 3; }\n")
    text = '#include "mine.h"\n' + KERNEL.format("*x = three() + WIDTH;").replace("[4]", "[WIDTH]")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert check(tmp_path, text, capsys) == (0, "")
