"""How a program ended: `show --crash`, the last lines of `kernelscope run`, and the status row. No torch."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from tests.support.sample_runs import GRAPH, full_call, info, site, write_sample

from kernelscope.cli import main
from kernelscope.events import Finding, GraphCall
from kernelscope.stages.records import FRAME, Compilation
from kernelscope.stages.under_way import UnderWay
from kernelscope.startup import progress
from kernelscope.startup.progress import StatusRow, progress_text
from kernelscope.startup.run_story import story_of
from kernelscope.store import folder
from kernelscope.store.writer_thread import Writer

Capture = pytest.CaptureFixture[str]


def ended(
    path: Path,
    status: int | None,
    *,
    exception: str = "",
    hit: str = "",
    settings: dict[str, object] | None = None,
) -> Path:
    """A run that was closed, after a program that ended like this."""
    path.mkdir()
    writer = Writer(path, info(settings=settings or {"stages": True}))
    write_calls(writer)
    if exception:
        writer.set_metadata("exception", exception)
        writer.set_metadata("exception_at", "/home/someone/train.py:12 in main")
    if hit:
        writer.finding(Finding("watch", hit, 3, "cpp_fused_log_0", "out_ptr0"))
    writer.flush()
    writer.close()
    if status is not None:
        folder.write_invocation(
            path, folder.Invocation(("python", "train.py"), str(path.parent), 1, 2, status)
        )
    return path


def write_calls(writer: Writer) -> None:

    writer.graph_call(GraphCall(0, GRAPH, 7, 0, "forward", 1))
    for _ in range(5):
        call = full_call(next(writer.flight), site(1))
        writer.enter(call)
        writer.leave(call)


WAYS = {
    "exception": ({"status": 1, "exception": "ValueError: bad shapes\nsecond line"},
                  "program ended with an exception at /home/someone/train.py:12 in main: ValueError: bad"),
    "ctrl-c": ({"status": -2, "exception": "KeyboardInterrupt: "}, "was interrupted with Ctrl-C at /home"),
    "ctrl-c-before-torch": ({"status": -2}, "the program was interrupted with Ctrl-C"),
    "stop-on": ({"status": 3, "hit": "made 8 NaN of 8 elements"}, "the program was stopped by --stop-on"),
    "exit": ({"status": 1}, "the program ended with status 1"),
    "term": ({"status": -15}, "the program was killed by SIGTERM"),
    "stop-at": ({"status": 0, "settings": {"stop_at": 4}}, "was stopped after call 4 (--stop-at)"),
    "normal": ({"status": 0}, "the program finished normally"),
    "unknown": ({"status": None}, "the program finished normally (its exit status was not recorded)"),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_show_crash_tells_how_it_ended(way: str, tmp_path: Path, capsys: Capture) -> None:
    given, expected = WAYS[way]
    path = ended(tmp_path / "train-1.kscope", **given)  # type: ignore[arg-type]
    assert main(["show", "--crash", str(path)]) == 0
    out = capsys.readouterr().out
    assert expected in out
    assert ("finished normally" in out) == (way in ("normal", "unknown"))
    if way == "exception":
        assert "second line" in out
        assert "all 5 recorded calls had completed; the last was 4:" in out
    assert main(["show", "--crash", "--json", str(path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["crash"] is None
    assert told["ended"]["status"] == given["status"]
    assert told["ended"]["call"] == (3 if way == "stop-on" else None)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_ends_with_at_most_five_lines(way: str, tmp_path: Path) -> None:
    given, expected = WAYS[way]
    path = ended(tmp_path / "train-1.kscope", **given)  # type: ignore[arg-type]
    lines = story_of(path).text(80).splitlines()
    assert len(lines) <= 5
    assert all(len(line) <= 80 for line in lines[:-1])
    command = {"stop-on": f"show {path} --call 3", "normal": f"show {path}", "unknown": f"show {path}"}
    assert lines[-1] == f"  next: kernelscope {command.get(way, f'show --crash {path}')}"
    if way not in ("normal", "unknown"):  # what is wrong comes first
        assert expected[:40] in " ".join(line.strip() for line in lines[:2])
    assert any("recorded 5 calls of 1 kernel in 1 graph" in line for line in lines)


def test_a_crash_comes_before_all_else(tmp_path: Path) -> None:
    path = tmp_path / "dead-1.kscope"
    writer = write_sample(path, close=False, executing=True)
    writer.forget()
    folder.write_invocation(path, folder.Invocation(("python",), str(tmp_path), 1, 2, -11))
    story = story_of(path)
    lines = story.text(140).splitlines()
    assert story.is_urgent
    assert lines[0] == "kernelscope: the program was killed by SIGSEGV"
    assert "completed through 39; call 40 was executing: [cpp] cpp_fused_noted_1 at" in lines[1]
    assert len(lines) <= 5
    assert f"kernelscope show --crash {path}" in lines[-1]


def test_findings_lead_to_their_call(tmp_path: Path) -> None:
    path = tmp_path / "odd-1.kscope"
    write_sample(path)
    folder.write_invocation(path, folder.Invocation(("python",), str(tmp_path), 1, 2, 0))
    lines = story_of(path).text(80).splitlines()
    assert "[nan]" in lines[0] or "[undeclared-write]" in lines[0]
    assert re.fullmatch(rf"  next: kernelscope show {re.escape(str(path))} --call \d+", lines[-1])


def _ranks(path: Path, *ranks: int, values: str = "hash", found: int = -1, still: int = -1) -> list[str]:
    """The end of a run of four ranks of which these recorded."""
    writers = []
    for rank in ranks:
        settings = {"values": values} if values != "off" else {}
        part = folder.claim_part(path, rank, 100 + rank)
        writer = Writer(part, info(rank=rank, world_size=4, pid=100 + rank, settings=settings))
        write_calls(writer)
        if rank == found:
            writer.finding(Finding("nan", "made 8 NaN of 8 elements", 3, "cpp_fused_log_0", "out_ptr0"))
        writer.flush()
        if rank == still:
            writers.append(writer)
        else:
            writer.close()
    story = story_of(path)
    for writer in writers:
        writer.close()
    assert story.is_urgent, "the log of a launcher has it too"
    return story.text(200).splitlines()


def test_the_end_of_many_ranks_leads_to_their_comparison(tmp_path: Path) -> None:
    recorded = "kernelscope: recorded 20 calls of 1 kernel in 4 graphs by 4 of 4 ranks"
    assert _ranks(all_ := tmp_path / "all.kscope", 0, 1, 2, 3) == [
        recorded,
        f"  next: kernelscope ranks {all_}",
    ]
    [said, _] = _ranks(tmp_path / "late.kscope", 0, 1, 2, 3, still=2)
    assert said == f"{recorded}; rank 2 still running"
    [said, command] = _ranks(some := tmp_path / "some.kscope", 0, 3, values="off")
    assert said.endswith("by 2 of 4 ranks, none by ranks 1, 2")
    assert command == f"  next: kernelscope show {some}", "without hashes there is nothing to compare"


def test_a_finding_on_a_rank_leads_to_that_rank(tmp_path: Path) -> None:
    lines = _ranks(path := tmp_path / "odd.kscope", 0, 1, 2, 3, found=2)
    assert lines[0] == "kernelscope: rank 2: [nan] call 3 made 8 NaN of 8 elements"
    assert lines[-1] == f"  next: kernelscope show {path} --rank 2 --call 3"


def test_why_nothing_compiled_ran(tmp_path: Path) -> None:
    def told(name: str, *findings: Finding) -> str:
        path = tmp_path / name
        path.mkdir()
        writer = Writer(path, info(settings={"stages": True}))
        for finding in findings:
            writer.finding(finding)
        writer.close()
        folder.write_invocation(path, folder.Invocation(("python",), str(tmp_path), 1, 2, 0))
        return story_of(path).text(200)

    lines = told(
        "broken.kscope", Finding("nothing-compiled", "no compiled code ran: graph breaks")
    ).splitlines()
    assert lines[0] == "kernelscope: no compiled code ran: graph breaks"
    assert lines[-1].startswith("  next: kernelscope stages ")
    assert "no kernel of compiled code ran" in told("killed.kscope")


def test_progress_names_what_is_compiled(tmp_path: Path) -> None:
    path = tmp_path / "train-1.kscope"
    assert progress_text(path) == "kernelscope: waiting for torch"
    path.mkdir()
    writer = Writer(path, info())
    writer.flush()
    assert progress_text(path) == "kernelscope: recording; nothing compiled has run yet"
    writer.flight.doing(
        "graph 0/0 forward of Net (train.py:16)", progress.time.monotonic_ns() - 12_500_000_000
    )
    assert progress_text(path) == "kernelscope: compiling graph 0/0 forward of Net (train.py:16), 12 s"
    writer.flight.doing("")
    write_calls(writer)
    writer.flush()
    assert progress_text(path).startswith("kernelscope: 5 calls, 1 graph, ")
    writer.close()


def test_what_is_under_way() -> None:
    frame = Compilation(0, "0/0", FRAME, name="Net", start_ns=1)
    graph = Compilation(1, "0/0", "forward", 0, "0_forward", start_ns=2)
    known = UnderWay()
    assert known.newest() == ("", 0)
    known.note(frame)
    assert known.newest() == ("frame 0/0 of Net", 1)
    known.note(graph)
    assert known.newest() == ("graph 0/0 forward of Net", 2)
    known.note(Compilation(1, "0/0", "forward", 0, "0_forward", made="compiled", start_ns=2))
    known.note(Compilation(0, "0/0", FRAME, name="Net", made="compiled", start_ns=1))
    assert known.newest() == ("", 0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_status_row_is_apart_from_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "size_of", lambda stream: (80, 24))
    screen = Terminal()
    with StatusRow(screen) as row:
        row.show("kernelscope: " + "long " * 50)
        screen.write("step 0 loss")  # the program's, without the end of its line
        row.show("kernelscope: 5 calls")
        row.show("kernelscope: 5 calls")  # not again
        screen.write(" 1.25\nstep 1\n")
    assert screen.getvalue().count("5 calls") == 1
    rows = Emulator(23, screen.getvalue()).rows
    assert [row for row in rows if row] == ["step 0 loss 1.25", "step 1"]
    # in a log of the terminal without escape sequences, lines are whole, too
    plain = re.sub(r"\x1b(\[[\d;]*[A-Za-z]|[78D])", "", screen.getvalue())
    assert "kernelscope: 5 calls" in plain.splitlines()
    assert "step 1" in plain.splitlines()
    for quiet in (io.StringIO(), Terminal()):
        monkeypatch.setenv("TERM", "dumb")
        with StatusRow(quiet) as row:
            row.show("kernelscope: 5 calls")
        assert quiet.getvalue() == ""


class Emulator:
    """As much of a VT100 as the status row uses: cursor, region that scrolls, clearing a row."""

    def __init__(self, bottom: int, text: str) -> None:
        self.rows, self.bottom = [""] * (bottom + 1), bottom
        self.y = self.x = 0
        saved = (0, 0)
        for piece in re.findall(r"\x1b\[[\d;]*[A-Za-z]|\x1b[78D]|\n|[^\x1b\n]+", text):
            if piece == "\x1b7":
                saved = (self.y, self.x)
            elif piece == "\x1b8":
                self.y, self.x = saved
            elif piece in ("\n", "\x1bD"):
                self.y, self.x = min(self.y + 1, self.bottom), 0 if piece == "\n" else self.x
            elif piece.endswith("H"):
                self.y, self.x = int(piece[2:-1].split(";")[0]) - 1, 0
            elif piece.endswith("A"):
                self.y -= 1
            elif piece == "\x1b[2K":
                self.rows[self.y] = ""
            elif not piece.startswith("\x1b"):
                row = self.rows[self.y].ljust(self.x)
                self.rows[self.y] = row[: self.x] + piece + row[self.x + len(piece) :]
                self.x += len(piece)
