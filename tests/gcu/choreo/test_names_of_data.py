"""Several names for one piece of memory, copies within it, and sums in half precision."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernelscope.gcu.choreo import translate
from kernelscope.gcu.execution.program import Program

from .test_choreo_corpus import built

SOURCE = """__co__ void source_is_written(s32 [4] x, s32 [4] out) {
  y = x.subspan(4).at(0);
  f = dma.copy x => local;
  foreach i in [4] { y.at(i) = 7; }
  foreach i in [4] { out.at(i) = f.data.at(i); }
}
__co__ void source_is_a_target(s32 [4] x, s32 [4] out) {
  f = dma.copy x => local;
  g = dma.copy out => x;
  foreach i in [4] { g.data.at(i) = 7; }
  foreach i in [4] { out.at(i) = f.data.at(i) + x.at(i); }
}
__co__ void tile_is_written(s32 [4] x, s32 [4] out) {
  f = dma.copy x => local;
  g = f;
  foreach i in [4] { g.data.at(i) = 7 + f.data.at(i); }
  foreach i in [4] { out.at(i) = f.data.at(i) - x.at(i); }
}
__co__ void target_is_read(s32 [4] x, s32 [4] out) {
  o = out;
  foreach i in [4] { o.at(i) = x.at(i); }
  local s32 [4] l;
  foreach i in [4] { l.at(i) = o.at(3 - i); }
  dma.copy l => out;
}
__co__ void local_is_written_later(s32 [4] x, s32 [4] out) {
  local s32 [4] l;
  m = l;
  foreach i in [4] { l.at(i) = x.at(i); }
  dma.copy l => out;
  foreach i in [4] { m.at(i) = 0; }
}
__co__ void steps_depend(s32 [4096] x, s32 [4096] out) {
  y = x;
  foreach i in [4095] { y.at(i + 1) = x.at(i) + 1; }
  dma.copy y => out;
}
__co__ void other_names_stay(s32 [8] x, s32 [8] out) {
  a = dma.copy x.subspan(2).at(0) => local;
  b = dma.copy x.subspan(2).at(1) => local;
  mutable int n = 1;
  c = a;
  d = b.data;
  e = select(n, a, b);
  n = 0;
  swap(a, b);
  foreach i in [2] {
    out.at(i) = c.data.at(i);
    out.at(2 + i) = d.at(i);
    out.at(4 + i) = e.data.at(i);
    out.at(6 + i) = a.data.at(i) * 10;
  }
}
__co__ void overlapping(s32 [8] x, s32 [8] out) {
  dma.copy x.view(6).from(0) => x.view(6).from(2);
  dma.copy x => out;
}
__co__ void transposed_in_place(s32 [3, 3] x) {
  dma.transp<1, 0> x => x;
}
__co__ auto sum_of_halves(f16 [8] x) {
  f16 [3] out;
  mutable f16 total = 0.0f;
  mutable f16 most = x.at(0);
  foreach i in [8] { total += x.at(i); }
  foreach i in [8] { most = __max(most, x.at(i)); }
  out.at(0) = total;
  out.at(1) = most;
  total -= 1;
  total *= 2;
  total++;
  out.at(2) = total;
  return out;
}
"""


@pytest.fixture(scope="module", params=[True, False], ids=["elided", "copied"])
def program(request: pytest.FixtureRequest) -> Iterator[Program]:
    with tempfile.TemporaryDirectory() as folder:
        yield built(translate(SOURCE, elide=request.param), Path(folder))


def counted(n: int) -> torch.Tensor:
    return torch.arange(1, n + 1, dtype=torch.int32)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("source_is_written", [1, 2, 3, 4]),
        ("source_is_a_target", [8, 9, 10, 11]),
        ("tile_is_written", [7, 7, 7, 7]),
        ("target_is_read", [4, 3, 2, 1]),
        ("local_is_written_later", [1, 2, 3, 4]),
        ("steps_depend", list(range(1, 4097))),
        ("other_names_stay", [1, 2, 3, 4, 3, 4, 30, 40]),
        ("overlapping", [1, 2, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_memory_with_several_names(name: str, expected: list[int], program: Program) -> None:
    out = torch.zeros(len(expected), dtype=torch.int32)
    program.call(name, counted(len(expected)), out)
    assert out.tolist() == expected


def test_a_matrix_is_transposed_in_place(program: Program) -> None:
    x = counted(9).reshape(3, 3)
    program.call("transposed_in_place", x)
    assert torch.equal(x, counted(9).reshape(3, 3).T)


def test_each_step_of_a_sum_in_half_precision_is_rounded(program: Program) -> None:
    result = program.call("sum_of_halves", torch.tensor([2048, 1, 1, 1, 1, 1, 1, 2]).half())
    assert result is not None
    assert result.tolist() == [2050.0, 2048.0, 4096.0]  # 2049 becomes 2048, 4097 becomes 4096
