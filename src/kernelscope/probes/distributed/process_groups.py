"""The process groups of this program, and which rank this process is."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch

from kernelscope.config import Rank, launch_from_environment, rank_from_environment
from kernelscope.probes.patching import resolve

GROUP = "process-group"  # kind of the mark that tells of one

_WORLD = "torch.distributed.distributed_c10d:_world"
_STORE = "torch.distributed.distributed_c10d:_get_default_store"


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """One group of ranks, as every rank in it knows it."""

    name: str
    ranks: tuple[int, ...]
    description: str = ""  # "default_pg", "mesh_tp"
    backend: str = ""

    def text(self) -> str:
        return json.dumps(asdict(self))


def is_initialized() -> bool:
    distributed: Any = torch.distributed
    return bool(distributed.is_available() and distributed.is_initialized())


def place() -> Rank:
    """This process among all, as the process group has it, or else the launcher."""
    told = rank_from_environment()
    if not is_initialized():
        return told
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    # A launcher of another world, such as a Slurm job that starts one process, says nothing of this rank.
    local = told.local_rank if (told.rank, told.world_size) == (rank, size) else rank
    return Rank(told.group, rank, local, size)


def launch() -> str:
    """The same on all ranks of this program, and on no other program at the same time."""
    return launch_from_environment(met_at=_meeting_place())


def _meeting_place() -> str:
    """Where the ranks found each other, as far as all of them call it the same; "" if that is not known."""
    if not is_initialized():
        return ""
    distributed: Any = torch.distributed
    try:
        store = getattr(*resolve(_STORE))()
        while isinstance(store, distributed.PrefixStore):
            store = store.underlying_store
    except (AttributeError, RuntimeError, ValueError):  # a store of the program's own
        return ""
    if isinstance(store, distributed.TCPStore):
        return f"port {store.port}"
    return f"file {store.path}" if isinstance(store, distributed.FileStore) else ""


def group_count() -> int:
    """How many groups there are; cheap, to see that there are new ones."""
    if not _is_built():
        return 0
    module, name = _where_the_world_is()
    return len(getattr(module, name).pg_map)


@cache
def _is_built() -> bool:
    return bool(torch.distributed.is_available())


def _world() -> Any:
    """What torch knows of the groups; a test of several ranks in one process may put another in its place."""
    return getattr(*_where_the_world_is())


@cache
def _where_the_world_is() -> tuple[Any, str]:
    return resolve(_WORLD)


def process_groups() -> list[ProcessGroup]:
    """The groups that this process belongs to."""
    if not is_initialized():
        return []
    world = _world()
    found = []
    for group in list(world.pg_map):
        ranks = tuple(torch.distributed.get_process_group_ranks(group))
        backend = str(world.pg_map[group][0])
        description = str(getattr(group, "group_desc", ""))
        found.append(ProcessGroup(str(world.pg_names[group]), ranks, description, backend))
    return found
