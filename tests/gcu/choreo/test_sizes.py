"""Sizes that only the running program knows: right numbers, or a sentence with its line."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelscope.gcu.choreo import ChoreoError, translate
from kernelscope.gcu.command_line import run_main
from kernelscope.gcu.execution.program import Program

from .test_choreo_corpus import built

SOURCE = """__co__ s32 [6, 9] padded_tile(s32 [2, 3] x, int low, int high, int between) {
  s32 [6, 9] out {5};
  dma.pad<{low, 1}, {high, 1}, {0, between}, 7> x => out.subspan(4, 7).at(0, 0);
  return out;
}
__co__ s32 padded(s32 [4] x, int low, int high) {
  mutable int n = low;
  a = dma.pad<{n}, {high}, {0}, 7> x => local;
  n = 50;
  mutable s32 total = 0;
  foreach i in [a.span] { total += a.data.at(i); }
  assert(|a.span| == low + high + 4);
  return total;
}
__co__ void names_keep_their_sizes(s32 [8] x, s32 [8] out) {
  mutable int n = 0;
  y = x.subspan(2).at(n);
  local s32 [n + 2] b {4};
  z : [n + 1, 3];
  f = dma.copy x.subspan(2).at(3) => out.subspan(2).at(n);
  n = 3;
  out.at(7) = y.at(0);
  out.at(6) = f.data.at(0);
  foreach i in [b.span] { out.at(i + 2) = b.at(i); }
  out.at(5) = |z|;
}
__co__ auto result(s32 [M] x, s32 [K] y) {
  s32 [M / (K - 4), 2] out {3};
  return out;
}
__co__ s32 quotients(s32 [M] x, s32 [K] y, int k) {
  a : [M / K];
  b : [cdiv(M, k)];
  c : [7 % k];
  return |a| + |b| + |c|;
}
__co__ s32 skipped(int k) {
  u : [k == 0 ? 3 : 4 / k];
  mutable s32 n = |u|;
  if (k != 0) {
    v : [8 / k];
    n += |v|;
  }
  return n;
}
__co__ void in_parallel(s32 [M] x, s32 [N] y, int k) {
  parallel p by 4 {
    a = dma.copy x.span_as([M / k]).chunkat(p) => local;
    foreach i in [4] { y.at(p * 4 + i) = a.data.at(i); }
  }
}
__co__ void in_threads(s32 [4] x, int n) {
  parallel p by 4 {
    shared s32 [4] t;
    t.at(p) = p;
    z : [4 / n];
    sync.shared;
    x.at(p) = t.at(3 - p) * |z|;
  }
}
__co__ void below(s32 [4] x, int n) {
  local s32 [n - 100] y;
  x.at(0) = 3;
}
__co__ void empty(s32 [M] x) {
  x.at(0) = 3;
}
__co__ void tile(s32 [M] x, int n, int at) {
  a = dma.copy x.subspan(n).at(at) => local;
  x.at(0) = a.data.at(n - 1);
}
__co__ void wide_tile(s32 [M] x, int at) {
  b = dma.copy x.subspan(16).at(at) => local;
  x.at(0) = b.data.at(15);
}
__co__ void chunks(s32 [4] x, int n) {
  b = dma.copy x.chunk(n).at(0) => local;
  x.at(0) = |b.span|;
}
__co__ void tied(s32 [M] x, s32 [N] y) {
  with i in [M], j in [N] where i <-> j { foreach i { y.at(j) = x.at(i); } }
}
__co__ void other_shape(s32 [M] x, s32 [N] y) {
  foreach i in [N] { y.at(i) = x.span_as([N]).at(i); }
}
__co__ void copied(s32 [M] x, s32 [N] y) {
  dma.copy x => y;
}
"""


def line_of(text: str) -> int:
    return SOURCE[: SOURCE.index(text)].count("\n") + 1


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    with tempfile.TemporaryDirectory() as folder:
        yield built(translate(SOURCE), Path(folder))


def counted(*shape: int) -> torch.Tensor:
    return torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.int32).reshape(shape)


def zeros(n: int) -> torch.Tensor:
    return torch.zeros(n, dtype=torch.int32)


PADDED = torch.full((6, 9), 5, dtype=torch.int32)
PADDED[:4, :7] = 7
PADDED[1:3, 1:6:2] = counted(2, 3)
RIGHT: list[tuple[str, tuple[Any, ...], Any]] = [
    # function, arguments, what it returns, or its last tensor
    ("padded_tile", (counted(2, 3), 1, 1, 1), PADDED.tolist()),
    ("padded", (counted(4), 1, 2), 31),
    ("padded", (counted(4), 0, 0), 10),
    ("names_keep_their_sizes", (counted(8), zeros(8)), [7, 8, 4, 4, 0, 3, 7, 1]),
    ("result", (counted(8), counted(6)), [[3, 3]] * 4),
    ("quotients", (counted(8), counted(2), 3), 4 + 3 + 1),
    ("skipped", (0,), 3),
    ("skipped", (2,), 6),
    ("in_parallel", (counted(32), zeros(16), 1), [i + 8 * p for p in range(4) for i in range(1, 5)]),
    ("in_threads", (counted(4), 2), [6, 4, 2, 0]),
    ("tile", (counted(4), 2, 1), [4, 2, 3, 4]),
    ("chunks", (counted(4), 2), [2, 2, 3, 4]),
    ("tied", (counted(3), zeros(3)), [1, 2, 3]),
    ("other_shape", (counted(3), zeros(3)), [1, 2, 3]),
    ("copied", (counted(3), zeros(3)), [1, 2, 3]),
]
WRONG: list[tuple[str, tuple[Any, ...], str, str]] = [
    # function, arguments, where, what is said
    ("padded_tile", (counted(2, 3), 0, 1, 1), "dma.pad<{low", "copies .* to \\[4, 7\\]: the shapes differ"),
    ("padded_tile", (counted(2, 3), -1, 3, 1), "dma.pad<{low", "an amount of padding cannot be below 0"),
    ("padded", (counted(4), -1, 2), "dma.pad<{n}", "an amount of padding cannot be below 0"),
    ("result", (counted(4), counted(4)), "s32 [M / (K", "division by zero"),
    ("quotients", (counted(8), counted(0), 1), "a : [M / K]", "division by zero"),
    ("quotients", (counted(8), counted(2), 0), "b : [cdiv", "cdiv needs a divisor above 0"),
    ("in_parallel", (counted(32), zeros(16), 0), "a = dma.copy x.span_as", "division by zero"),
    ("in_parallel", (counted(1 << 17), zeros(16), 0), "a = dma.copy x.span_as", "division by zero"),
    ("in_parallel", (counted(32), zeros(16), 2), "a = dma.copy x.span_as", "span_as from"),
    ("in_threads", (counted(4), 0), "z : [4 / n]", "division by zero"),
    ("below", (counted(4), 3), "local s32 [n - 100]", "a dimension cannot be below 0"),
    ("empty", (counted(0),), "x.at(0) = 3;\n}\n__co__ void tile", "an index is out of bounds for M"),
    ("tile", (counted(4), 0, 0), "a = dma.copy x.subspan(n)", "a tile of n does not fit into M elements"),
    ("tile", (counted(4), 100, 0), "a = dma.copy x.subspan(n)", "a tile of n does not fit into M elements"),
    ("wide_tile", (counted(4), 0), "b = dma.copy x.subspan(16)", "a tile of 16 does not fit into M"),
    ("chunks", (counted(4), 0), "b = dma.copy x.chunk(n)", "4 elements do not divide into n chunks"),
    ("tied", (counted(8), zeros(3)), "with i in [M]", "the bounds M and N differ"),
    ("other_shape", (counted(3), zeros(1 << 20)), "y.at(i) = x.span_as", "span_as from"),
    ("copied", (counted(1 << 20), zeros(3)), "dma.copy x => y", "copies .* the shapes differ"),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), RIGHT, ids=[r[0] for r in RIGHT])
def test_right_sizes(name: str, arguments: tuple[Any, ...], expected: Any, program: Program) -> None:
    result = program.call(name, *arguments)
    given = [a for a in arguments if isinstance(a, torch.Tensor)]
    assert (given[-1] if result is None else result).tolist() == expected


@pytest.mark.parametrize(("name", "arguments", "where", "message"), WRONG, ids=[w[0] for w in WRONG])
def test_wrong_sizes(
    name: str, arguments: tuple[Any, ...], where: str, message: str, program: Program
) -> None:
    with pytest.raises(RuntimeError, match=rf"^{name}:{line_of(where)}:\d+: .*{message}"):
        program.call(name, *arguments)


def test_a_result_of_no_size_ends_a_program_of_its_own_with_its_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    spans = [f"choreo::make_spanview<1>(a, {{{n}}})" for n in (8, 4)]
    main = f"int main() {{ int a[8] = {{}}; result({', '.join(spans)}); }}"
    source = SOURCE[SOURCE.index("__co__ auto result") : SOURCE.index("__co__ s32 quotients")]
    assert run_main(translate(source + main)) != 0
    assert "result:2:10: division by zero" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("b = dma.copy x.chunk(0).at(0) => local;", "there must be at least 1 chunk, not 0"),
        ("b = dma.copy x.subspan(0).at(0) => local;", "a size must be above 0, not 0"),
        ("b = dma.pad<{1, 2}, {1}, {0}, 0> x => local;", "pad needs 1 amounts of each kind, as {…}, not 2"),
        ("b = dma.pad<{0 - 1}, {1}, {0}, 0> x => local;", "an amount of padding cannot be below 0, as -1 is"),
        ("b : [x.span / (2 - 2)];", "division by zero"),
    ],
)
def test_sizes_that_are_wrong_before_the_program_runs(body: str, message: str) -> None:
    with pytest.raises(ChoreoError) as caught:
        translate(f"__co__ void f(s32 [4] x) {{\n{body}\n}}\n")
    assert message in caught.value.message
    assert caught.value.line == 2
