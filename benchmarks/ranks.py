"""How long DuckDB takes to find the first divergence in tables of many ranks, and in how much memory.

python benchmarks/ranks.py [--ranks 8,32,64,128,256] [--calls 1000000] [--write-docs] [--check]
python benchmarks/ranks.py --base tables      replicate these tables instead of recording a program

Two ranks of a transformer under DDP are recorded, exported and replicated: each copy has later steps and
other hashes. Calls that had the same inputs on both recorded ranks have them on all replicated ones; the
inputs of the others are different on each rank. One result of one rank is changed near the end. The tables
`calls` and `arguments` are read only where something differs, so the ranks share files (hard links).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "benchmarks")]

from _measure import machine  # noqa: E402
from _report import aligned, write_table  # noqa: E402

PAGE = ROOT / "docs" / "ranks.md"
PROGRAM, COMBINATION = ROOT / "benchmarks" / "_rank_program.py", "ddp transformer eager"
FAULTY = 5  # rank
BLOCK = 100_000  # calls in a file
THREADS, MEMORY = 2, 6.0  # of DuckDB; GB
MOST_SECONDS, MOST_BYTES = 60.0, 8e9

# In a process of its own, so that its peak memory is that of the comparison.
COMPARE = """
import json, resource, sys, time
from kernelscope.analysis.ranks.sql.compare import ranks_in_tables
start, spent = time.perf_counter(), time.process_time()
path, ranks, threads, memory = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
result = ranks_in_tables(path, range(ranks), threads=threads, memory=memory)
first = result.first
print(json.dumps({
    "seconds": time.perf_counter() - start, "cpu": time.process_time() - spent,
    "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "first": first and [first.rank, first.index, first.kind, first.suspects, first.argument],
    "checked": result.checked, "found": result.found, "calls": sum(each.calls for each in result.ranks),
}))
"""


def recorded(folder: Path) -> Path:
    """The tables of two ranks of a small program."""
    from kernelscope.export.rank_dataset import export_ranks

    plan = {"ranks": 2, "combinations": [COMBINATION], "steps": 3, "seed": 0, "until": time.time() + 600}
    path = folder / "plan.json"
    path.write_text(json.dumps(plan | {"clean": [], "flips": [], "only_compiles": False}), encoding="utf-8")
    ranks = [subprocess.Popen([sys.executable, str(PROGRAM), str(rank), str(path)]) for rank in range(2)]
    if any(rank.wait(600) for rank in ranks):
        sys.exit("the program that is replicated failed")
    export_ranks(folder / f"{COMBINATION.replace(' ', '-')}-clean.kscope", folder / "base")
    return folder / "base"


class Replicas:
    """Tables of many ranks, made by DuckDB from those of one."""

    def __init__(self, base: Path, made: Path, ranks: int, calls: int) -> None:
        import duckdb

        self._base, self._made, self._ranks = base, made, ranks
        self._sql: Any = duckdb.connect(config={"threads": THREADS, "memory_limit": f"{MEMORY}GB"})
        for table, below in (("calls", "*/"), ("arguments", "*/"), ("hashes", "*/"), ("collectives", "")):
            file = base / table / "rank=0" / f"{below}{table}.parquet"
            self._sql.execute(f"CREATE TABLE {table} AS SELECT * FROM '{file}'")
        other = base / "hashes" / "rank=1" / "*" / "hashes.parquet"
        self._sql.execute(
            "CREATE TABLE replicated AS SELECT *, key IN "
            f"(SELECT key FROM '{other}') AS is_shared FROM hashes"
        )
        [(self.own, self.steps)] = self._rows('SELECT max("index") + 1, max(step) + 1 FROM calls')
        self.copies = -(-calls // self.own)
        [(self.shared, self.hashed)] = self._rows("SELECT avg(is_shared::INT), count(*) FROM replicated")
        size = max(1, BLOCK // self.own)
        self._blocks = [(k, min(k + size, self.copies)) for k in range(0, self.copies, size)]
        # What is wrong: an optimizer's result, which all ranks have from the same inputs.
        [(index,)] = self._rows(
            'SELECT max(replicated."index") FROM replicated JOIN calls USING ("index") '
            "WHERE is_shared AND base IS NULL AND phase = 'optimizer'"
        )
        copy = self.copies * 9 // 10
        self.fault = int(index + copy * self.own)
        self._faulty_block = next(block for block in self._blocks if block[0] <= copy < block[1])

    def write(self) -> None:
        about = {"format": "kernelscope.ranks", "version": 1, "run": "replicated", "notes": []}
        self._made.mkdir()
        about_all = about | {"world_size": self._ranks}
        (self._made / "dataset.json").write_text(json.dumps(about_all), encoding="utf-8")
        ranks = self._base / "ranks.parquet"
        self._copy(
            f"SELECT * REPLACE (r AS rank, r AS local_rank, {self.own * self.copies} AS calls, "
            f"{self.steps * self.copies} AS steps, 0 AS rechecked) "
            f"FROM '{ranks}', range({self._ranks}) t(r) WHERE rank = 0",
            self._made / "ranks.parquet",
        )
        for block in self._blocks:
            copies = f"range({block[0]}, {block[1]}) t(k)"
            at = f'"index" + k * {self.own} AS "index", step + k * {self.steps} AS step'
            call = f'"call" + k * {self.own} AS "call"'
            self._shared("calls", block, f"SELECT * REPLACE ({at}) FROM calls, {copies}")
            self._shared("arguments", block, f"SELECT * REPLACE ({call}) FROM arguments, {copies}")
        counts = "(SELECT process_group, count(*) AS n FROM collectives GROUP BY 1)"
        members = ",".join(map(str, range(self._ranks)))
        number = "number + k * n"
        self._shared(
            "collectives", None,
            f"SELECT * EXCLUDE (n) REPLACE (\"index\" + k * {self.own} AS \"index\", step + k * {self.steps} "
            f"AS step, hash(process_group, {number}) AS meeting, '{members}' AS members, {number} AS number, "
            f"hash(result, k) AS result) FROM collectives JOIN {counts} USING (process_group), "
            f"range({self.copies}) t(k)",
        )  # fmt: skip
        for table in ("deviations", "constants"):
            empty = self._base / table / "rank=0" / f"{table}.parquet"
            self._shared(table, None, f"SELECT * FROM '{empty}' WHERE false")
        for rank in range(self._ranks):
            for block in self._blocks:
                self._hashes(rank, block)
        self._plant()

    def _hashes(self, rank: int, block: tuple[int, int]) -> None:
        own = f"k + CASE WHEN is_shared THEN 0 ELSE {(rank + 1) << 32} END"
        result = f"hash(result, {own})"
        if rank == FAULTY and block == self._faulty_block:
            result += f' + CASE WHEN "index" + k * {self.own} = {self.fault} THEN 1 ELSE 0 END'
        self._copy(
            f'SELECT ("index" + k * {self.own})::BIGINT AS "index", '
            f"(step + k * {self.steps})::BIGINT AS step, kernel_name, hash(key, {own}) AS key, "
            f"CASE WHEN base IS NULL THEN NULL ELSE hash(base, {own}) END AS base, "
            f"({result})::UBIGINT AS result, settings, is_known "
            f"FROM replicated, range({block[0]}, {block[1]}) t(k)",
            self._file("hashes", rank, block),
        )

    def _plant(self) -> None:
        """The changed result as `arguments` has it."""
        file = self._file("arguments", FAULTY, self._faulty_block)
        changed = f'CASE WHEN "call" = {self.fault} THEN reverse("after") ELSE "after" END AS "after"'
        self._copy(f"SELECT * REPLACE ({changed}) FROM '{file}'", file.with_suffix(".new"))
        os.replace(file.with_suffix(".new"), file)

    def _shared(self, table: str, block: tuple[int, int] | None, sql: str) -> None:
        """One file that all ranks have."""
        first = self._file(table, 0, block)
        self._copy(sql, first)
        for rank in range(1, self._ranks):
            os.link(first, self._file(table, rank, block))

    def _file(self, table: str, rank: int, block: tuple[int, int] | None) -> Path:
        folder = self._made / table / f"rank={rank}"
        if block is not None:
            folder /= f"steps={block[0] * self.steps}-{block[1] * self.steps - 1}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{table}.parquet"

    def _copy(self, sql: str, file: Path) -> None:
        self._sql.execute(f"COPY ({sql}) TO '{file}' (FORMAT parquet, COMPRESSION zstd)")

    def _rows(self, sql: str) -> Any:
        return self._sql.execute(sql).fetchall()


def compared(tables: Path, ranks: int) -> dict[str, Any]:
    words = [sys.executable, "-c", COMPARE, str(tables), str(ranks), str(THREADS), str(MEMORY)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    found: dict[str, Any] = json.loads(subprocess.check_output(words, env=environment))
    return found


def bytes_in(tables: Path, table: str) -> int:
    """On disk; a file with several names counts once."""
    found = {file.stat().st_ino: file.stat().st_size for file in (tables / table).rglob("*.parquet")}
    return sum(found.values())


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", default="8,32,64,128,256", help="how many ranks are compared")
    parser.add_argument("--calls", type=int, default=1_000_000, help="of each rank")
    parser.add_argument("--base", metavar="FOLDER", help="tables to replicate")
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/ranks.md")
    parser.add_argument("--check", action="store_true", help="exit status 1 when a promise is not kept")
    return parser.parse_args()


def measured(given: argparse.Namespace, folder: Path) -> tuple[list[list[str]], list[str]]:
    sizes = [int(size) for size in given.ranks.split(",")]
    base = Path(given.base) if given.base else recorded(folder)
    start = time.perf_counter()
    replicas = Replicas(base, folder / "tables", max(sizes), given.calls)
    replicas.write()
    tables = folder / "tables"
    print(
        f"{max(sizes)} ranks from {replicas.own} calls in {time.perf_counter() - start:.0f} s: "
        f"{bytes_in(tables, 'hashes') / 1e9:.2f} GB of hashes, calls and arguments of one rank "
        f"{(bytes_in(tables, 'calls') + bytes_in(tables, 'arguments')) / 1e9:.2f} GB; {replicas.hashed} of "
        f"{replicas.own} calls are compared, {replicas.shared:.0%} of them have the same inputs on all ranks",
        flush=True,
    )
    rows = [["ranks", "calls", "hashes on disk", "seconds", "CPU seconds", "peak memory", "named"]]
    broken = []
    for size in sizes:
        found = compared(tables, size)
        first = found["first"]
        planted = [FAULTY, replicas.fault, "computed-differently", [FAULTY]]
        is_right = first is not None and first[:4] == planted
        share = sum(bytes_in(tables, f"hashes/rank={rank}") for rank in range(size))
        rows.append([
            str(size), f"{found['calls']:,}", f"{share / 1e9:.2f} GB", f"{found['seconds']:.1f}",
            f"{found['cpu']:.1f}", f"{found['bytes'] / 1e9:.1f} GB", "yes" if is_right else "no",
        ])  # fmt: skip
        print(f"{rows[-1]} {found}", flush=True)
        if not is_right or found["found"] != 1:
            broken.append(f"{size} ranks: found {found}, planted {planted}")
        if found["seconds"] > MOST_SECONDS or found["bytes"] > MOST_BYTES:
            broken.append(f"{size} ranks took {found['seconds']:.0f} s and {found['bytes'] / 1e9:.1f} GB")
    return rows, broken


def main() -> None:
    given = options()
    folder = Path(tempfile.mkdtemp(prefix="ranks-"))
    try:
        rows, broken = measured(given, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table = "\n".join(aligned(rows))
    print(f"{machine('cpu')}; {THREADS} threads, load {os.getloadavg()[0]:.1f}\n{table}")
    if given.write_docs:
        write_table(PAGE, "benchmarks/ranks.py", table)
    if given.check and broken:
        sys.exit("\n".join(broken))


if __name__ == "__main__":
    main()
