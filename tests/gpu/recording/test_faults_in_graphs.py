"""An illegal access inside the replay of a CUDA graph: the launch is named, not only the replay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import kernelscope

SRC = Path(__file__).parents[3] / "src"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(SRC)}

# Four kernels of the user's between products, in one graph. An offset in memory says which of them writes far
# outside, and when.
FAULTY = """
import sys, torch, triton, triton.language as tl

@triton.jit
def shifted(x, out, offset, which, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at + tl.load(offset + which), tl.load(x + at) + 1)

def one(x, offset, which):
    out = torch.empty_like(x)
    shifted[(x.numel() // 1024,)](x, out, offset, which, BLOCK=1024)
    return out

def step(x, offset):
    for which in range(4):
        x = (one(x, offset, which) @ x).relu()
    return x * 0.5

x = torch.full((64, 64), 0.01, device="cuda")
offset = torch.zeros(4, dtype=torch.int64, device="cuda")
bad, which, mode = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if mode == "compiled":
    compiled = torch.compile(step, mode="reduce-overhead")
    def replay():
        torch.compiler.cudagraph_mark_step_begin()
        compiled(x, offset)
    for _ in range(3):
        replay()
else:
    step(x, offset)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step(x, offset)
    replay = graph.replay
torch.cuda.synchronize()
for number in range(40):
    if number == bad:
        offset[which] = 1 << 42
    replay()
torch.cuda.synchronize()
"""


def faulted(tmp_path: Path, bad: int, which: int, mode: str) -> dict[str, Any]:
    folder = tmp_path / f"{bad}-{which}-{mode}"
    folder.mkdir()
    (folder / "faulty.py").write_text(FAULTY)
    words = ["run", "--json", "faulty.py", str(bad), str(which), mode]
    ran = subprocess.run(
        [sys.executable, "-m", "kernelscope", *words],
        env=ENVIRONMENT,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode not in (0, 2), ran.stderr
    assert "running again with --mark-graphs" in ran.stderr, ran.stderr
    told = json.loads(ran.stderr.strip().splitlines()[-1])
    assert told["crash"] is not None, ran.stderr
    return dict(told) | {"run": str(folder / told["run"])}


def check_fault(tmp_path: Path, bad: int, which: int, mode: str) -> None:
    told = faulted(tmp_path, bad, which, mode)
    crash = told["crash"]
    [call] = crash["executing"]
    assert "shifted" in call["kernel_name"]
    assert not crash["in_replay"]
    run = kernelscope.load(told["run"])
    [named] = run.select(first=call["index"], limit=1)
    launched = [c for c in run.select(kernel="shifted*") if c.graph_call == named.graph_call]
    same = [c for c in launched if c.replay == named.replay]
    assert [c.index for c in same].index(named.index) == which


@pytest.mark.parametrize(("bad", "which", "mode"), [(7, 2, "compiled"), (5, 3, "own"), (20, 0, "compiled")])
def test_the_faulting_launch_is_named(tmp_path: Path, bad: int, which: int, mode: str) -> None:
    check_fault(tmp_path, bad, which, mode)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_20_of_20(tmp_path: Path) -> None:
    cases = [(3 + n, n % 4, ("compiled", "own")[n % 2 ^ n // 4 % 2]) for n in range(20)]
    with ThreadPoolExecutor(6) as several:
        checks = [several.submit(check_fault, tmp_path, *case) for case in cases]
    for check in checks:
        check.result()
