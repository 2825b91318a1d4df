"""`kernelscope issue`: a bug report in Markdown, ready to be sent."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from kernelscope.cli.arguments import add_run, count, part_of
from kernelscope.errors import RunError
from kernelscope.model.call import KernelCall
from kernelscope.store import folder
from kernelscope.store.stored_run import StoredRun, load

from .repro import check_imports

EPILOG = """\
examples:
  kernelscope issue --call 17 -o bug                  ./bug/issue.md, with the script of call 17 beside it
  kernelscope issue train-3 --reduced train-reduced   with what `kernelscope reduce` found
  kernelscope issue                                   the newest run: how it died, what was noticed, and a
                                                      script of the first call of which it was

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
    parser.add_argument(
        "--import", dest="imports", action="append", default=[], metavar="MODULE",
        help="a module that registers operators which the scripts need; repeatable",
    )  # fmt: skip
    parser.add_argument("--reduced", metavar="DIR", help="a folder that `kernelscope reduce` has written")
    parser.add_argument(
        "-o", dest="output", default="issue", metavar="DIR", help="a new folder; default ./issue"
    )
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    from kernelscope.repro import files
    from kernelscope.repro.call_script import call_script
    from kernelscope.repro.graph_script import graph_script
    from kernelscope.repro.report import Shown, report

    target = Path(args.output)
    if target.exists():
        raise RunError(f"{target} is there already, and is not overwritten; choose another with -o")
    check_imports(args.imports)
    run = load(folder.resolve(args.run), part=part_of(args))
    reduced = _reduced(Path(args.reduced)) if args.reduced else None
    scripts = [call_script(run, args.call, args.imports)] if args.call is not None else []
    scripts += [graph_script(run, args.graph, args.imports)] if args.graph is not None else []
    suspect, notes = args.call, list[str]()
    if not scripts and reduced is None and (suspect := _suspect(run)) is not None:
        try:
            scripts = [call_script(run, suspect, args.imports)]
        except RunError as error:
            notes = [f"There is no script of call {suspect}: {error}"]
    shown: list[Shown] = []
    try:
        target.mkdir(parents=True)
    except OSError as error:
        raise RunError(f"{target} cannot be made: {error.strerror}") from None
    if reduced is not None:
        path, told = reduced
        for name in ("reduced.py", "reduced.safetensors"):
            if (path / name).exists():
                (target / name).write_bytes((path / name).read_bytes())
        shown.append(_run(target / "reduced.py", told))
    shown += [_run(files.write(script, target), {}) for script in scripts]
    text = report(run, _call(run, suspect), shown, notes)
    (target / "issue.md").write_text(text, encoding="utf-8", errors="backslashreplace")
    if args.json:
        made = sorted(str(path) for path in target.iterdir())
        print(json.dumps({"report": str(target / "issue.md"), "files": made}))
    else:
        print(f"{target / 'issue.md'}: look at it before you send it")
        for note in notes:
            print(f"  note: {note}")
    return 0


def _call(run: StoredRun, index: int | None) -> KernelCall | None:
    return None if index is None else run.select(first=index, limit=1)[0]


def _suspect(run: StoredRun) -> int | None:
    """The first call that something was noticed about."""
    from kernelscope.repro.report import findings_of

    return next((finding.call for finding in findings_of(run) if 0 <= finding.call < len(run)), None)


def _reduced(path: Path) -> tuple[Path, dict[str, Any]]:
    try:
        told = dict(json.loads((path / "result.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        raise RunError(f"{path} is no folder that `kernelscope reduce` has written") from None
    if not (path / "reduced.py").is_file():
        raise RunError(f"{path} has no reduced script: {told.get('problem', 'it is not there')}")
    return path, told


def _run(path: Path, told: dict[str, Any]) -> Any:
    from kernelscope.repro.report import Shown

    beside = path.with_suffix(".safetensors")
    names = [path.name, *([beside.name] if beside.exists() else [])]
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    printed = done.stdout if done.stdout and done.returncode in (0, 1, 2) else done.stdout + done.stderr
    text = path.read_text(encoding="utf-8")
    return Shown(path.name, text, printed, done.returncode, names, told)
