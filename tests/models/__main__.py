"""Check the everyday models: no alarm, nothing unjudged, results as without kernelscope.

    python -m tests.models                        all of them, on the CPU, and print the table
    python -m tests.models --only 'llama*'        some
    python -m tests.models --journal models.jsonl --minutes 10     go on where the journal ends
    python -m tests.models --write-docs           put the table into docs/shadow.md

Exit status 1: a model raised an alarm, could not be judged, or got another result.
Needs `pip install -e '.[models]'`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

from tests.models.check import MODES, Outcome
from tests.models.table import table
from tests.programs.models.everyday_models import INSTALLED, MISSING

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/shadow.md"


def main() -> int:
    options = _options()
    if MISSING:
        print(f"not installed, so their models are left out: {', '.join(MISSING)}", file=sys.stderr)
    done = list(_read(options.journal))
    known = {(outcome.model, outcome.mode) for outcome in done if outcome.device == options.device}
    wanted = {
        name: [mode for mode in options.modes if (name, mode) not in known]
        for name in INSTALLED
        if fnmatch(name, options.only)
    }
    end = time.monotonic() + 60 * options.minutes

    def run(name: str) -> list[Outcome]:
        found = _run(name, wanted[name], options.device, end)
        for outcome in found:
            outcome.commit = options.commit
            print(_line(outcome), flush=True)
            if options.journal:
                with open(options.journal, "a", encoding="utf-8") as journal:
                    journal.write(json.dumps(outcome.to_dict()) + "\n")
        return found

    with ThreadPoolExecutor(options.jobs) as pool:
        for found in pool.map(run, [name for name, modes in wanted.items() if modes]):
            done += found
    text = table(done, options.device)
    print(f"\n{text}")
    if options.write_docs:
        _write_docs(text, options.device)
    return int(any(outcome.broken_promises() for outcome in done))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.models",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument(
        "--only", metavar="GLOB", default="*", help="check only models whose name matches GLOB"
    )
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    parser.add_argument(
        "--minutes", type=float, default=600.0, help="start no model and end all after MINUTES"
    )
    parser.add_argument(
        "--journal", metavar="FILE", help="keep outcomes in FILE, and repeat none that it has"
    )
    parser.add_argument("--commit", default=_commit(), help="what the table names as the commit")
    parser.add_argument(
        "--write-docs", action="store_true", help=f"put the table into {PAGE.relative_to(ROOT)}"
    )
    return parser.parse_args()


def _commit() -> str:
    """The commit of this tree, or nothing in a copy without its history."""
    try:
        command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _run(name: str, modes: list[str], device: str, end: float) -> list[Outcome]:
    """The outcomes of one model, from a process of its own."""
    left = end - time.monotonic()
    if left < 1:
        return []
    command = [sys.executable, "-m", "tests.models.worker", device, name, *modes]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    try:
        ended = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=left,
        )
        printed, said = ended.stdout, ended.stderr
    except subprocess.TimeoutExpired as late:
        return list(_outcomes((late.stdout or b"").decode().splitlines()))
    found = list(_outcomes(printed.splitlines()))
    if len(found) < len(modes):
        problem = f"the process ended with status {ended.returncode}:\n{said[-2000:]}"
        found.append(Outcome(name, modes[len(found)], device, error=problem))
    return found


def _outcomes(lines: Iterable[str]) -> Iterator[Outcome]:
    for line in lines:
        if line.startswith("{"):
            yield Outcome(**json.loads(line))


def _read(journal: str | None) -> Iterator[Outcome]:
    if journal and Path(journal).exists():
        yield from _outcomes(Path(journal).read_text(encoding="utf-8").splitlines())


def _line(outcome: Outcome) -> str:
    broken = outcome.broken_promises()
    first = f": {broken[0].splitlines()[-1 if outcome.error else 0][:160]}" if broken else ""
    return (
        f"{'FAILED' if broken else 'ok':6} {outcome.model} {outcome.mode} "
        f"{outcome.launches} launches, {outcome.buffers} buffers, {outcome.unjudged_share:.1%} not judged, "
        f"{outcome.seconds:.0f} s{first}"
    )


def _write_docs(text: str, device: str) -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import _report

    _report.write_table(PAGE, f"models:{device}", text)


if __name__ == "__main__":
    sys.exit(main())
