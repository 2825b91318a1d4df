"""How long `kernelscope why` takes, beside the commands that it uses when a user types them one by one.

    python benchmarks/why.py                        all scripts of docs/why.md
    python benchmarks/why.py right own_mistake      some of them
    python benchmarks/why.py --check                exit status 1 above the promised 2×, or if a command fails

The answer must be the right one. The commands are those of answer.json, typed into a shell in the same
folder. `why` and the commands each start with an empty Inductor cache; precompiled headers are there for
both. Wall time is from start to end of each process; the ratio is that of processor time, which other work on
the machine changes less.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # a machine that cannot install still measures

import _report
from _measure import machine, of_children, versions

sys.path.insert(0, str(_report.ROOT))

from tests.support.failing_scripts import CASES, SCRIPTS, Case, check_answer
from tests.support.torch_release import RELEASE

PAGE = _report.ROOT / "docs" / "why.md"
MOST = 2.0  # × the time of the commands
REFUSED = 2  # status of a command that could not do its work
UNFINISHED = "not finished"  # begins what `why` says about a step that it could not do either


def measure(case: Case) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="why-") as made:
        folder = Path(made) / "a user's folder"
        shutil.copytree(SCRIPTS, folder)
        took, done = timed(f"kernelscope why -o 'the answer' {case.script}.py", folder, Path(made), "of-why")
        screen = done.stdout
        answer = check_answer(case, folder / "the answer", screen)
        commands = []
        for step in answer["steps"]:
            alone, done = timed(step["command"], folder, Path(made), "of-commands")
            is_refused = done.returncode == REFUSED and not step["found"].startswith(UNFINISHED)
            refusal = (done.stderr.strip() or "status 2").splitlines()[-1] if is_refused else ""
            commands.append(
                {"command": step["command"], "status": done.returncode, "refusal": refusal, **alone}
            )
    return {"script": case.script, "answer": answer["kind"], "screen": screen, **took, "commands": commands}


def timed(
    line: str, folder: Path, home: Path, cache: str
) -> tuple[dict[str, float], subprocess.CompletedProcess[str]]:
    start = home / "bin" / "kernelscope"
    if not start.exists():
        start.parent.mkdir()
        start.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kernelscope "$@"\n', encoding="utf-8")
        start.chmod(0o755)
    variables = os.environ | {
        "PYTHONPATH": str(_report.ROOT / "src"),
        "TORCHINDUCTOR_CACHE_DIR": str(home / cache),
        "PATH": f"{start.parent}{os.pathsep}{os.environ['PATH']}",
    }
    began, used = time.perf_counter(), of_children()
    done = subprocess.run(
        line, shell=True, cwd=folder, env=variables, stdin=subprocess.DEVNULL, capture_output=True,
        encoding="utf-8", errors="replace", check=False,
    )  # fmt: skip
    return {"seconds": time.perf_counter() - began, "processor": of_children() - used}, done


def alone(row: dict[str, Any], what: str) -> float:
    return float(sum(each[what] for each in row["commands"]))


def ratio(row: dict[str, Any]) -> float:
    return float(row["processor"]) / alone(row, "processor")


def table(result: dict[str, Any]) -> str:
    head = ["script", "commands that it needed", "`why`", "the commands", "ratio"]
    rows = [
        [
            f"`{row['script']}.py`", ", ".join(name_of(each["command"]) for each in row["commands"]),
            *(f"{wall:.0f} s, {processor:.0f} s" for wall, processor in (
                (row["seconds"], row["processor"]), (alone(row, "seconds"), alone(row, "processor")),
            )),
            f"{ratio(row):.2f}×",
        ]
        for row in result["rows"]
    ]  # fmt: skip
    about = "Wall time, processor time, and the ratio of processor times."
    where = f"{result['machine']}; {result['versions']}."
    return "\n".join([*_report.aligned([head, *rows]), "", about, where])


def name_of(command: str) -> str:
    words = command.split()
    return f"{words[2]} without the compiler" if "=" in words[0] else words[1]


def broken(result: dict[str, Any]) -> list[str]:
    rows = result["rows"]
    slow = [f"{row['script']}: {ratio(row):.2f}×, more than {MOST}×" for row in rows if ratio(row) > MOST]
    return slow + [
        f"{row['script']}: {each['command']}: {each['refusal']}"
        for row in rows
        for each in row["commands"]
        if each["refusal"]
    ]


def main() -> None:
    known = {case.script: case for case in CASES if case.applies_to(RELEASE)}
    parser = _report.parser(__doc__, PAGE)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help=", ".join(known))
    options = parser.parse_args()
    result: dict[str, Any] = {"machine": machine("cpu"), "versions": versions(), "rows": []}
    for name in options.scripts or known:
        result["rows"].append(row := measure(known[name]))
        say(row)
        _report.keep(options, result)
    _report.report(options, result, table(result), (PAGE, "benchmarks/why.py"), broken)


def say(row: dict[str, Any]) -> None:
    lines = [f"{row['script']}: {row['seconds']:.1f} s, {ratio(row):.2f}×"]
    lines += [f"{each['seconds']:8.1f} s  {each['command']}  {each['refusal']}" for each in row["commands"]]
    print("\n".join(lines), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
