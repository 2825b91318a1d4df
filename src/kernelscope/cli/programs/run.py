"""`kernelscope run`: the script runs in a child, and what it launches is recorded there."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import sys
from pathlib import Path

from kernelscope.cli.program import check_module, check_script
from kernelscope.errors import RunError
from kernelscope.options import add_recording_options, config_of, take_over_printer, value_settings_of
from kernelscope.startup.recorded_child import watch
from kernelscope.store import folder
from kernelscope.store.stored_run import load

STOPPED = 3  # exit status of a program that a watch has ended, as values.script has it
LATE_HIT = "watch-late"  # kind of its finding, where the program went on for a while

EPILOG = """\
examples:
  kernelscope run train.py --epochs 1          record a script
  kernelscope run --values hash -m my.module   with a hash of every tensor before and after each kernel
  kernelscope run --time --steps 3:5 train.py  time steps 3 and 4
  kernelscope run --print --values-of '*addmm*' train.py     print what these kernels find and leave
  kernelscope run --stop-on nan train.py       end at the first kernel that makes a NaN, with its inputs saved
  kernelscope run -o before -- torchrun --nproc-per-node 2 train.py

The exit status is the script's own; 2 when it could not be started. Processes that the script starts record
too, each in its own folder below the run. Under torchrun or Slurm, KERNELSCOPE_RUN=NAME in the environment
does the same without this command, and KERNELSCOPE_OPTIONS takes the options.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "run",
        help="run a script and record what it launches",
        description="Run a script, module or command, and record every kernel that it launches.",
        usage="kernelscope run [options] (script.py | -m module | -- command) [arguments …]",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_recording_options(parser.add_argument_group("what to record"))
    group = parser.add_argument_group("where to")
    group.add_argument(
        "-o", dest="output", metavar="NAME", help="folder to make; default kscope-runs/SCRIPT-1"
    )
    group.add_argument(
        "--json", action="store_true", help="say at the end where the run is, as JSON on stderr"
    )
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="module", help="run a module")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    try:
        take_over_printer(args)
        config_of(args)  # so that a wrong setting is said before anything is started
        _check_folder(value_settings_of(args).folder)
    except (ValueError, TypeError) as error:
        raise RunError(str(error).replace("record(", "").replace("):", ":")) from None
    command, stem = command_of(args)
    path = (
        folder.create(folder.named(args.output))
        if args.output
        else folder.create_next(Path(folder.HOME), stem)
    )
    status = watch(command, path, options_text(args), as_json=args.json)
    if args.stop_on and not args.exact and (late := late_hits(path)):
        return _again_exactly(args, command, stem, late)
    return status


def late_hits(path: Path) -> list[str]:
    """What a watch found without waiting for the GPU: the program went on for a while."""
    found = []
    for part in folder.parts(path):
        with contextlib.suppress(RunError):
            found += [f.message for f in load(part).findings if f.kind == LATE_HIT]
    return found


def _again_exactly(args: argparse.Namespace, command: list[str], stem: str, late: list[str]) -> int:
    """Run it once more and stop right after that call, so that its inputs can be saved."""
    print("kernelscope: once more, waiting for each launch, to save what it found", file=sys.stderr)
    args.exact = True
    path = folder.create_next(Path(args.output).parent if args.output else Path(folder.HOME), f"{stem}-exact")
    status = watch(command, path, options_text(args), as_json=args.json)
    if status != STOPPED:
        print(
            f"kernelscope: it did not happen again (exit status {status}); it had been\n  {late[0]}",
            file=sys.stderr,
        )
    return STOPPED


def _check_folder(given: str) -> None:
    """So that a folder for values that cannot be is said before anything is started."""
    path = Path(given)
    if not given:
        return
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise RunError(f"--save-to {given}: it is there already, and is not overwritten; name a new folder")
    above = next(each for each in path.absolute().parents if each.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise RunError(f"--save-to {given}: {above} is no folder that can be written to")


def options_text(args: argparse.Namespace) -> str:
    """The recording options again as text, for the children."""
    parser = argparse.ArgumentParser()
    add_recording_options(parser)
    words: list[str] = []
    for action in parser._actions[1:]:
        value = getattr(args, action.dest)
        if value == action.default:
            continue
        if action.dest == "steps":
            value = f"{value[0]}:{value[1]}"
        for each in value if isinstance(value, list) else [value]:
            words += [action.option_strings[0]] if each is True else [f"{action.option_strings[0]}={each}"]
    return shlex.join(words)


def command_of(args: argparse.Namespace) -> tuple[list[str], str]:
    """What to start, and what to name the run after."""
    if args.module is not None:
        if not args.module:
            raise RunError("-m needs the name of a module")
        check_module(args.module[0])
        return [sys.executable, "-m", *args.module], args.module[0]
    words = args.command
    if words[:1] == ["--"]:
        if len(words) < 2:
            raise RunError("give a command after --")
        if shutil.which(words[1]) is None:
            raise RunError(f"there is no command {words[1]}")
        return words[1:], Path(words[1]).stem
    if not words:
        raise RunError("what shall it run? Give a script, -m module, or -- command")
    check_script(Path(words[0]))
    return [sys.executable, *words], Path(words[0]).stem
