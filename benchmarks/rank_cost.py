"""What hashes cost a rank of several, beside one process: CPU time of a training step, recorded and bare.

python benchmarks/rank_cost.py              1 and 2 processes, with gloo
python benchmarks/rank_cost.py --write-docs the table into docs/ranks.md

The same small transformer under DDP in both, eager, one thread each; bare and recorded steps take turns in
one process, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # a machine that cannot install still measures

import _report
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import kernelscope

PAGE = _report.ROOT / "docs" / "ranks.md"
STEPS, ROUNDS = 6, 5


def measured(rank: int, size: int, folder: str) -> None:
    """The median over rounds of recorded over bare CPU time, written to a file."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.1, batch_first=True)
    model = DistributedDataParallel(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    optimizer = torch.optim.AdamW(model.parameters())

    def steps() -> float:
        begun = time.process_time()
        for _ in range(STEPS):
            model(torch.randn(8, 64, 128)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return time.process_time() - begun

    ratios = []
    for number in range(ROUNDS + 1):
        bare = steps()
        with kernelscope.record(path=f"{folder}/run-{number}", values="hash", ops="all"):
            recorded = steps()
        ratios.append(recorded / bare)
    found = statistics.median(ratios[1:])  # the first builds kernels
    Path(f"{folder}/ratio-{rank}").write_text(str(found), encoding="utf-8")
    dist.destroy_process_group()


def cost(size: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(measured, (size, folder), nprocs=size)  # type: ignore[no-untyped-call]
        files = [Path(f"{folder}/ratio-{rank}") for rank in range(size)]
        return [f"{float(file.read_text(encoding='utf-8')):.2f}×" for file in files]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/ranks.md")
    parser.add_argument("--sizes", default="1,2", help="how many processes")
    given = parser.parse_args()
    head = ["processes", "CPU time of a step with hashes over that of a bare one, by rank"]
    rows = [[size, ", ".join(cost(int(size)))] for size in given.sizes.split(",")]
    table = "\n".join(_report.aligned([head, *rows]))
    print(table)
    if given.write_docs:
        _report.write_table(PAGE, "benchmarks/rank_cost.py", table)


if __name__ == "__main__":
    main()
