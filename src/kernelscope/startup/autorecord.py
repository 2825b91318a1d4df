"""Records an unchanged program: begins when torch is imported, ends with the process.

Started by `on_path/sitecustomize.py`, or by the .pth file of an installed kernelscope, if KERNELSCOPE_RUN
is set. Loads nothing of torch itself.
"""

from __future__ import annotations

import argparse
import atexit
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kernelscope.after_import import after_import
from kernelscope.config import AutoRecord, autorecord_from_environment, settle_run
from kernelscope.options import config_of, parse_options, take_over_printer, value_settings_of
from kernelscope.own_warnings import printed_at_most
from kernelscope.text.exceptions import noted

if TYPE_CHECKING:
    from kernelscope.recording import Recording
    from kernelscope.store.writer_thread import Writer
    from kernelscope.values.session import ValueSession

# What torch and Python start for themselves, and torchrun, whose own process runs nothing of the user's.
_COMPILE_WORKER = os.path.join("torch", "_inductor", "compile_worker", "__main__.py")
_HELPER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "torch._inductor.compile_worker")
_FORKSERVER_CODE = "from multiprocessing.forkserver import"
_HELPER_CODE = ("from multiprocessing.resource_tracker import", _FORKSERVER_CODE)

_started = False
_interrupted: set[int] = set()  # processes that Ctrl-C ends


def start() -> None:
    """Record this process from the import of torch on, if the environment says so."""
    wanted = autorecord_from_environment()
    if _started or wanted is None:
        return
    if _FORKSERVER_CODE in " ".join(sys.orig_argv[-1:]):  # what it forks is the program's own
        os.register_at_fork(after_in_child=lambda: _start(wanted))
    elif not is_helper(sys.orig_argv):
        _start(wanted)


def _start(wanted: AutoRecord) -> None:
    global _started
    if _started:  # a process that this one has forked
        return
    _started = True
    settle_run(wanted.path)
    atexit.register(_end_as_interrupted)  # the first to be registered is the last to be called
    after_import("torch", lambda: open_recording(wanted))


def start_printer() -> None:
    """Print or save values in this process, because torch's own variable is set."""

    def start() -> None:
        from .script_values import start_by_environment

        start_by_environment()

    if not is_helper(sys.orig_argv):
        after_import("torch", start)


def is_helper(argv: list[str]) -> bool:
    """Whether these words start a helper process of torch or Python."""
    words = iter(argv[1:])
    for word in words:
        if word.startswith("-m"):
            return (word[2:] or next(words, "")) in _HELPER_MODULES
        if word == "-c":
            return next(words, "").startswith(_HELPER_CODE)
        if word in ("-W", "-X"):
            next(words, None)
        elif not word.startswith("-"):
            return word.endswith(_COMPILE_WORKER) or os.path.basename(word) == "torchrun"
    return False


@printed_at_most()
def open_recording(wanted: AutoRecord) -> None:
    from kernelscope.errors import NoGil, RunError
    from kernelscope.probes.eager.loader_workers import LoaderWorkers
    from kernelscope.probes.probe_list import check_gil

    from .debug_server import add_page_when_used

    try:
        check_gil()
        given = parse_options(wanted.options)
        take_over_printer(given)
        recording = _recording(wanted, given)
        session = _session(recording, given)
        recording.open()
    except Exception as error:
        if isinstance(error, RunError) and not isinstance(error, NoGil):
            # A full or read-only disk must not stop the program.
            print(f"kernelscope: not recording: {error}", file=sys.stderr)
            return
        # A wrong option, a torch that the probes do not fit, or a Python that cannot be recorded.
        print(f"kernelscope: cannot record: {error}", file=sys.stderr)
        sys.exit(2)
    if recording.fingerprinter is not None and recording.fingerprinter.slow_because:
        print(f"kernelscope: {recording.fingerprinter.slow_because}", file=sys.stderr)
    if wanted.switch is not None:
        from .pause_switch import follow

        follow(wanted.switch, recording)
    _note_exceptions(recording)
    pid = os.getpid()
    add_page_when_used(recording.finding, lambda: _leave(recording, session, pid))
    if not given.workers:
        LoaderWorkers(lambda: _leave(recording, session, pid)).install()
    _at_the_end(lambda: _close(recording, session, pid))


def _at_the_end(close: Callable[[], None]) -> None:
    """Of the process; one that a server of multiprocessing's has forked does not end as others do."""
    from multiprocessing import util

    atexit.register(close)
    util.register_after_fork(close, lambda close: util.Finalize(None, close, exitpriority=0))


def _session(recording: Recording, given: argparse.Namespace) -> ValueSession:
    """Printing, saving and watching, as the options say, or as the program sets it in torch's config."""
    from .script_values import session_for_script

    try:
        return session_for_script(recording, value_settings_of(given), _writer(recording).folder)
    except BaseException:
        recording.sink.close()
        raise


def _recording(wanted: AutoRecord, given: argparse.Namespace) -> Recording:
    from kernelscope.recording import Recording
    from kernelscope.store import folder

    config = config_of(given)
    part = folder.claim_part(wanted.path, wanted.rank, os.getpid())
    return Recording(config, part, says_why_empty=True)


def _note_exceptions(recording: Recording) -> None:
    """Keep the exception that ends the program; it is still printed as before."""
    before, pid, writer = sys.excepthook, os.getpid(), _writer(recording)

    def excepthook(kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, KeyboardInterrupt):
            _interrupted.add(os.getpid())
        try:
            if os.getpid() == pid:
                for name, text in noted(kind, error, trace).items():
                    writer.set_metadata(name, text)
        except Exception as own:  # such as a __str__ that raises
            print(f"kernelscope: the exception was not recorded: {type(own).__name__}", file=sys.stderr)
        finally:
            before(kind, error, trace)

    sys.excepthook = excepthook


def _leave(recording: Recording, session: ValueSession, pid: int) -> None:
    """The process turns out to be one that is not recorded, such as a worker of a data loader."""
    if os.getpid() == pid and recording.is_open:
        session.close()
        recording.close()
        shutil.rmtree(_writer(recording).folder, ignore_errors=True)


def _close(recording: Recording, session: ValueSession, pid: int) -> None:
    if os.getpid() != pid or not recording.is_open:
        return  # a forked child: the run is its parent's
    from kernelscope.probes.dynamo.nothing_compiled import has_nothing_to_tell

    from .recorded_child import tell_end_of_ranks
    from .script_values import settle, tell_unmet

    writer = _writer(recording)
    settle(session)
    session.close()
    recording.close()
    if writer.calls:  # all are written now
        tell_unmet(session, recording.config.ops)
    # A process beside the main one that launched nothing leaves nothing, unless it says why.
    is_child = writer.folder.name.startswith("child-")
    if is_child and not writer.calls and has_nothing_to_tell(recording.noted):
        shutil.rmtree(writer.folder, ignore_errors=True)
    elif recording.is_first_rank:
        tell_end_of_ranks(writer.folder.parent)


def _end_as_interrupted() -> None:
    """Python ends itself with SIGINT after Ctrl-C, unless text is executed later: a dataclass does that."""
    if os.getpid() in _interrupted:
        with suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")


def _writer(recording: Recording) -> Writer:
    from kernelscope.recording.sinks import DiskSink

    assert isinstance(recording.sink, DiskSink)
    return recording.sink.writer
