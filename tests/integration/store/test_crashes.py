"""A recorded program dies at random moments, in many ways: its run can be read, and names the kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import kernelscope
from kernelscope.store.flight.crash import crash_of
from kernelscope.store.tensors import read_tensor

PROGRAM = Path(__file__).parents[2] / "programs" / "crashing.py"
SRC = Path(__file__).parents[3] / "src"
STEADY = "crashing.steady.default"
HOWS = ("kill", "segv", "exit", "outside")


class Server:
    """The program that forks a child for each trial, once it has compiled everything."""

    def __init__(self) -> None:
        environment = os.environ | {"PYTHONPATH": f"{SRC}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self._answer() == "ready"

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def trial(self, how: str, folder: Path) -> dict[str, int]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{how} {folder}\n")
        self.process.stdin.flush()
        return dict(json.loads(self._answer()))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    assert server.process.stdin is not None
    server.process.stdin.close()
    server.process.wait(30)


def check(server: Server, how: str, folder: Path) -> str:
    """One death: the run can be read, and what it says was executing is what really was."""
    told = server.trial(how, folder)
    assert told["status"] == {"kill": -9, "segv": -11, "exit": 7, "outside": -11}[how]
    part = folder.with_name(folder.name + ".kscope")
    run = kernelscope.load(part)
    calls = run.calls
    assert [c.index for c in calls] == list(range(len(calls)))  # none is missing in between
    crash = crash_of(part)
    assert crash is not None
    names = [call.kernel_name for call in crash.executing]
    if how in ("segv", "exit"):
        assert names == [STEADY]
        assert told["begun"] == told["die_at"]
    elif how == "outside":
        assert len(names) == 1 and names[0].startswith("cpp_fused_index_mul"), names  # noqa: PT018
    elif told["begun"] != told["ended"]:  # it was inside the operator when it was killed
        assert names == [STEADY]
    # The newest `steady` in the flight recorder is the one that the program itself counted last.
    flight = run.flight
    sites = {id for id, site in flight.sites.items() if site.kernel.name == STEADY}
    launched = sum(cell.site in sites for cell in flight.cells)
    assert launched in (told["begun"], told["begun"] + 1)  # noted before it is launched
    return names[0] if names else ""


@pytest.mark.parametrize("how", HOWS)
def test_the_kernel_is_named(server: Server, tmp_path: Path, how: str) -> None:
    for number in range(3):
        check(server, how, tmp_path / f"{how}-{number}")


def killed_with_hashes(server: Server, folder: Path) -> float:
    """Every call that was over is listed. How old the oldest call without hashes was, in seconds."""
    told = server.trial("hashes", folder)
    run = kernelscope.load(folder.with_name(folder.name + ".kscope"))
    calls = run.calls
    assert [c.index for c in calls] == list(range(len(calls)))
    of_graph_calls = Counter(c.graph_call for c in calls)
    once = of_graph_calls[calls[0].graph_call]
    assert sum(count == once for count in of_graph_calls.values()) >= told["ended"]
    assert len(of_graph_calls) <= told["ended"] + 2, "the one that it was in, and one that it had not counted"
    newest = max(cell.start_ns for cell in run.flight.cells)
    hashed = [bool(c.post_hashes) and None not in c.post_hashes.values() for c in calls]
    assert hashed == sorted(hashed, reverse=True), "only the newest have none"
    return (newest - calls[min(sum(hashed), len(calls) - 1)].recorded.start_ns) / 1e9


def test_killed_at_full_speed(server: Server, tmp_path: Path) -> None:
    for number in range(2):
        behind = killed_with_hashes(server, tmp_path / f"fast-{number}")
        assert behind < 1.0, "half a second, twice that on a machine with other things to do"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_100_deaths_at_full_speed(server: Server, tmp_path: Path) -> None:
    behind = sorted(killed_with_hashes(server, tmp_path / f"fast-{number}") for number in range(100))
    print(f"\nhashes were missing for the last {behind[50]:.2f} s (median), {behind[-1]:.2f} s at most")
    assert behind[-1] < 1.0


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_200_deaths(server: Server, tmp_path: Path) -> None:
    named = [check(server, HOWS[number % len(HOWS)], tmp_path / f"death-{number}") for number in range(200)]
    executing = sum(map(bool, named))
    print(f"\n200 deaths, 200 readable runs; a kernel was executing in {executing} and named in {executing}")


def test_what_was_flushed_is_there(server: Server, tmp_path: Path) -> None:
    """Every call up to half a second before the end is on disk, and the newest ones are in the ring."""
    server.trial("late", tmp_path / "late")
    run = kernelscope.load(tmp_path / "late.kscope")
    newest = max(cell.start_ns for cell in run.flight.cells)
    written = [call for call in run.calls if not call.is_unwritten]
    behind = (newest - written[-1].recorded.start_ns) / 1e9
    assert behind < 1.0, "half a second, twice that on a machine with other things to do"
    in_ring = {cell.index for cell in run.flight.cells}
    assert in_ring | {c.index for c in run.calls} == set(range(max(in_ring) + 1))


def test_values_are_on_disk_with_the_transaction_after_their_call(server: Server, tmp_path: Path) -> None:
    """All calls of a step that the writer has written have them; the call that was fatal has no hash."""
    assert server.trial("saved", tmp_path / "saved")["status"] == -9
    run = kernelscope.load(tmp_path / "saved.kscope")
    calls, names = run.calls, [call.kernel_name for call in run.calls]
    in_step = len(names) - names.index(STEADY) - 1  # the calls of a step, of which the second was broken off
    assert [at for at, name in enumerate(names) if name == STEADY] == [names.index(STEADY), len(names) - 1]
    assert not any(call.is_unwritten for call in calls[:in_step])
    assert calls[-1].is_unwritten
    for call in calls:
        values = [read_tensor(run.path / "tensors" / file) for file in run.saved_tensors(call.index).values()]
        assert (bool(call.post_hashes) and None not in call.post_hashes.values()) != call.is_unwritten
        assert call.is_unwritten or all(value.numpy().size for value in values)
        assert call.is_unwritten or len(values) >= len(call.post_hashes) > 0


def test_the_tensors_of_the_call_to_save_are_on_disk_before_its_launch(
    server: Server, tmp_path: Path
) -> None:
    """In the first step, so that no transaction was due."""
    assert server.trial("saved-one", tmp_path / "one")["status"] == -9
    run = kernelscope.load(tmp_path / "one.kscope")
    fatal = run.calls[-1]
    assert fatal.kernel_name == STEADY
    [(key, file)] = run.saved_tensors(fatal.index).items()
    assert key == (0, "before")
    assert read_tensor(run.path / "tensors" / file).numpy() == pytest.approx(np.sin(np.ones((16, 16))))
