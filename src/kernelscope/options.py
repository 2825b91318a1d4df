"""What to record: options that are the same on the command line and in KERNELSCOPE_OPTIONS."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from .config import (
    OPTIONS,
    Config,
    Ops,
    Values,
    ValueSettings,
    Verify,
    printer_from_environment,
    strict_from_environment,
)


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
    add("--values", type=one_of(get_args(Values)), default="off", metavar="LEVEL",
        help="what to record about tensor values: off, hash (before and after each launch), stats, or save "
        "(keep the tensors)")  # fmt: skip
    add("--ops", type=one_of(get_args(Ops)), default="graph", metavar="WHICH",
        help="graph: compiled code and Triton kernels; all: eager operators too")  # fmt: skip
    add("--kernel", action="append", default=[], metavar="GLOB",
        help="only kernels whose name matches GLOB; repeatable")  # fmt: skip
    add("--kind", action="append", default=[], metavar="KIND",
        help="only triton, cpp, extern, op or gcu; repeatable")  # fmt: skip
    add("--verify", type=one_of(get_args(Verify)), default="", metavar="HOW",
        help="reread: hash every argument at every launch; poison: find unwritten outputs")  # fmt: skip
    add("--steps", type=step_range, metavar="3:5", help="record only these steps; 3:5 means 3 and 4")
    add("--time", action="store_true", help="measure how long each call takes")
    add("--audit", action="store_true", help="check with a profiler which launches are inside recorded calls")
    add("--stop-at", type=count, metavar="CALL", help="end the program after this call")
    add("--max-tensors", type=byte_count, default=2_000_000_000, metavar="SIZE",
        help="most bytes of saved tensors, e.g. 2GB (default); beyond it the oldest are deleted")  # fmt: skip
    add("--stages", action=argparse.BooleanOptionalAction, default=False,
        help="record what the compiler does (on in `kernelscope run`); see kernelscope stages")  # fmt: skip
    add("--fresh", action="store_true", help="with --stages: ignore compile caches")
    add("--replay", type=count, action="append", default=[], metavar="CALL",
        help="re-run this call many times and check that its output is identical; repeatable")  # fmt: skip
    add("--recheck", type=share, default=0.0, metavar="SHARE",
        help="run this share of the calls (0.01; 1: all) again on the spot and compare results")  # fmt: skip
    add("--save-call", type=count, metavar="CALL",
        help="with --values save: keep the tensors of this call only")  # fmt: skip
    add("--workers", action="store_true", help="record the workers of a DataLoader too")
    add("--mark-graphs", action="store_true",
        help="in CUDA graphs, note the end of each launch (3 µs each), to name one that faults")  # fmt: skip
    add("--keep-last", type=count, default=0, metavar="N", help="keep only the last N steps on disk")
    add_value_options(parser)


def add_value_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Which values inside compiled code to print, save and watch."""
    add = parser.add_argument
    add("--print", dest="print_values", action="store_true", help="print the arguments of each launch")
    add("--print-names", action="store_true", help="print each kernel's name before its launch, for crashes")
    add("--save", dest="save_values", action="store_true",
        help="save the arguments of each launch as .pt files")  # fmt: skip
    add("--save-to", default="", metavar="DIR", help="save them to this new folder; default RUN/values")
    add("--values-of", action="append", default=[], metavar="GLOB",
        help="print, save and watch only kernels whose name matches GLOB; a,b or repeatable")  # fmt: skip
    add("--stop-on", action="append", default=[], metavar="CONDITION",
        help="end the program at the first launch whose output has nan, inf, max>1e4 …")  # fmt: skip
    add("--exact", action="store_true",
        help="with --stop-on on a GPU: wait for each launch, so that the inputs can be saved")  # fmt: skip


def options_text(given: argparse.Namespace) -> str:
    """The recording options as text again, for KERNELSCOPE_OPTIONS of a child."""
    parser = argparse.ArgumentParser(add_help=False)
    add_recording_options(parser)
    words: list[str] = []
    for action in parser._actions:
        value = getattr(given, action.dest)
        if value == action.default:
            continue
        if action.dest == "steps":
            value = f"{value[0]}:{value[1]}"
        for each in value if isinstance(value, list) else [value]:
            words += [action.option_strings[0]] if each is True else [f"{action.option_strings[0]}={each}"]
    return shlex.join(words)


def check_options(given: argparse.Namespace) -> None:
    """Raise for a wrong setting before anything is started."""
    if given.kind == ["op"] and given.ops != "all":
        raise ValueError("--kind op: eager operators are recorded with --ops all only; add it")
    if given.fresh and not given.stages:
        raise ValueError("--fresh compiles again to record what the compiler does; it needs --stages")
    take_over_printer(given)
    config_of(given)
    settings = value_settings_of(given)
    if settings.folder:
        _check_new_folder(Path(settings.folder))


def _check_new_folder(path: Path) -> None:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"--save-to {path}: it already exists and is not overwritten; name a new folder")
    above = next(each for each in path.absolute().parents if each.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise ValueError(f"--save-to {path}: {above} is not a writable directory")


def take_over_printer(given: argparse.Namespace) -> None:
    """Settings of torch's own printer, from its environment variables, count as options."""
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
        recheck=given.recheck,
        save_call=given.save_call,
        keep_last=given.keep_last,
        mark_graphs=given.mark_graphs,
        stages=given.stages,
        fresh=given.fresh,
        audit=given.audit,
    )


def count(text: str) -> int:
    """A number of calls, rows or steps."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not an integer") from None
    if not 0 <= number < 1 << 62:
        raise argparse.ArgumentTypeError(f"{text:.40} is out of range: it must be at least 0")
    return number


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a number") from None


def one_of(words: tuple[str, ...]) -> Callable[[str], str]:
    def known(text: str) -> str:
        if text not in words:
            choice = ", ".join(word for word in words if word)
            raise argparse.ArgumentTypeError(f"{text!r:.40} is unknown; use one of {choice}")
        return text

    return known


def step_range(text: str) -> tuple[int, int]:
    """ "3:5" is steps 3 and 4; "3" is step 3."""
    first, colon, end = text.partition(":")
    try:
        found = int(first), int(end) if colon else int(first) + 1
    except ValueError:
        found = (0, 0)
    if not 0 <= found[0] < found[1]:
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of steps; write 3:5 or 3")
    return found


def share(text: str) -> float:
    """ "0.01" is one in a hundred, "1" is all."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a share; write a number from 0 to 1")
    return found


def byte_count(text: str) -> int:
    """ "2GB", "500MB", "1.5 GiB" or a plain number."""
    found = re.fullmatch(r"\s*([\d.]+)\s*([KMGT]?)(i?)B?\s*", text, re.IGNORECASE)
    try:
        assert found is not None
        power = " KMGT".index(found[2].upper() or " ")
        return int(float(found[1]) * (1024 if found[3] else 1000) ** power)
    except (AssertionError, ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a size; write 500MB or 2GB") from None
