"""`kernelscope audit`: a script under a profiler, and which of its launches are inside recorded calls."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from kernelscope.cli.arguments import SCRIPT_USAGE, add_json, add_ops, add_script
from kernelscope.errors import RunError
from kernelscope.processes.program_words import command_words, stem_of
from kernelscope.startup.recorded_child import exact_status, watch
from kernelscope.store import folder
from kernelscope.store.stored_run import load
from kernelscope.text.process_ends import how_it_ended

DESCRIPTION = "Run a script under a profiler, and check that every launch is inside a recorded call."
USAGE = SCRIPT_USAGE
EPILOG = """\
examples:
  kernelscope audit train.py --steps 2         compare compiled code and eager operators with the record
  kernelscope audit --ops graph train.py       compiled code alone is recorded; the rest is listed
  kernelscope audit --json train.py | jq '.parts[].audit.outside[].name'

On a CPU, the calls are compared with the operators that torch's profiler sees, and with the launches in the
text of the generated code. On a GPU, they are compared with each kernel, copy and fill that it executed.
Use a short program: a profiler keeps every event in memory.
Exit status: 0 every launch of compiled code (with --ops all: every launch) is inside a call, 1 some are not,
2 the script could not be run or did not finish.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_ops(parser)
    add("-o", dest="output", metavar="NAME", help="folder to create; default kscope-runs/SCRIPT-audit-1")
    add_json(parser, "coverage")
    add_script(parser)


def main(args: argparse.Namespace) -> int:
    from kernelscope.views import plain

    if args.ops not in ("all", "graph"):
        raise RunError(f"--ops {args.ops}: use all or graph")
    command, stem = command_words(args.module, args.command), stem_of(args.module, args.command)
    output = args.output and folder.named(args.output)
    path = folder.create(output) if output else folder.create_next(Path(folder.HOME), f"{stem}-audit")
    status = watch(command, path, f"--audit --ops {args.ops}", aside=args.json)
    if status:
        ended = how_it_ended(exact_status(path, status))
        print(f"kernelscope: {shlex.join(command[1:])} {ended}", file=sys.stderr)
    audits = {folder.part_name(path, part): load(part).audit for part in folder.parts(path)}
    found = {name: audit for name, audit in audits.items() if audit is not None}
    if not found:
        raise RunError(f"{path} has no audit: the script did not import torch, or did not finish")
    if args.json:
        forms = [{"part": name, "audit": audit.as_json()} for name, audit in found.items()]
        plain.dump({"run": str(path), "parts": forms})
    for name, audit in found.items() if not args.json else ():
        print("\n".join([*([f"{name or stem}:"] if len(found) > 1 else []), *audit.lines()]))
    if status:
        return 2
    wants_all = args.ops == "all"
    return int(any(a.missing or a.incomplete or (wants_all and a.outside) for a in found.values()))
