"""What to record, in words: the same on the command line and in KERNELSCOPE_OPTIONS."""

from __future__ import annotations

import argparse
import re
import shlex

from .config import OPTIONS, Config, ValueSettings, printer_from_environment, strict_from_environment


def parse_options(text: str) -> argparse.Namespace:
    """KERNELSCOPE_OPTIONS has the recording options of `kernelscope run`."""
    parser = argparse.ArgumentParser(prog=OPTIONS, exit_on_error=False, add_help=False)
    add_recording_options(parser)
    try:
        given, unknown = parser.parse_known_args(shlex.split(text))
    except (argparse.ArgumentError, ValueError) as error:
        raise ValueError(f"{OPTIONS}={text!r}: {error}") from None
    if unknown:
        raise ValueError(f"{OPTIONS}={text!r}: unknown option {unknown[0]}")
    return given


def add_recording_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    add = parser.add_argument
    add(
        "--values",
        default="off",
        metavar="LEVEL",
        help="what of the values: off, hash (before and after each launch), stats, save (keep the tensors)",
    )
    add(
        "--ops",
        default="graph",
        metavar="WHICH",
        help="graph: compiled code and Triton; all: eager operators too",
    )
    add(
        "--kernel",
        action="append",
        default=[],
        metavar="GLOB",
        help="only kernels with such a name; repeatable",
    )
    add(
        "--kind",
        action="append",
        default=[],
        metavar="KIND",
        help="only triton, cpp, extern, op or gcu; repeatable",
    )
    add(
        "--verify",
        default="",
        metavar="HOW",
        help="reread: hash every argument, every time; poison: find outputs never written",
    )
    add("--steps", type=step_range, metavar="3:5", help="only these steps; 3:5 is 3 and 4")
    add("--time", action="store_true", help="measure how long each call ran")
    add("--stop-at", type=int, metavar="CALL", help="end the program once this call is over")
    add(
        "--max-tensors",
        type=byte_count,
        default=2_000_000_000,
        metavar="SIZE",
        help="room for saved tensors, such as 2GB (the default); then the oldest are dropped",
    )
    add("--stages", action="store_true", help="what the compiler did: see kernelscope stages")
    add("--fresh", action="store_true", help="with --stages: compile also what a cache has")
    add(
        "--replay",
        type=int,
        action="append",
        default=[],
        metavar="CALL",
        help="launch this call again and again, and see whether it leaves the same; repeatable",
    )
    add(
        "--save-call", type=int, metavar="CALL", help="with --values save: keep the tensors of this call only"
    )
    add("--workers", action="store_true", help="record the workers of a DataLoader too")
    add("--keep-last", type=int, default=0, metavar="N", help="keep only the last N steps on disk")
    add_value_options(parser)


def add_value_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """What to print, save and watch of the values inside compiled code."""
    add = parser.add_argument
    add("--print", dest="print_values", action="store_true", help="print the arguments of each launch")
    add("--print-names", action="store_true", help="print each kernel's name before its launch, for crashes")
    add(
        "--save",
        dest="save_values",
        action="store_true",
        help="save the arguments of each launch as .pt files",
    )
    add("--save-to", default="", metavar="DIR", help="… to this new folder; default RUN/values")
    add(
        "--values-of",
        action="append",
        default=[],
        metavar="GLOB",
        help="print, save and watch only kernels with such a name; a list a,b, or repeated",
    )
    add(
        "--stop-on",
        action="append",
        default=[],
        metavar="WHAT",
        help="end the program at the first launch that leaves nan, inf, max>1e4, …; repeatable",
    )
    add(
        "--exact",
        action="store_true",
        help="with --stop-on: on a GPU, wait for each launch, and end right after it with its inputs saved",
    )


def take_over_printer(given: argparse.Namespace) -> None:
    """What torch's variables for its own printer ask for counts as asked for here."""
    level, kernels = printer_from_environment()
    given.save_values |= level == "1"
    given.print_values |= level == "2"
    given.print_names |= level == "3"
    if given.save_values or given.save_to or given.print_values or given.print_names:
        given.values_of = [*given.values_of, *(name for name in kernels if name not in given.values_of)]


def value_settings_of(given: argparse.Namespace) -> ValueSettings:
    from .values.conditions import parse_watch
    from .values.kernel_filter import globs_of

    for watch in given.stop_on:
        parse_watch(watch)
    return ValueSettings(
        prints=given.print_values,
        names=given.print_names,
        saves=given.save_values or (bool(given.save_to) and not given.stop_on),
        kernels=globs_of(given.values_of),
        folder=given.save_to,
        watches=tuple(given.stop_on),
        exact=given.exact or given.values != "off",
    )


def config_of(given: argparse.Namespace) -> Config:
    needs_statistics = given.print_values or given.stop_on
    return Config(
        values="stats" if needs_statistics and given.values in ("off", "hash") else given.values,
        ops=given.ops,
        kernel=tuple(given.kernel),
        kind=tuple(given.kind),
        verify=given.verify,
        strict=strict_from_environment(),
        steps=given.steps,
        time=given.time,
        stop_at=given.stop_at,
        max_tensors=given.max_tensors,
        replay=tuple(given.replay),
        save_call=given.save_call,
        keep_last=given.keep_last,
        stages=given.stages,
        fresh=given.fresh,
    )


def step_range(text: str) -> tuple[int, int]:
    """ "3:5" is steps 3 and 4; "3" is step 3."""
    first, colon, end = text.partition(":")
    try:
        return int(first), int(end) if colon else int(first) + 1
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no range of steps; write 3:5 or 3") from None


def byte_count(text: str) -> int:
    """ "2GB", "500MB", "1.5 GiB" or a plain number."""
    found = re.fullmatch(r"\s*([\d.]+)\s*([KMGT]?)(i?)B?\s*", text, re.IGNORECASE)
    try:
        assert found is not None
        power = " KMGT".index(found[2].upper() or " ")
        return int(float(found[1]) * (1024 if found[3] else 1000) ** power)
    except (AssertionError, ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r:.40} is no size; write 500MB or 2GB") from None
