"""Choreo text and trees: round trips, formatting, and what is refused, with the exact place."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelscope.gcu.choreo import ChoreoError, parse, show, translate
from kernelscope.gcu.choreo.syntax import tree

PROGRAMS = sorted((Path(__file__).parent / "co").glob("*.co"))

names = st.sampled_from(["a", "b", "x", "lf", "out", "n0"])
literals = st.one_of(
    st.integers(0, 10**6).map(tree.Int), st.sampled_from(["1.0f", "0.5", "2.5e-3f", "1e10"]).map(tree.Float)
)
binary = st.sampled_from(
    ["||", "&&", "==", "<", ">=", "<<", "+", "-", "*", "/", "%", "|", "^", "&", "#", "#-"]
)
datas = names.map(tree.Name) | names.map(lambda n: tree.Member(tree.Name(n), "data"))


def _grow(inner: st.SearchStrategy[tree.Expr]) -> st.SearchStrategy[tree.Expr]:
    several = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(tree.Binary, binary, inner, inner),
        st.builds(tree.Unary, st.sampled_from(["!", "#", "~", "&"]), inner),
        st.builds(tree.CallValue, st.sampled_from(["f", "g"]), several, st.just(()) | several),
        st.builds(tree.Unary, st.just("-"), literals),
        st.builds(tree.Ternary, inner, inner, inner),
        st.builds(tree.Builtin, st.sampled_from(["__exp", "__max", "select", "cdiv", "__cast_f32"]), several),
        st.builds(tree.At, datas, several),
        st.builds(tree.Count, datas),
        st.builds(tree.Item, names.map(tree.Name), inner),
        st.builds(tree.Tuple, several),
        st.builds(tree.Mdspan, several),
        st.builds(tree.ChunkAt, datas, several),
        st.builds(tree.Tile, datas, st.sampled_from(["chunk", "subspan"]), several, several),
        st.builds(tree.SpanAs, datas, several),
    )


exprs = st.recursive(literals | names.map(tree.Name) | st.just(tree.Whole()), _grow, max_leaves=12)
parts = st.lists(exprs, min_size=1, max_size=2).map(tuple)
dmas = st.builds(
    tree.Dma,
    kind=st.sampled_from(["copy", "transp"]),
    source=datas,
    target=st.sampled_from(["local", "shared"]) | datas,
    settings=st.just(()),
    is_async=st.booleans(),
    after=st.sampled_from(["", "lf"]),
).map(lambda d: d if d.kind == "copy" else tree.Dma("transp", d.source, d.target, (tree.Int(1), tree.Int(0))))
dims = st.lists(st.integers(1, 64) | st.sampled_from(["M", "N", "?"]), min_size=1, max_size=3).map(tuple)


def _statements(inner: st.SearchStrategy[tree.Stmt]) -> st.SearchStrategy[tree.Stmt]:
    block = st.lists(inner, max_size=3).map(tuple)
    level = st.builds(tree.Level, names.map(lambda n: (n,)), exprs.map(lambda e: (tree.Int(4),)))
    bind = st.builds(tree.Bind, st.just(("i", "j")), exprs, st.sampled_from(["", "v"]), st.just(True))
    limits = st.none() | literals
    ranges = st.builds(tree.Range, names, literals, limits, limits)
    return st.one_of(
        st.builds(tree.Parallel, st.lists(level, min_size=1, max_size=2).map(tuple), block),
        st.builds(tree.With, st.lists(bind, min_size=1, max_size=2).map(tuple), block),
        st.builds(tree.Foreach, st.lists(bind | ranges, min_size=1, max_size=2).map(tuple), block),
        st.builds(tree.If, exprs, block, block),
        st.builds(tree.While, exprs, block),
        st.builds(tree.InThreads, exprs, block, st.booleans()),
    )


simple = st.one_of(
    st.builds(
        tree.DeclareBuffer, st.sampled_from(["f32", "s8"]), parts, names, st.sampled_from(["", "local"])
    ),
    st.builds(tree.DeclareScalar, st.sampled_from(["f32", "int"]), names, st.none() | exprs, st.booleans()),
    st.builds(tree.DeclareSpan, names, exprs),
    st.builds(tree.Assign, names, exprs, st.sampled_from(["=", "+=", "*="])),
    st.builds(tree.Assign, names, dmas),
    st.builds(tree.Store, st.builds(tree.At, datas, parts), exprs, st.sampled_from(["=", "-="])),
    st.builds(tree.Do, dmas),
    st.builds(tree.Return, st.none() | exprs),
    st.builds(tree.Wait, st.lists(names.map(tree.Name), min_size=1, max_size=3).map(tuple)),
    st.builds(tree.Trigger, st.lists(names.map(tree.Name), min_size=1, max_size=2).map(tuple)),
    st.builds(tree.Rotate, st.lists(names, min_size=2, max_size=3).map(tuple)),
    st.builds(tree.Sync, st.sampled_from(["shared", "global", "local"])),
    st.builds(tree.DeclareEvent, names, st.sampled_from(["shared", "global", "local"]), st.just(()) | parts),
    st.builds(tree.Break) | st.builds(tree.Continue),
    st.builds(tree.Swap, names, names),
    st.builds(tree.Call, names, parts, st.just(()) | st.just((tree.Int(3),))),
    st.builds(tree.Print, parts, st.booleans()),
    st.builds(tree.Assert, exprs, st.sampled_from(["", '"why"'])),
    st.just(tree.Cpp('"foo();"')),
    st.just(tree.Remark("// a remark")),
)
functions = st.builds(
    tree.Function,
    st.sampled_from(["auto", "void", "f32"]),
    st.sampled_from(["f", "kernel_1"]),
    st.lists(
        st.builds(tree.Parameter, st.just("f32"), names, dims | st.none(), st.just(False)), max_size=3
    ).map(tuple),
    st.lists(st.recursive(simple, _statements, max_leaves=6), max_size=4).map(tuple),
)


@settings(max_examples=100, deadline=None)
@given(functions)
def test_what_is_printed_is_parsed_again(function: tree.Function) -> None:
    text = show(tree.File((function,)))
    assert parse(text) == tree.File((function,))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_formatting_is_stable_and_loses_nothing(path: Path) -> None:
    source = path.read_text()
    once = show(parse(source))
    assert parse(once) == parse(source)
    assert show(parse(once)) == once
    for line in source.splitlines():
        if "//" in line:
            assert line.partition("//")[2].strip() in once


def test_comments_stay_where_they_are() -> None:
    source = "__co__ void f(f32 [4] x) {\n  // before\n  x.at(0) = 1.0f; // beside\n  // last\n}\n"
    assert show(parse(source)) == source


def test_formatting_again_changes_nothing() -> None:
    source = """__co__ void f(f32 [4] x) { /* first */
      /* a comment
           of several
      lines */
  foreach i in [4] { // beside
    x.at(i) = 1.0f; /* beside,
    and below */
  }
}
"""
    once = show(parse(source))
    assert show(parse(once)) == once
    assert parse(once) == parse(source)


def at_fault(
    body: str, parameters: str = "f32 [4, 8] x, f32 [4, 8] out", returns: str = "void"
) -> ChoreoError:
    """The error of a function whose body starts on line 2, column 3."""
    lines = "\n".join(f"  {line}" for line in body.splitlines())
    with pytest.raises(ChoreoError) as caught:
        translate(f"__co__ {returns} f({parameters}) {{\n{lines}\n}}\n", "bad.co")
    return caught.value


NEGATIVE = [
    # body, line, column, what is said
    ("x.at(0) = 1.0f;", 2, 5, "1 indices for data of rank 2"),
    ("x.at(0, 8) = 1.0f;", 2, 11, "index 8 is out of bounds for 8 elements"),
    ("foreach i in [5] {\n  x.at(i, 0) = 1.0f;\n}", 3, 10, "index 0..4 is out of bounds for 4 elements"),
    ("foreach i in [4] {\n  x.at(i - 1, 0) = 1.0f;\n}", 3, 12, "index -1..2 is below 0"),
    (
        "parallel p by 3 {\n  f = dma.copy x.chunkat(p, _) => local;\n}",
        3,
        28,
        "4 elements do not divide into 3 chunks",
    ),
    ("f = dma.copy x.chunkat(0, 0) => local;", 2, 26, "chunkat needs bounded variables"),
    (
        "dma.copy x.subspan(2, 8).at(0, 0) => out;",
        2,
        3,
        "this DMA copies [2, 8] to [4, 8]",
    ),
    ("dma.copy x => out.span_as([32]);", 2, 3, "the source of this DMA has rank 2, its target rank 1"),
    ("dma.copy x => out.span_as([5]);", 2, 21, "the number of elements differs"),
    ("f = dma.copy x.subspan(2, 8).at(2, 0) => local;", 2, 35, "the tile ends at 6, but there are only 4"),
    (
        "f = dma.copy.async x => local;\nout.at(0, 0) = f.data.at(0, 0);\nwait f;",
        3,
        18,
        "read before its wait",
    ),
    ("f = dma.copy.async x => local;\nwait f;\nwait f;", 4, 3, "`f` is waited for twice, first on line 3"),
    ("f = dma.copy x => local;\nwait f;", 3, 3, "a synchronous DMA, which is not waited for"),
    ("f = dma.copy.async x => local;", 2, 3, "`f` is never waited for"),
    ("f = dma.copy.async x => local;\nforeach i in [2] {\n  wait f;\n}", 4, 5, "`f` is waited for twice"),
    ("wait g;", 2, 3, "`g` is not a future"),
    ("y = q + 1;", 2, 7, "`q` is not declared"),
    ("f32 a = 1.0f;\nf32 a = 2.0f;", 3, 3, "`a` is already declared"),
    ("f32 a = 1.0f;\na = 2.0f;", 3, 3, "`a` is not a mutable scalar"),
    ("f32 a = -x.at(0, 0);", 2, 11, "unary minus needs a literal"),
    ("f32 a = __foo(1);", 2, 11, "there is no builtin `__foo`"),
    ("f32 a = __max(1);", 2, 11, "__max takes 2 arguments, not 1"),
    ("f = dma.move x => local;", 2, 11, "there is no dma.move"),
    ("dma.transp<0, 0> x => out;", 2, 3, "transp needs an order of 2 dimensions"),
    ("foreach {i, j, k} in [2, 3] {\n}", 2, 11, "3 names for a span of rank 2"),
    ("return x;", 2, 3, "a void function returns nothing"),
    ("x.at(0, 0) = 1.0f", 3, 1, "expected `;`"),
    ("f = dma.copy x.modspan(2, 2).at(0, 0) => local;", 2, 35, "nothing is left: 4 elements divide"),
    ("x.at(0, 0) = 1 / 0;", 2, 18, "division by zero"),
    ("x.at(1.5f, 0) = 1.0f;", 2, 8, "an index must be an integer, not float"),
    ("x.at(x.at(0, 0), 0) = 1.0f;", 2, 10, "an index must be an integer, not f32"),
    ("with i in [4] {\n  foreach i(0:4:0) {\n  }\n}", 3, 13, "the step must be above 0, not 0"),
    ("x.at(0, 0) = 18446744073709551616;", 2, 16, "does not fit into 64 bits"),
    ("x.at(0, 0) = x.at(0, 0) % 2;", 2, 27, "`%` needs integers, not f32"),
    ("x.at(0, 0) = 1.5f & 2;", 2, 21, "`&` needs integers, not float"),
    ("call nope(x);", 2, 3, "there is no kernel `nope` in the C++ of this file"),
    (
        "f = dma.copy.async x => local;\ng = select(1 == 1, f, f);\nout.at(0, 0) = g.data.at(0, 0);\nwait f;",
        4,
        18,
        "`g` may be `f`, whose data is read before its wait",
    ),
    ("x.at(0, 0) = 1.0f $ 2;", 2, 21, "unexpected text"),
]


@pytest.mark.parametrize(("body", "line", "column", "message"), NEGATIVE, ids=[n[3][:40] for n in NEGATIVE])
def test_refused_with_line_and_column(body: str, line: int, column: int, message: str) -> None:
    error = at_fault(body)
    assert message in error.message
    assert (error.line, error.column) == (line, column), str(error)
    assert str(error).startswith(f"bad.co:{line}:{column}: error: ")
    assert str(error).splitlines()[-1].lstrip().startswith("^")


def test_selected_futures_are_waited_for_one_by_one() -> None:
    source = """__co__ void f(f32 [4] x, f32 [4] out, int n) {
      a = dma.copy.async x => local;
      b = dma.copy.async x => local;
      g = select(n == 1, a, b);
      wait a, b;
      out.at(0) = g.data.at(0);
    }"""
    translate(source)
    with pytest.raises(ChoreoError) as caught:
        translate(source.replace("wait a, b;", "wait a;"))
    assert caught.value.line == 6


def test_two_functions_of_one_name() -> None:
    with pytest.raises(ChoreoError, match="function `f` is defined twice"):
        translate("__co__ void f(f32 [1] x) { }\n__co__ void f(f32 [1] x) { }\n")


def test_brace_that_is_never_closed() -> None:
    with pytest.raises(ChoreoError) as caught:
        parse("int a;\n__co__ void f(f32 [1] x) {\n")
    assert (caught.value.line, caught.value.column) == (2, 26)


def test_copies_are_elided_only_where_nothing_is_written() -> None:
    source = """__co__ void f(f32 [8] x, f32 [8] y) {
      parallel p by 2 {
        f = dma.copy x.chunkat(p) => local;
        foreach i in [4] { x.at(i) = f.data.at(i) + 1.0f; y.at(i) = 0.0f; }
      }
    }"""
    assert "read in place" not in "".join(translate(source).functions[0].kept)
    assert "read in place" in "".join(translate(source.replace("x.at(i) = ", "y.at(i) = ")).functions[0].kept)
    assert "choreo::copy" in translate(source.replace("x.at(i) = ", "y.at(i) = "), elide=False).cpp


def test_copies_are_made_where_cpp_may_write() -> None:
    source = """__co__ void f(f32 [8] x, f32 [8] y) {
      f = dma.copy x => local;
      __cpp__("y[0] = 1;");
      y.at(1) = f.data.at(1);
    }"""
    assert "read in place" not in "".join(translate(source).functions[0].kept)
    assert "read in place" in "".join(translate(source.replace("__cpp__", "//")).functions[0].kept)


def test_what_every_thread_writes_is_written_by_one_after_another() -> None:
    def cpp(body: str) -> str:
        head = "mutable f32 total = 0.0f; local f32 [4] t; t.at(0) = 0.0f;"
        return translate(f"__co__ void f(f32 [8] x, f32 [8] y) {{ {head} parallel p by 8 {{ {body} }} }}").cpp

    assert "omp parallel" in cpp("f32 mine = x.at(p); y.at(p) = mine + t.at(0);")
    assert "omp parallel" not in cpp("total += x.at(p);")
    assert "omp parallel" not in cpp("t.at(0) = x.at(p); y.at(p) = t.at(0);")


def test_dependent_iterations_are_not_vectorised() -> None:
    def cpp(statement: str) -> str:
        return translate(f"__co__ void f(f32 [9] x, f32 [9] y) {{ foreach i in [8] {{ {statement} }} }}").cpp

    assert "omp simd" in cpp("y.at(i) = x.at(i) * 2.0f;")
    assert "omp simd" not in cpp("x.at(i + 1) = x.at(i) * 2.0f;")
    assert "omp simd" not in cpp("y.at(0) = x.at(i);")
