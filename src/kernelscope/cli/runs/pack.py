"""`kernelscope pack`: one file of a run."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from kernelscope.cli.arguments import add_json, add_run_name
from kernelscope.errors import RunError
from kernelscope.store import folder
from kernelscope.store.packing import SUFFIX, Packed, pack_parts
from kernelscope.store.safety.leaving_out import PARTS, what_leaves
from kernelscope.text.amounts import byte_size, counted
from kernelscope.text.visible import one_line
from kernelscope.views import plain

DESCRIPTION = (
    "Pack a run into one file to attach to an issue: calls, kernel sources, paths, tensors and values."
)
EPILOG = (
    """\
examples:
  kernelscope pack                       pack the newest run into NAME.kscope.zip
  kernelscope pack train-3 -o bug.zip
  kernelscope pack --share               … and list what it reveals about you and this machine
  kernelscope pack --share --without paths,host,command,environment
  kernelscope pack --without source,tensors,values

Parts for --without: """
    + "; ".join(f"{name} ({what})" for name, what in PARTS.items())
    + ".\n"
)
_FEW = 3  # examples of each part


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run_name(parser)
    add_json(parser)
    add = parser.add_argument
    add("-o", dest="output", metavar="FILE", help="default: the run's name with .zip, here")
    add("--share", action="store_true", help="list what leaves this machine: paths, host, command, source")
    add("--without", action="append", default=[], metavar="PARTS",
        help=f"leave out, separated by commas: {', '.join(PARTS)}")  # fmt: skip


def main(args: argparse.Namespace) -> int:
    without = [name.strip() for given in args.without for name in given.split(",") if name.strip()]
    unknown = [name for name in without if name not in PARTS]
    if unknown:
        raise RunError(f"--without {unknown[0]}: use {', '.join(PARTS)}")
    run = folder.resolve(args.run)
    leaving = _leaving(run, without) if args.share else {}
    target = Path(args.output) if args.output else Path(run.absolute().name + SUFFIX)
    made = pack_parts(run, target, without)
    if args.json:
        told = {"run": str(run), "file": str(made.file), "bytes": made.bytes}
        told |= {"values": made.values, "value_bytes": made.value_bytes, "without": made.left_out}
        told["others"] = made.others
        plain.dump(told | ({"leaves": leaving} if args.share else {}))
        return 0
    print(f"{made.file} ({', '.join(_contents(made))})")
    if made.others:
        are = "is" if made.others == 1 else "are"
        print(f"  note: {counted(made.others, 'other file')} in tensors/ and values/ {are} not packed")
    if args.share:
        print("what leaves this machine with it:")
        for name, examples in leaving.items():
            print(f"  {name:<12} {_listed(examples)}")
        print("leave parts out with --without NAME,NAME; nothing was sent")
    return 0


def _contents(made: Packed) -> list[str]:
    found = [byte_size(made.bytes)]
    if made.values:
        found.append(f"with {counted(made.values, 'file')} of values, {byte_size(made.value_bytes)} unpacked")
    if made.left_out:
        found.append(f"without {', '.join(made.left_out)}")
    return found


def _leaving(run: Path, without: list[str]) -> dict[str, list[str]]:
    """By part: what is in the file, of all processes."""
    found: dict[str, list[str]] = {name: [] for name in PARTS if name not in without}
    for part in folder.parts(run):
        for name, examples in what_leaves(part / folder.DATABASE).items():
            if name in found:
                found[name] += [each for each in examples if each and each not in found[name]]
        if "values" in found and (files := [f for f in (part / folder.VALUES).glob("*/*.pt") if f.is_file()]):
            found["values"].append(
                f"{counted(len(files), 'file')} in {folder.part_name(run, part) or 'values'}"
            )
    invocation = folder.read_invocation(run)
    if "command" in found and invocation is not None:
        found["command"] = [f"{shlex.join(invocation.command)} in {invocation.cwd}"]
    return found


def _listed(examples: list[str]) -> str:
    shown = ", ".join(one_line(each) for each in examples[:_FEW])
    more = f", and {len(examples) - _FEW} more" if len(examples) > _FEW else ""
    return (shown + more) or "nothing"
