"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

from kernelscope.errors import RunError
from kernelscope.options import count
from kernelscope.processes.program_words import predicate_words

if TYPE_CHECKING:
    from kernelscope.store.stored_run import StoredRun
    from kernelscope.views.call_filter import CallFilter

RAY_ADDRESS = "--ray-address"  # what --ray=ADDRESS is to argparse
_LONGEST = 31_536_000  # seconds of a time limit: a year
SCRIPT_USAGE = "[options] (script.py | -m module) [arguments …]"


def add_run(parser: argparse.ArgumentParser) -> None:
    """A run that is read: which one, which process of it, and whether as JSON."""
    add_run_name(parser)
    add_json(parser)
    add_wide(parser)
    add_part(parser)


def add_run_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", metavar="RUN", help="folder or name of a run; default: the newest")


def add_json(parser: argparse.ArgumentParser, page: str = "cli") -> None:
    parser.add_argument("--json", action="store_true", help=f"print JSON (keys: docs/{page}.md)")


def add_check(group: argparse._ArgumentGroup, fails_on: str) -> None:
    """Which failures of a script are searched for; `fails_on` explains the first option."""
    add = group.add_argument
    add("--fails-on", choices=["shadow", "exception", "nan"], help=fails_on)
    add("--message", metavar="TEXT", help="count only exceptions whose message contains TEXT")
    add("--check", metavar="COMMAND", help="run after the script; a non-zero exit status counts as failure")
    add("--predicate", metavar="FILE:FUNCTION",
        help="function that gets the script's global names; a true result counts as failure")  # fmt: skip


def chosen_check(args: argparse.Namespace) -> tuple[str, str] | None:
    """What is searched for, and its command, function or text; None where no option says it."""
    given = {"check": args.check, "predicate": args.predicate, "exception": args.message}
    named = {name: value for name, value in given.items() if value is not None}
    if args.fails_on:
        named.setdefault(args.fails_on, "")
    if len(named) > 1:
        options = {"check": "--check", "predicate": "--predicate"}
        words = (options.get(name, f"--fails-on {name}") for name in named)
        raise RunError(f"choose one kind of failure: {' or '.join(words)}")
    if args.predicate is not None:
        predicate_words(args.predicate)
    return next(iter(named.items()), None)


def add_ops(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ops",
        default="all",
        metavar="WHICH",
        help="graph: compiled code and Triton kernels; all: eager operators too (default)",
    )


def add_wide(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wide", action="store_true", help="on a terminal, print as much as into a pipe")


def add_part(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--part", default="", metavar="NAME", help="another process of it: rank-1, child-42")
    parser.add_argument("--rank", type=count, metavar="N", help="what rank N recorded")


def add_ranks(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("--ranks", type=rank_list, metavar="LIST", help=f"{help}: 0-3,6 or all")


def add_precision(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--precision", metavar="FILE", help="show the map that kernelscope precision --json wrote to FILE"
    )


def add_call_filter(parser: argparse.ArgumentParser, limit: int) -> None:
    add = parser.add_argument
    add("--kernel", action="append", default=[], metavar="GLOB", help="only kernels whose name matches GLOB")
    add("--kind", action="append", default=[], metavar="KIND", help="only triton, cpp, extern, op, …")
    add("--graph", metavar="GRAPH", help="only one graph: its number, name or compile id")
    add("--step", type=count, metavar="N", help="only step N")
    add("--phase", metavar="PHASE", help="only forward, backward, optimizer or other")
    add("--first", type=count, default=0, metavar="N", help="start at call N")
    most = f"at most N calls (default {limit}); 0: all" if limit else "at most N calls; 0: all (default)"
    add("--limit", type=count, default=limit, metavar="N", help=most)


def add_imports(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--import", dest="imports", action="append", default=[], type=_module_name, metavar="MODULE",
        help="a module that registers operators which the script needs; repeatable",
    )  # fmt: skip


def _module_name(text: str) -> str:
    if not all(word.isidentifier() and not iskeyword(word) for word in text.split(".")):
        raise argparse.ArgumentTypeError(f"{text!r:.40}: give the name of a module")
    return text


def add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trust", action="store_true",
                        help="execute code of a run that you did not make; read it first")  # fmt: skip


def add_script(parser: argparse.ArgumentParser) -> None:
    """The program to run, with its own arguments: everything from its name on."""
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="module", help="run a module")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def add_ray(parser: argparse.ArgumentParser, help: str) -> None:
    """--ray or --ray=ADDRESS: the word after a bare --ray is the script."""
    parser.add_argument(
        "--ray", dest="ray", action="store_const", const="", metavar="ADDRESS",
        help=f"{help}; --ray=HOST:PORT, or RAY_ADDRESS; default: this machine alone",
    )  # fmt: skip
    parser.add_argument(RAY_ADDRESS, dest="ray", metavar="ADDRESS", help=argparse.SUPPRESS)


def ray_of(args: argparse.Namespace) -> AbstractContextManager[Any | None]:
    """Ray as --ray wants it, connected; None without the option."""
    if args.ray is None:
        return nullcontext()
    from kernelscope.processes.cluster.ray_cluster import connected

    return connected(args.ray, "--ray")


def given_ray(args: argparse.Namespace) -> list[str]:
    return [] if args.ray is None else [f"--ray={args.ray}" if args.ray else "--ray"]


def seconds_from(least: int) -> Callable[[str], float]:
    """A time limit, of at least so many seconds."""

    def seconds(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = -1.0
        if not least <= found <= _LONGEST:  # not a number is neither
            raise argparse.ArgumentTypeError(
                f"{text!r:.40}: give a number of seconds from {least} to {_LONGEST}"
            )
        return found

    return seconds


def rank_list(text: str) -> list[int]:
    """ "0-3,7": ranks of a run; "all" is an empty list."""
    if text == "all":
        return []
    from kernelscope.store.ranks.rank_parts import parse_ranks

    try:
        return parse_ranks(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def load_run(args: argparse.Namespace, which: str = "run") -> StoredRun:
    """The run that an argument names; for `run`, the newest one by default."""
    from kernelscope.store import folder
    from kernelscope.store.stored_run import load

    path = folder.resolve(getattr(args, which))
    if args.rank is not None:
        from kernelscope.store.ranks.rank_parts import load_rank

        run = load_rank(path, args.rank)
    else:
        run = load(path, part=str(args.part))
    args.loaded = [*getattr(args, "loaded", ()), run]
    return run


def why_damaged(args: argparse.Namespace, error: Exception) -> str:
    """What to say where contents that we did not write have made us fail; "" if every run was made here."""
    from kernelscope.store.run_db.row_reader import DAMAGES

    foreign = [run.path for run in getattr(args, "loaded", ()) if run.why_not_made_here()]
    if not foreign or not isinstance(error, DAMAGES):
        return ""
    what = f"{type(error).__name__}: {error!s:.200}"
    return f"{foreign[0]} is damaged, or was not written by kernelscope ({what})"


def load_other(args: argparse.Namespace) -> StoredRun | None:
    """The second run, of --diff."""
    return None if args.diff is None else load_run(args, "diff")


def call_filter(args: argparse.Namespace, *, changed: bool = False) -> CallFilter:
    from kernelscope.views.call_filter import CallFilter

    graph = int(args.graph) if args.graph and args.graph.isdecimal() else args.graph
    kernel, kind = tuple(args.kernel), tuple(args.kind)
    return CallFilter(kernel, kind, graph, args.step, args.phase, args.first, args.limit, changed)
