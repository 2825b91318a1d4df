"""`kernelscope ranks`: which rank of a run differs first from the others, and where."""

from __future__ import annotations

import argparse

from kernelscope.cli.arguments import add_json, add_ranks, add_run_name, add_wide
from kernelscope.store import folder

DESCRIPTION = "Compare the ranks of a run, and name the first call at which one differs from the others."
EPILOG = """\
examples:
  kernelscope ranks                          the newest run: who differs first, and where?
  kernelscope ranks train-1 --ranks 0-3      only these ranks
  kernelscope ranks --json | jq .first.kernel_name

Record with: kernelscope run --values hash --ops all -m torch.distributed.run …
With --recheck 1 each call is run again on the spot: this finds a wrong result from inputs of one rank alone.
Exit status: 0 the ranks agree, 1 one differs, 2 they could not be compared.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run_name(parser)
    add_ranks(parser, "compare only these ranks")
    add_json(parser, "ranks")
    add_wide(parser)


def main(args: argparse.Namespace) -> int:
    from kernelscope.analysis.ranks.compare import ranks
    from kernelscope.views import plain

    found = ranks(folder.resolve(args.run), args.ranks or None)
    if args.json:
        plain.dump(found.to_json())
    else:
        print(found)
    return found.status
