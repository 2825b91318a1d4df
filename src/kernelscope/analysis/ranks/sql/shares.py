"""The one question to all calls of all ranks, a share of the keys at a time: here, or in tasks of Ray."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from kernelscope.processes.cluster.ray_cluster import connected

from .dataset import Dataset, opened

# A key stands for a kernel and its inputs, so its results must be equal.
_UNLIKE = (
    "SELECT coalesce(sum(n), 0), list(key) FILTER (WHERE lowest <> highest) FROM ("
    "SELECT key, count(*) AS n, min(result) AS lowest, max(result) AS highest FROM hashes "
    "WHERE key BETWEEN $first AND $last GROUP BY key HAVING n > 1)"
)
_GROUP_BYTES = 50  # of memory for each row: half of the keys are on one rank alone
_LEAST_MEMORY = 0.5  # GB of a task of Ray

Answer = tuple[int, list[int]]  # how many calls had a partner, and the keys with more than one result


def unlike_keys(tables: Dataset) -> Answer:
    """As many shares as memory needs, one after the other."""
    shares = _shares(tables, tables.memory)
    return _together(_of_share(tables, share, shares) for share in range(shares))


def unlike_keys_on_ray(tables: Dataset, only: Sequence[int] | None) -> Answer:
    """A task for each share; the workers must see the tables under the same path."""
    with connected("", "--engine ray") as ray:
        workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        memory = max(_LEAST_MEMORY, tables.memory / workers)
        shares = max(workers, _shares(tables, memory))
        task = ray.remote(_in_worker)
        chosen = None if only is None else list(only)
        tasks = [task.remote(str(tables.root), chosen, share, shares, memory) for share in range(shares)]
        return _together(ray.get(tasks))


def _in_worker(
    path: str | os.PathLike[str], only: list[int] | None, share: int, shares: int, memory: float
) -> Answer:
    with opened(path, only, threads=1, memory=memory) as tables:
        return _of_share(tables, share, shares)


def _of_share(tables: Dataset, share: int, shares: int) -> Answer:
    ends = {"first": (share << 64) // shares, "last": (share + 1 << 64) // shares - 1}
    [(compared, unlike)] = tables.rows(_UNLIKE, ends)
    return int(compared), unlike or []


def _shares(tables: Dataset, memory: float) -> int:
    [(rows,)] = tables.rows("SELECT count(*) FROM hashes")
    return max(1, -(-int(rows) * _GROUP_BYTES // int(memory * 1e9 * 0.8)))


def _together(answers: Iterable[Answer]) -> Answer:
    compared, found = 0, list[int]()
    for own, unlike in answers:
        compared += own
        found += unlike
    return compared, found
