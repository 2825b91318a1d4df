"""`kernelscope export`: a run in the format of another tool."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kernelscope.cli.arguments import (
    add_call_filter,
    add_part,
    add_ranks,
    add_run_name,
    call_filter,
    load_run,
)  # fmt: skip
from kernelscope.errors import RunError, reason
from kernelscope.store import folder
from kernelscope.text.amounts import counted

if TYPE_CHECKING:
    from kernelscope.store.stored_run import StoredRun

DESCRIPTION = "Write a run, or some of its calls, in the format of another tool."
EPILOG = """\
examples:
  kernelscope export --perfetto                 a trace for ui.perfetto.dev or chrome://tracing
  kernelscope export --parquet -o tables        tables for pandas, polars or DuckDB: tables/calls.parquet, …
  kernelscope export --parquet --ranks all -o d  one dataset of all ranks: d/calls/rank=0/steps=0-41/…
  kernelscope export --json -o - | jq '.calls[0].kernel_name'
  kernelscope export --dot -o flow.dot          which kernel feeds which: dot -Tsvg flow.dot
  kernelscope export --perfetto --step 3        export one step only
  kernelscope export --tensorboard -o logs      statistics and histograms of each kernel, for TensorBoard
  kernelscope export --mlflow                   run, page, findings and statistics, to MLflow
  kernelscope export --wandb -o here            … to an offline run of Weights & Biases

Runs of any length can be exported. The default output is in this folder, named after the run.
"""


_TRACKERS = {
    "mlflow": "artifacts and metrics of MLflow; -o is a tracking URI (default: MLflow's own setting)",
    "wandb": "an offline run of Weights & Biases, in -o DIR (default: here)",
    "tensorboard": "event files in -o DIR (default: NAME.tensorboard), in a folder named after the run",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run_name(parser)
    formats = parser.add_mutually_exclusive_group(required=True)
    for name, what in (
        ("perfetto", "a trace with streams, threads, graphs, stages, and arrows from writers to readers"),
        ("parquet", "a folder of tables (needs pyarrow)"),
        ("json", "one document with everything (keys: docs/export.md)"),
        ("dot", "a graph of kernels and the data flow between them"),
    ):
        formats.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=what)
    for name, what in _TRACKERS.items():
        formats.add_argument(f"--{name}", dest="tracker", action="store_const", const=name, help=what)
    parser.add_argument("-o", dest="output", metavar="FILE", help="output file; - is standard output")
    parser.add_argument("--no-flows", action="store_true", help="with --perfetto: no arrows; half the size")
    add_part(parser)
    add_ranks(parser, "with --parquet: one dataset of these ranks, partitioned by rank and steps")
    add_call_filter(parser, limit=0)


def main(args: argparse.Namespace) -> int:
    from kernelscope.export import FORMS, export

    if args.no_flows and args.form != "perfetto":
        raise RunError("--no-flows needs --perfetto: it leaves out the arrows of a trace")
    if args.ranks is not None:
        return _ranks(args)
    run = load_run(args)
    if args.tracker is not None:
        from kernelscope.integrations.tracked_run import has_statistics

        _refuse_filters(args)
        try:
            print(_track(run, args.tracker, args.output))
            if len(run) and not has_statistics(run):
                print("the run has no statistics, so there are no curves; record with --values stats")
        except OSError as error:
            raise RunError(f"--{args.tracker} -o {args.output} cannot be written: {reason(error)}") from None
        except Exception as error:
            if not type(error).__module__.startswith(args.tracker):  # the tracker's own
                raise
            first = (str(error).splitlines() or [""])[0]
            raise RunError(f"{args.tracker} failed: {type(error).__name__}: {first:.300}") from None
        return 0
    path = Path(args.output or run.path.name.removesuffix(folder.SUFFIX) + FORMS[args.form][1])
    calls = export(run, args.form, path, wanted=call_filter(args), flows=not args.no_flows)
    if args.output != "-":
        print(f"{counted(calls, 'call')} in {path}")
        if args.form == "perfetto":
            if calls and not run.times():
                print("the run has no times, so each call is a mark at its launch; record with --time")
            print("open it in https://ui.perfetto.dev or chrome://tracing; both read it on your machine only")
    return 0


def _ranks(args: argparse.Namespace) -> int:
    """A dataset of several ranks."""
    from kernelscope.export.rank_dataset import export_ranks
    from kernelscope.views.call_filter import CallFilter

    if args.form != "parquet":
        raise RunError("--ranks needs --parquet; give --rank N to export one rank in another format")
    if args.rank is not None or args.part:
        raise RunError("--ranks, --rank and --part exclude each other; give one of them")
    if call_filter(args) != CallFilter():
        raise RunError("--ranks exports all calls of a rank: leave out --kernel, --step and other selections")
    root = folder.resolve(args.run)
    path = Path(args.output or root.name.removesuffix(folder.SUFFIX) + ".ranks")
    calls = export_ranks(root, path, args.ranks or None, tell=lambda line: print(line, file=sys.stderr))
    print(f"{counted(calls, 'call')} in {path}; compare the ranks: kernelscope ranks {path}")
    return 0


def _refuse_filters(args: argparse.Namespace) -> None:
    """A filter that changes nothing would be taken for one that works."""
    from kernelscope.views.call_filter import CallFilter

    if call_filter(args) != CallFilter():
        raise RunError(
            f"--{args.tracker} exports the whole run: leave out --kernel, --step and other selections"
        )


def _track(run: StoredRun, tracker: str, output: str | None) -> str:
    """Log to a tracker; what was made, in words."""
    name = run.path.name.removesuffix(folder.SUFFIX)
    if output == "-":
        raise RunError(f"--{tracker} writes no standard output; give -o another value")
    if tracker == "mlflow":
        from kernelscope.integrations import mlflow

        return f"run {mlflow.log_run(run, tracking_uri=output)} of MLflow"
    if tracker == "wandb":
        from kernelscope.integrations import wandb

        return f"upload it with: wandb sync {wandb.log_run(run, directory=output)}"
    from kernelscope.integrations import tensorboard

    target = output or f"{name}.tensorboard"
    made = tensorboard.log_run(run, target)
    return f"{counted(made.values, 'value')} in {made.folder}; see them: tensorboard --logdir {target}"
