"""The page in torch's distributed debug server: every rank's calls, fetched while the program runs."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
from tests.support.warm_python import WarmPython

from kernelscope.probes.distributed.debug_server import why_no_server
from kernelscope.store.ranks.rank_parts import rank_parts

PROGRAM = Path(__file__).parent / "served_ranks.py"
LAUNCHED = """
import os, sys, time
from urllib.request import urlopen
import torch, torch.distributed as dist
from torch.distributed.debug import start_debug_server, stop_debug_server

def main():
    dist.init_process_group("gloo")
    start_debug_server(port=int(sys.argv[1]), start_method=sys.argv[2])
    x = torch.ones(4).sin()
    dist.all_reduce(x)
    if dist.get_rank() == 0:
        deadline = time.monotonic() + 60
        while True:
            try:
                with urlopen(f"http://localhost:{sys.argv[1]}/kernelscope") as response:
                    print(response.read().decode())
                    break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        stop_debug_server()
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""

needs_server = pytest.mark.skipif(bool(why_no_server()), reason=why_no_server() or "there is one")


def _free_port() -> str:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return str(chosen.getsockname()[1])


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython) -> dict[str, str]:
    pytest.importorskip("jinja2", reason="torch's server needs it")
    folder, port = tmp_path_factory.mktemp("served"), _free_port()
    for done in warm_python.run_together(*([PROGRAM, str(rank), folder, port] for rank in (0, 1))):
        assert done.returncode == 0, done.stderr
    runs = rank_parts(folder / "both").runs
    recorded = {
        rank: [call.kernel_name for call in run.calls if call.site.collective] for rank, run in runs.items()
    }
    assert recorded == {0: ["c10d.allreduce_.default"] * 3, 1: ["c10d.allreduce_.default"] * 3}, (
        "the page makes no collective"
    )
    return {path.stem: path.read_text() for path in (folder / "pages").iterdir()}


def _row(page: str, rank: int) -> list[str]:
    [row] = re.findall(rf"<tr><td>{rank}</td>.*?</tr>", page)
    return [unescape(cell) for cell in re.findall("<td>(.*?)</td>", row)]


@needs_server
def test_the_page_shows_where_each_rank_is(pages: dict[str, str]) -> None:
    zero, one, two = (_row(pages["waiting"], rank) for rank in (0, 1, 2))
    assert zero[:2] == ["0", socket.gethostname()]
    assert zero[2:4] == ["0", "4"]  # full, sin, cos and the all-reduce
    assert "call 3, c10d.allreduce_.default" in zero[-1]
    assert "served_ranks.py:" in zero[-1]
    assert zero[-1].startswith("the last was ") or zero[-1].startswith("for ")
    assert one[2:4] == ["0", "4"]
    assert re.match(r"for .* in call 3, c10d.allreduce_.default \(group ", one[-1]), "it waits in its second"
    assert two == ["2", "", "", "", "", "", "", "its debug server has not been started"]
    assert "2 of 3 ranks recording" in pages["waiting"]
    assert "in main" in zero[-1]


@needs_server
def test_the_ranks_are_compared_where_that_is_wanted(pages: dict[str, str]) -> None:
    assert "kernelscope ranks " not in pages["waiting"]
    assert "the ranks agree: 2 of 2 ranks" in pages["compared"]
    assert "rank 0 did not end normally, or still runs" in pages["compared"]
    assert "steps differ" not in pages["compared"]


@needs_server
def test_the_same_as_text_for_the_folder_of_dumps(pages: dict[str, str]) -> None:
    lines = pages["dump"].splitlines()
    assert lines[0] == "2 of 3 ranks recording"
    assert lines[2].split() == ["rank", "host", "step", "calls", "kernels", "graphs", "findings", "now"]
    assert [line.split()[0] for line in lines[3:]] == ["0", "1", "2"]


@needs_server
def test_a_rank_whose_recording_has_closed_says_so(pages: dict[str, str]) -> None:
    assert _row(pages["closed"], 0)[-1] == "nothing is being recorded"


@pytest.mark.slow
@needs_server
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_a_program_that_starts_the_server_gets_the_page(tmp_path: Path, start_method: str) -> None:
    for package in ("jinja2", "tabulate"):
        pytest.importorskip(package, reason="torch's server needs it on rank 0")
    (tmp_path / "train.py").write_text(LAUNCHED)
    environ = {name: value for name, value in os.environ.items() if name != "MASTER_PORT"}
    words = ["run", "--values", "hash", "--ops", "all", "--no-stages", "-o", "both", "-m"]
    words += ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    done = subprocess.run(
        [sys.executable, "-m", "kernelscope", *words, _free_port(), start_method],
        cwd=tmp_path,
        env=environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert '<a href="/kernelscope">kernelscope</a>' in done.stdout
    for rank in (0, 1):
        assert "train.py:" in _row(done.stdout, rank)[-1]
        assert int(_row(done.stdout, rank)[3]) >= 3
    parts = sorted(path.name for path in (tmp_path / "both.kscope").iterdir() if path.is_dir())
    assert parts == ["rank-0", "rank-1"], "the frontend's process records nothing"
