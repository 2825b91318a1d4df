"""Two gloo ranks that record and have torch's debug servers; rank 0 fetches the page while rank 1 waits."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer
from torch.distributed.debug._frontend import FrontendServer
from torch.distributed.debug._store import tcpstore_client

import kernelscope
from kernelscope.errors import RunError
from kernelscope.integrations.debug_server import RanksPage
from kernelscope.startup import debug_server


def main() -> None:
    rank, folder, port = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    # Three ranks for the server, one of which has none.
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": str(rank), "WORLD_SIZE": "3"}
    torch.set_num_threads(1)
    meeting = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    try:
        debug_server.add_page()
    except RunError as error:
        sys.exit(str(error))
    worker = _WorkerServer("127.0.0.1", 0)  # torch's own takes all addresses
    tcpstore_client().set(f"rank{rank}", f"http://127.0.0.1:{worker.port}")
    with kernelscope.record(path=folder / "both", values="hash", ops="all"):
        x = torch.full((4,), 1.0 + rank).sin()
        if rank == 0:
            x.cos()
        dist.all_reduce(x)
        if rank == 0:
            (folder / "pages").mkdir()
            wait_for(lambda: "c10d.allreduce_" in said(folder, "waiting", ""))
        dist.all_reduce(x)
        kernelscope.step()
        if rank == 0:
            time.sleep(1)  # what the writers have in hand is written by then
            said(folder, "compared", "?compare=1")
            (folder / "pages" / "dump.html").write_text(RanksPage().dump() or "")
        dist.all_reduce(x)
    if rank == 0:
        said(folder, "closed", "")
    dist.barrier()
    worker.shutdown()
    dist.destroy_process_group()


def said(folder: Path, name: str, query: str) -> str:
    if not _SERVERS:
        _SERVERS.append(FrontendServer(port=0, handlers=[RanksPage()]))  # type: ignore[list-item]
    with urlopen(f"http://localhost:{_SERVERS[0]._server.server_port}/kernelscope{query}") as response:
        text = str(response.read().decode())
    (folder / "pages" / f"{name}.html").write_text(text)
    return text.partition("<td>1</td>")[2]


_SERVERS: list[FrontendServer] = []


def wait_for(is_so: object) -> None:
    deadline = time.monotonic() + 30
    while not is_so():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


if __name__ == "__main__":
    main()
