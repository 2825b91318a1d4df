"""`kernelscope mcp`: the commands for a coding assistant, over the Model Context Protocol."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from kernelscope.cli.arguments import seconds_from
from kernelscope.errors import RunError

DESCRIPTION = "Serve the commands to coding assistants over the Model Context Protocol, on stdin and stdout."
EPILOG = """\
examples:
  kernelscope mcp                               let an assistant read the runs in this folder
  kernelscope mcp --allow-run train.py          … and run this one script: why, record, shadow, bisect, …
  kernelscope mcp --allow-run                   … or each script in this folder
  kernelscope mcp --root ~/experiments          read the runs in another folder
  kernelscope mcp --skill > SKILL.md            write how an agent uses the tools, from symptom to cause
  claude mcp add kernelscope -- kernelscope mcp --allow-run train.py

Only paths below --root are read, and only what --allow-run names is run. Scripts run with your rights.
Needs the mcp package: pip install 'kernelscope[mcp]'
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--root", action="append", default=[], metavar="DIR",
        help="a folder whose runs may be read; repeatable; default: this folder")  # fmt: skip
    add("--allow-run", action="append", nargs="?", const="", default=[], metavar="PATH",
        help="a script or a folder of scripts that may be run; without PATH: below each --root")  # fmt: skip
    add("--timeout", type=seconds_from(1), default=1800.0, metavar="SECONDS",
        help="end a program after this many seconds (default 1800)")  # fmt: skip
    add("--skill", action="store_true", help="print SKILL.md for an agent, and exit")
    add("--json", action="store_true", help="print the tools that would be offered, and exit")


def main(args: argparse.Namespace) -> int:
    from kernelscope.integrations.mcp.allowed import Allowed
    from kernelscope.integrations.mcp.server import serve, skill_text, tool_list
    from kernelscope.integrations.mcp.tools import Tools

    for path in args.root:
        if not Path(path).is_dir():
            raise RunError(f"--root {path} is not a folder")
    for path in filter(None, args.allow_run):
        if not Path(path).exists():
            raise RunError(f"--allow-run {path} does not exist")
    tools = Tools(Allowed.of(args.root, args.allow_run), args.timeout)
    if args.skill:
        print(skill_text(), end="")
    elif args.json:
        print(json.dumps({"tools": tool_list(tools)}, indent=2))
    else:
        serve(tools)
    return 0
