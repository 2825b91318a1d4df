"""`kernelscope issue`: a bug report in Markdown, ready to be sent."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ..run import KernelCall, StoredRun, folder, load
from ..run.errors import RunError
from .arguments import add_run, count, part_of

EPILOG = """\
examples:
  kernelscope issue --call 17 -o bug                  ./bug/issue.md, with the script of call 17 beside it
  kernelscope issue train-3 --reduced train-reduced   with what `kernelscope reduce` found
  kernelscope issue                                   the newest run: how it died, what was noticed

The scripts are run once, so that the report has what they print. Look at it before you send it: it has
lines of your program, names of your files, and, in the files beside it, values of your tensors.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "issue",
        help="a bug report in Markdown, from a run",
        description="Write a bug report: environment, verdict, script, expected and actual.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    parser.add_argument("--call", type=count, metavar="N", help="the call that it is about")
    parser.add_argument("--graph", metavar="GRAPH", help="or the graph: its number, name or compile id")
    parser.add_argument("--reduced", metavar="DIR", help="a folder that `kernelscope reduce` has written")
    parser.add_argument(
        "-o", dest="output", default="issue", metavar="DIR", help="a new folder; default ./issue"
    )
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    from ..repro import files
    from ..repro.call_script import call_script
    from ..repro.graph_script import graph_script
    from ..repro.report import Shown, report

    target = Path(args.output)
    if target.exists():
        raise RunError(f"{target} is there already, and is not overwritten; choose another with -o")
    run = load(folder.resolve(args.run), part=part_of(args))
    reduced = _reduced(Path(args.reduced)) if args.reduced else None
    shown: list[Shown] = []
    target.mkdir(parents=True)
    if reduced is not None:
        path, told = reduced
        for name in ("reduced.py", "reduced.safetensors"):
            if (path / name).exists():
                (target / name).write_bytes((path / name).read_bytes())
        shown.append(_run(target / "reduced.py", told))
    if args.call is not None:
        shown.append(_run(files.write(call_script(run, args.call), target), {}))
    if args.graph is not None:
        shown.append(_run(files.write(graph_script(run, args.graph), target), {}))
    text = report(run, _call(run, args.call), shown)
    (target / "issue.md").write_text(text)
    if args.json:
        made = sorted(str(path) for path in target.iterdir())
        print(json.dumps({"report": str(target / "issue.md"), "files": made}))
    else:
        print(f"{target / 'issue.md'}: look at it before you send it")
    return 0


def _call(run: StoredRun, index: int | None) -> KernelCall | None:
    return None if index is None else run.select(first=index, limit=1)[0]


def _reduced(path: Path) -> tuple[Path, dict[str, Any]]:
    try:
        told = dict(json.loads((path / "result.json").read_text()))
    except (OSError, ValueError):
        raise RunError(f"{path} is no folder that `kernelscope reduce` has written") from None
    if not (path / "reduced.py").is_file():
        raise RunError(f"{path} has no reduced script: {told.get('problem', 'it is not there')}")
    return path, told


def _run(path: Path, told: dict[str, Any]) -> Any:
    from ..repro.report import Shown

    beside = path.with_suffix(".safetensors")
    names = [path.name, *([beside.name] if beside.exists() else [])]
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    return Shown(path.name, path.read_text(), done.stdout or done.stderr, done.returncode, names, told)
