"""How a process that is going to compile starts and ends quickly. Needs no torch.

Importing the compiler makes objects by the hundred thousand, all of which stay. A garbage collector that
looks through them while they are made, in each compilation and again when the process ends takes as long as
several trials.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn


@contextmanager
def importing() -> Iterator[None]:
    """What is imported inside is never looked at as garbage, neither now nor later."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def leave(status: int) -> NoReturn:
    """Do what was registered for the end, and end; memory is not tidied up, threads are not waited for."""
    try:
        finish()
    finally:
        os._exit(status)


def finish() -> None:
    """What the end of a process does that others can see."""
    atexit._run_exitfuncs()
    flush_files()


def flush_files() -> None:
    """What a program has written is on disk, also where it has closed nothing: tidying up would do that."""
    kinds = io.TextIOWrapper | io.BufferedWriter | io.BufferedRandom
    files: list[Any] = [each for each in gc.get_objects() if issubclass(type(each), kinds)]
    for file in [sys.stdout, sys.stderr, *files]:
        with suppress(OSError, ValueError, AttributeError):  # closed, a broken pipe, or none
            file.flush()


def torch_is_for_gpus() -> bool:
    """Whether it may use a device that a forked process could not use.

    Without importing torch, which takes seconds.
    """
    torch = importlib.util.find_spec("torch")
    for folder in torch.submodule_search_locations or () if torch else ():
        spec = importlib.util.spec_from_file_location("kernelscope_version_of_torch", f"{folder}/version.py")
        assert spec is not None
        assert spec.loader is not None
        about = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(about)
        return any(getattr(about, name, None) is not None for name in ("cuda", "hip", "xpu"))
    return False


@contextmanager
def only_this_process() -> Iterator[None]:
    """A process that the program inside forks ends where the program does, and never leaves this block."""
    me = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() == me:
            raise
        leave(_status_of(error))
    if os.getpid() != me:
        leave(0)


def _status_of(error: BaseException) -> int:
    """Print what Python prints for this error; the exit status."""
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
        return 1
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1
