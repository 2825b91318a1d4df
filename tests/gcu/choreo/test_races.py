"""`kernelscope choreo run --races` names the lines of two threads that use one element at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelscope.cli import main
from kernelscope.gcu.races import Access, Race, races_in

CORPUS = Path(__file__).parent / "corpus"
SHIFTED = """__co__ auto shifted(f32 [32] x) {
  f32 [32] out;
  parallel b by 2, p by 16 {
    shared f32 [16] tile;
    tile.at(p) = x.at(b # p);
    sync.shared;
    out.at(b # p) = tile.at((p + 1) % 16);
  }
  return out;
}

int main() {
  auto x = choreo::make_spandata<choreo::f32>(32);
  x.fill(0.5f);
  auto y = shifted(x.view());
  std::cout << "ended" << std::endl;
  return 7;
}
"""
WITHOUT_BARRIER = SHIFTED.replace("    sync.shared;\n", "").replace("  return 7;\n", "")


def test_a_neighbours_element_is_read_without_a_barrier(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "with a space.co"
    file.write_text(WITHOUT_BARRIER, encoding="utf-8")
    assert main(["choreo", "run", "--races", str(file)]) == 1
    captured = capfd.readouterr()
    assert captured.out == "ended\n"
    here, there = "one writes here, another one reads in line 6", "and neither waits for the other"
    assert captured.err == f"{file}:5: two threads use the same element: {here}, {there}\n"


def test_options_of_the_user_do_not_hide_races(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(
        "TSAN_OPTIONS",
        f"log_path={tmp_path}/elsewhere exitcode=9 report_bugs=0 color=always stack_trace_format='%n'",
    )
    file = tmp_path / "racing.co"
    file.write_text(WITHOUT_BARRIER, encoding="utf-8")
    assert main(["choreo", "run", "--races", str(file)]) == 1
    assert f"{file}:5: two threads use the same element" in capfd.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_other_options_of_the_user_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    left_out = tmp_path / "left out.txt"
    left_out.write_text("race:*\n", encoding="utf-8")
    monkeypatch.setenv("TSAN_OPTIONS", f"suppressions='{left_out}'")
    file = tmp_path / "racing.co"
    file.write_text(WITHOUT_BARRIER, encoding="utf-8")
    assert main(["choreo", "run", "--races", str(file)]) == 0
    assert not capfd.readouterr().err


def test_with_a_barrier_the_status_is_the_programs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "right.co"
    file.write_text(SHIFTED, encoding="utf-8")
    assert main(["choreo", "run", "--races", str(file)]) == 7
    assert not capfd.readouterr().err
    file.write_text(SHIFTED.replace("  return 7;\n", ""), encoding="utf-8")
    assert main(["choreo", "run", "--races", str(file)]) == 0
    assert capfd.readouterr().out == f"ended\n{file}: no two threads raced in this run\n"


def test_threads_that_run_one_after_another_on_this_machine_race(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["choreo", "run", "--races", str(CORPUS / "histogram.co")]) == 1
    assert f"{CORPUS / 'histogram.co'}:6: two threads use the same element" in capfd.readouterr().err


COPIES = """__co__ auto early(s32 [4, 8] x, int shift) {
  s32 [4, 8] y;
  local s32 [16] ring {0};
  foreach t in [4] {
    f = dma.copy.async x.chunkat(t, _).span_as(8) => ring.subspan(8).at(t % 2);
    foreach i in [8] { y.at(t, i) = ring.at((t + shift) % 2 * 8 + i); }
    wait f;
  }
  return y;
}
__co__ auto overwritten(s32 [32] x, int shift) {
  s32 [32] y;
  parallel p by 3 {
    f = dma.copy.async x.subspan(4).at(2 * p + 2) => local;
    foreach i in [4] { x.at((p + 1) * 8 + i + shift) = 1; }
    wait f;
    dma.copy f => y.subspan(4).at(p);
  }
  return y;
}
int main() {
  auto x = choreo::make_spandata<choreo::s32>(4, 8);
  auto z = choreo::make_spandata<choreo::s32>(32);
  early(x.view(), SHIFT);
  overwritten(z.view(), SHIFT * 4);
}
"""


def test_a_copy_whose_tile_is_used_before_its_wait(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Which tile the other use concerns, only the run shows."""
    file = tmp_path / "copies.co"
    file.write_text(COPIES.replace("SHIFT", "0"), encoding="utf-8")
    assert main(["choreo", "run", "--races", str(file)]) == 1
    said = "a copy is used before its wait: of the same element, the copy"
    assert sorted(capfd.readouterr().err.splitlines()) == [
        f"{file}:14: {said} reads here, a thread writes in line 15",
        f"{file}:5: {said} writes here, a thread reads in line 6",
    ]
    file.write_text(COPIES.replace("SHIFT", "1"), encoding="utf-8")
    assert main(["choreo", "run", "--races", str(file)]) == 0
    assert not capfd.readouterr().err


LARGE = (
    SHIFTED.replace("32]", "4096]")
    .replace("(32)", "(4096)")
    .replace("p by 16", "p by 2048")
    .replace("[16]", "[2048]")
)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (SHIFTED.partition("int main")[0], "--races runs main(), and there is none: write one that calls"),
        (LARGE, "2048 threads synchronise; at most 1024 can"),
    ],
    ids=["no main", "too many"],
)
def test_what_cannot_be_run_is_a_sentence(
    source: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.co"
    file.write_text(source, encoding="utf-8")
    assert main(["choreo", "run", "--races", str(file)]) != 0
    captured = capfd.readouterr()
    assert said in captured.err
    assert "raced" not in captured.out


def test_an_access_in_another_file_is_reported_too() -> None:
    report = """WARNING: ThreadSanitizer: data race (pid=1)
  Atomic write of size 4 at 0x7b by thread T2:
    #0 count /tmp/counting.h:9 (program+0x1)

  Previous read of size 4 at 0x7b by thread T1:
    #0 operator() /usr/include/c++/12/array:5 (program+0x2)
    #1 operator() /tmp/a.co:12 (program+0x2)
    #2 operator() /tmp/a.co:3 (program+0x2)

  Thread T2 (tid=3, running) created by main thread at:
    #0 run /tmp/a.co:1 (program+0x3)
"""
    (race,) = races_in(report, "a.co")
    assert race == Race(Access(0, "writes"), Access(12, "reads"))
    assert "a.co:12: two threads use the same element: one writes in a function of another file" in race.text(
        "a.co"
    )


UNORDERED = """__co__ auto unordered(s32 [64] x) {
  s32 [64] out;
  parallel p by 4 {
    shared s32 [16] tile;
    dma.copy x.chunkat(p) => tile;
    foreach i in [16] { out.at(p * 16 + i) = 1; }
  }
  parallel p by 2 {
    shared event ready;
    shared s32 [4] cell;
    inthreads.async (p == 0) {
      trigger ready;
      cell.at(1) = 3;
    }
    inthreads.async (p == 1) {
      wait ready;
      out.at(0) = cell.at(1);
    }
  }
  return out;
}

int main() {
  auto x = choreo::make_spandata<choreo::s32>(64);
  unordered(x.view());
}
"""


def test_copies_race_and_what_follows_a_trigger_is_not_before_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A small copy is made by instructions, and the end of a thread comes before nothing: both hid races."""
    file = tmp_path / "unordered.co"
    file.write_text(UNORDERED, encoding="utf-8")
    assert main(["choreo", "run", "--races", str(file)]) == 1
    found = capfd.readouterr().err
    assert f"{file}:5: two threads use the same element: one writes here, another one writes here" in found
    assert (
        f"{file}:13: two threads use the same element: one writes here, another one reads in line 17" in found
    )
    assert len(found.splitlines()) == 2
    source = UNORDERED.replace(
        "      trigger ready;\n      cell.at(1) = 3;", "      cell.at(1) = 3;\n      trigger ready;"
    )
    file.write_text(source.replace("shared s32 [16]", "local s32 [16]"), encoding="utf-8")
    assert main(["choreo", "run", "--races", str(file)]) == 0
