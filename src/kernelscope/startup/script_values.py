"""Printing and saving values of an unchanged program: `kernelscope run`, or torch's own variables."""

from __future__ import annotations

import argparse
import atexit
import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kernelscope.compiler_control.stock_printer import StockPrinter
from kernelscope.config import Config, ValueSettings, strict_from_environment
from kernelscope.errors import EndedOnPurpose, RunError
from kernelscope.options import parse_options, take_over_printer, value_settings_of
from kernelscope.probes.patching import MovedTarget
from kernelscope.recording import Recording
from kernelscope.values.hits import Hit
from kernelscope.values.inductor_levels import level_of
from kernelscope.values.kernel_filter import globs_of
from kernelscope.values.session import ValueSession, has_gpu, settings_of_level

STOPPED = 3  # exit status of a program that a watch has ended


class StopOnHit(SystemExit, EndedOnPurpose):
    """Ends the program where a watched condition first held; to other code a plain exit."""


def session_for_script(recording: Recording, settings: ValueSettings, run: Path | None) -> ValueSession:
    """Settings of the command line; what the program sets in torch's config is taken over as well."""
    if settings.saves and not settings.folder and run is not None:
        settings = replace(settings, folder=str(run / "values"))
    elif settings.folder and run is not None and run.suffix != ".kscope":  # one of several processes
        settings = replace(settings, folder=str(Path(settings.folder) / run.name))
    if not has_gpu():
        settings = replace(settings, exact=True)  # nothing waits, and inputs can be saved
    session = ValueSession(recording, settings, on_hit=_stop, saves_hits=False)
    printer = StockPrinter(SetInCode(session, settings, run))
    try:
        printer.install()
    except MovedTarget as error:
        if recording.config.strict:
            raise
        print(f"kernelscope: cannot take over torch's own value printer: {error}", file=sys.stderr)
    session.at_close.append(printer.remove)
    return session


def start_by_environment() -> None:
    """`import kernelscope` under plain Python, with torch's variable for its printer set."""
    try:
        given = parse_options("")
        take_over_printer(given)
        _start(given)
    except (RunError, ValueError, MovedTarget) as error:
        print(f"kernelscope: cannot print or save values: {error}", file=sys.stderr)


def _start(given: argparse.Namespace) -> None:
    settings = value_settings_of(given)
    config = Config(values="stats" if settings.prints else "off", strict=strict_from_environment())
    recording = Recording(config, keeps_calls=False)  # the run is not read, and the program may be long
    session = session_for_script(recording, settings, None)
    try:
        recording.open()
    except BaseException:
        session.let_go()
        raise
    atexit.register(_close, recording, session, os.getpid())


def _close(recording: Recording, session: ValueSession, pid: int) -> None:
    if os.getpid() == pid:
        settle(session)
        session.close()
        recording.close()


def settle(session: ValueSession) -> None:
    """At the end of the program: what a watch finds now is only reported."""
    with suppress(StopOnHit):
        session.settle()


def tell_unmet(session: ValueSession, ops: str) -> None:
    """A watch that ended nothing says so: what it did not look at may be where the value is."""
    if session.conditions and not session.hits:
        more = "" if ops == "all" else "; eager operators were not watched: add --ops all"
        conditions = ", ".join(session.conditions)
        print(f"kernelscope: no watched call met --stop-on {conditions}{more}", file=sys.stderr)


class SetInCode:
    """What the program sets torch's own printer to; off means the settings from outside."""

    def __init__(self, session: ValueSession, outside: ValueSettings, run: Path | None) -> None:
        self._session = session
        self._outside = outside
        self._folder = str(run / "values") if run is not None else ""
        self._level = "0"
        self._globs: tuple[str, ...] = ()

    def __call__(self, level: str, kernels: str) -> None:
        """Without a level, it is the kernels that are set."""
        said = "torch._inductor.config.aot_inductor.debug_intermediate_value_printer"
        globs = globs_of(kernels)
        if level:
            self._level = level_of(level, said)
        else:
            self._globs = globs
        wanted = self._globs or self._outside.kernels or globs
        if self._level == "0":
            settings = replace(self._outside, kernels=wanted if self._globs else self._outside.kernels)
        else:
            settings = settings_of_level(self._level, wanted, self._folder)
        self._session.turn_to(settings)


def _stop(hit: Hit) -> None:
    print(f"kernelscope: {hit}\nkernelscope: stopping the program (--stop-on)", file=sys.stderr)
    sys.stderr.flush()
    raise StopOnHit(STOPPED)
