"""`kernelscope diff`: where two runs first differ, and why."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kernelscope.cli.arguments import add_json, add_part, add_trust, add_wide, load_run, rank_list
from kernelscope.errors import RunError
from kernelscope.store import folder

if TYPE_CHECKING:
    from kernelscope.store.stored_run import StoredRun

DESCRIPTION = (
    "Compare two runs of a program, and name the first call at which they differ. "
    "A run of one process can be compared with a run of several ranks."
)
EPILOG = """\
examples:
  kernelscope diff train-1 train-2          find the first divergence of two runs
  kernelscope diff                          compare the two newest runs here
  kernelscope diff train-1 --ranks 0,1      compare two ranks of one run
  kernelscope diff train-1 train-2 --save   run both again, save that call's tensors, and compare the numbers
  kernelscope diff --calibrate eager other  is the difference rounding, or an error, and where?
  kernelscope diff one sharded              one process against several ranks, put together from their shards
  kernelscope diff --fail-on values a b     in CI: other kernels are fine as long as values are equal
  kernelscope diff --json a b | jq .divergence.kernel_name

The runs need hashes: kernelscope run --values hash script.py. For --calibrate, and to compare one process
with several ranks, both need saved values and eager operators: --values save --ops all.
Exit status: 0 the runs agree, 1 they differ (see --fail-on), 2 they could not be compared.
"""
FAIL_ON = ("values", "kernels", "nothing")
_WHY_NOT = {"values": "no value differs where both runs have a call", "nothing": "differences are only shown"}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", nargs="?", metavar="A", help="a run; default: the second newest")
    parser.add_argument("b", nargs="?", metavar="B", help="another run; default: the newest")
    add_part(parser)
    parser.add_argument("--ranks", type=rank_list, metavar="0,1", help="compare these two ranks of run A")
    parser.add_argument(
        "--save", action="store_true", help="run both commands again and compare the tensors of that call"
    )
    parser.add_argument("--calibrate", action="store_true",
        help="is it rounding or an error? A is the reference, recorded without the compiler")  # fmt: skip
    parser.add_argument("--fail-on", choices=FAIL_ON, default="kernels", metavar="WHAT",
        help="exit with 1 if kernels or values differ (kernels, the default), only if values do (values), "
        "or never (nothing)")  # fmt: skip
    add_trust(parser)
    add_json(parser, "diff")
    add_wide(parser)


def main(args: argparse.Namespace) -> int:
    from kernelscope.analysis.diff.search import diff
    from kernelscope.views import plain

    if args.ranks is None and args.rank is None and not args.part and _is_sharded(args):
        return _sharded(args)
    first, second = _two_ranks(args) if args.ranks is not None else _two_runs(args)
    if args.calibrate:
        return _calibrated(args, first, second)
    found = diff(first, second)
    if args.save and found:
        from kernelscope.determinism.rerun_saving import with_numbers

        found = with_numbers(found, (args.a, first), (args.b, second), trust=args.trust)
    fails = {"kernels": bool(found), "values": found.values_differ, "nothing": False}[args.fail_on]
    if args.json:
        plain.dump(found.to_json() | {"values_differ": found.values_differ, "fails": fails})
    else:
        print(found)
        if found and not fails:
            print(f"--fail-on {args.fail_on}: {_WHY_NOT[args.fail_on]}, so the exit status is 0")
    return int(fails)


def _calibrated(args: argparse.Namespace, first: StoredRun, second: StoredRun) -> int:
    from kernelscope.comparison.recorded.diffing import diff_calibrated
    from kernelscope.views import plain

    if args.save:
        raise RunError("--save cannot be combined with --calibrate; record both with --values save --ops all")
    found = diff_calibrated(first, second)
    status = 0 if found and args.fail_on == "nothing" else found.status
    if args.json:
        plain.dump(found.to_dict() | {"fails": status == 1})
    else:
        print(found.details() if args.wide else found)
        if found and not status:
            print(f"--fail-on {args.fail_on}: {_WHY_NOT[args.fail_on]}, so the exit status is 0")
    return status


def _is_sharded(args: argparse.Namespace) -> bool:
    from kernelscope.store.ranks.rank_parts import has_ranks

    args.a, args.b = _paths(args.a, args.b)
    first, second = has_ranks(args.a), has_ranks(args.b)
    if first and not second:
        raise RunError(
            f"{args.a} was recorded by several ranks, {args.b} by one process: give the latter first, "
            "or compare one rank with --rank N"
        )
    return second and not first


def _sharded(args: argparse.Namespace) -> int:
    from kernelscope.comparison.one_against_many import diff_sharded
    from kernelscope.views import plain

    if args.save:
        raise RunError("--save cannot be combined with a run of several ranks; record with --values save")
    if args.calibrate:
        raise RunError("a run of several ranks is always judged by measured rounding: leave --calibrate out")
    found = diff_sharded(args.a, args.b)
    fails = bool(found) and args.fail_on != "nothing"
    if args.json:
        plain.dump(found.to_json() | {"fails": fails})
    else:
        print(found)
        if found and not fails:
            print(f"--fail-on {args.fail_on}: {_WHY_NOT[args.fail_on]}, so the exit status is 0")
    return int(fails)


def _two_runs(args: argparse.Namespace) -> tuple[StoredRun, StoredRun]:
    args.a, args.b = _paths(args.a, args.b)
    return load_run(args, "a"), load_run(args, "b")


def _two_ranks(args: argparse.Namespace) -> tuple[StoredRun, StoredRun]:
    """Two ranks of one run; running its command again for one of them is not possible."""
    if len(args.ranks) != 2 or args.b is not None or args.rank is not None or args.part:
        raise RunError("--ranks compares two ranks of one run: kernelscope diff RUN --ranks 0,1")
    if args.save:
        raise RunError("--save cannot run the ranks of one run again; compare two runs, with --rank N")
    args.a = args.b = folder.resolve(args.a)
    one, other = args.ranks
    args.rank = one
    first = load_run(args, "a")
    args.rank = other
    return first, load_run(args, "a")


def _paths(a: str | None, b: str | None) -> tuple[Path, Path]:
    """Two runs as given, or the newest ones."""
    if a is not None:
        if b is None and not folder.runs_in(Path.cwd()):
            raise RunError(f"diff needs a second run to compare {a} with; name both: kernelscope diff A B")
        return folder.resolve(a), folder.newest() if b is None else folder.resolve(b)
    newest = folder.runs_in(Path.cwd())
    if len(newest) < 2:
        raise RunError(
            f"diff needs two runs, and there {'is only 1' if newest else 'are 0'} here; "
            "record with: kernelscope run --values hash script.py"
        )
    return newest[1], newest[0]
