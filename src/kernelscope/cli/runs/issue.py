"""`kernelscope issue`: a bug report in Markdown, ready to be sent."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from kernelscope.cli.arguments import add_imports, add_run, add_trust, load_run
from kernelscope.options import count

DESCRIPTION = "Write a bug report: environment, verdict, script, expected and actual results."
EPILOG = """\
examples:
  kernelscope issue --call 17 -o bug                  writes ./bug/issue.md and a script of call 17
  kernelscope issue train-3 --reduced train-reduced   include the result of `kernelscope reduce`
  kernelscope issue                                   the newest run: how it died, its findings, and a script
                                                      of the first call with a finding

The scripts are run once, and the report quotes their output. If you did not make the run, they are run with
--trust only. Read the report before you send it: it contains lines of your program and names of your files,
and the files beside it contain values of your tensors.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add = parser.add_argument
    add("--call", type=count, metavar="N", help="report call N")
    add("--graph", metavar="GRAPH", help="report a graph: its number, name or compile id")
    add("--reduced", metavar="DIR", help="a folder written by `kernelscope reduce`")
    add("-o", dest="output", default="issue", metavar="DIR", help="folder to create; default ./issue")
    add("--no-run", action="store_true", help="write the report without running its scripts")
    add_trust(parser)
    add_imports(parser)


def main(args: argparse.Namespace) -> int:
    from kernelscope.repro.issue_folder import write_issue

    target, reduced = Path(args.output), Path(args.reduced) if args.reduced else None
    about = {"call": args.call, "graph": args.graph, "imports": args.imports, "reduced": reduced}
    how = {"trust": args.trust, "runs": not args.no_run}
    notes = write_issue(load_run(args), target, **about, **how)
    if args.json:
        made = sorted(str(path) for path in target.iterdir())
        print(json.dumps({"report": str(target / "issue.md"), "files": made}))
    else:
        print(f"{target / 'issue.md'}: read it before you send it")
        for note in notes:
            print(f"  note: {note}")
    return 0
