"""Where, when and how a run is recorded."""

from __future__ import annotations

import os
import platform
import socket
import threading
import time
import uuid
from typing import Any

import torch

from kernelscope import __version__
from kernelscope.config import Config, rank_from_environment
from kernelscope.events import RunInfo


def run_info(config: Config) -> RunInfo:
    rank = rank_from_environment()
    cuda: Any = torch.cuda
    devices = range(cuda.device_count()) if cuda.is_initialized() and cuda.is_available() else ()
    return RunInfo(
        uuid=str(uuid.uuid4()),
        group=rank.group,
        rank=rank.rank,
        local_rank=rank.local_rank,
        world_size=rank.world_size,
        host=host_name(),
        pid=os.getpid(),
        parent_pid=os.getppid(),
        monotonic_ns=time.monotonic_ns(),
        realtime_ns=time.time_ns(),
        devices=tuple(str(cuda.get_device_properties(i).uuid) for i in devices),
        versions=_versions(),
        settings=config.changed(),
        main_thread=threading.main_thread().ident or 0,
    )


def host_name() -> str:
    return socket.gethostname()


def _versions() -> dict[str, str]:
    versions = {
        "kernelscope": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }
    if torch.version.cuda:
        versions["cuda"] = torch.version.cuda
    return versions
