"""Puts printing, saving and watching into a recording."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import torch

from kernelscope.config import Config, ValueSettings, strict_from_environment
from kernelscope.errors import RunError
from kernelscope.events import Finding
from kernelscope.fingerprint.fingerprinter import Fingerprinter
from kernelscope.model.run import Run
from kernelscope.private_files import make_folder
from kernelscope.probes.bus import BUS
from kernelscope.probes.cpp_wrappers.listening import PRINTED
from kernelscope.probes.cuda_graphs.tree_graphs import LaunchByLaunch
from kernelscope.recording import Recording
from kernelscope.recording.sinks import DiskSink
from kernelscope.store import folder

from .async_watch import AsyncWatch, bits_of, can_watch_async
from .conditions import parse_watch
from .files import FileSaver, ValueFiles
from .hits import Hit, as_finding, enter_debugger, stop_in_python
from .host_watch import HostWatch
from .inductor_levels import IntermediateValueDebuggingLevel, level_of
from .kernel_filter import KernelFilter, globs_of
from .printing import NamePrinter, Printer
from .tensor_text import MOST_SHOWN
from .watching import Predicate, Watcher

HOME = "kscope-values"  # where values are saved by default
_ACTIONS = ("stop", "note", "pdb")
_REPLAYED = (
    "launches replayed from a CUDA graph that the program captured itself are not printed, saved or watched: "
    "no Python runs between them"
)
LATE = "watch-late"  # of a finding: the program went on for a while
_UNSEEN = ("unseen-graph", "values-in-cuda-graph", "recorder-error")  # findings of what was not looked at


class ValueSession:
    """The observers of one recording, and what is reported when it is over."""

    def __init__(
        self,
        recording: Recording,
        settings: ValueSettings,
        *,
        on_hit: Callable[[Hit], None] = stop_in_python,
        predicate: Predicate | None = None,
        most_shown: int = MOST_SHOWN,
        stream: TextIO | None = None,
        saves_hits: bool = True,
    ) -> None:
        self._recording = recording
        self._most_shown = most_shown
        self._stream = stream
        self._on_hit = on_hit
        self._shows: list[NamePrinter | Printer | FileSaver] = []
        self._watcher: Watcher | None = None
        self._late: AsyncWatch | None = None
        self.wanted = KernelFilter(settings.kernels)
        self._filters = {settings.kernels: self.wanted}  # each that was in force, to report what it missed
        self.files: ValueFiles | None = None
        self.conditions = settings.watches
        self.hits: list[Hit] = []
        self.at_close: list[Callable[[], None]] = []
        self._runs_graphs = False
        watches = [parse_watch(text) for text in settings.watches]
        can_wait = not settings.exact and predicate is None and not (saves_hits and settings.folder)
        if watches and can_wait and not settings.prints and can_watch_async(watches):
            recording.take_values_with(None)
            self._late = recording.late = AsyncWatch(watches, self.wanted, self._hit, recording.sink.index_of)
        elif watches or predicate is not None:
            _take_statistics(recording)
            self._open_files(settings.folder)
            self._watcher = Watcher(
                watches,
                predicate=predicate,
                wanted=self.wanted,
                files=self.files,
                run=recording.sink if isinstance(recording.sink, DiskSink) else None,
                on_hit=self._hit,
            )
            plain = predicate is None and watches and not settings.prints
            if plain and can_watch_async(watches) and not has_gpu():
                recording.late = HostWatch(
                    self._watcher,
                    bits_of(watches),
                    recording.sink,
                    lambda: None if recording.keeps_values else recording.fingerprinter,
                )
            else:
                recording.observers.append(self._watcher)
        self._show(settings)

    def turn_to(self, settings: ValueSettings) -> None:
        """Print and save this from now on."""
        recording = self._recording
        for each in self._shows:
            recording.observers.remove(each)
            if not isinstance(each, NamePrinter):
                recording.input_observers.remove(each)
        self._shows.clear()
        self._show(settings)
        BUS.refresh()

    def _show(self, settings: ValueSettings) -> None:
        recording = self._recording
        if settings.kernels not in self._filters:
            self._filters[settings.kernels] = KernelFilter(settings.kernels)
        self.wanted = self._filters[settings.kernels]
        PRINTED.want(self, self.wanted.globs if settings.names and self._stream is None else None)
        if settings.names:
            self._shows.append(NamePrinter(self.wanted, stream=self._stream))
        if settings.prints:
            _take_statistics(recording)
            printer = Printer(self.wanted, most_shown=self._most_shown, stream=self._stream)
            self._shows.append(printer)
        if settings.saves:
            self._open_files(settings.folder or str(folder_for_values()))
            assert self.files is not None
            self._shows.append(FileSaver(self.files, self.wanted))
        looks = bool(self._shows) or self._watcher is not None
        recording.misses_replays = _REPLAYED if looks else ""
        if looks and not self._runs_graphs:
            self._runs_graphs = True  # those of torch.compile, so that Python runs between the launches
            graphs = LaunchByLaunch()
            graphs.install()
            self.at_close.append(graphs.remove)
        for each in self._shows:
            recording.observers.append(each)
            if not isinstance(each, NamePrinter):
                recording.input_observers.append(each)

    def _open_files(self, folder: str) -> None:
        if self.files is None and folder:
            budget = self._recording.config.max_tensors
            self.files = ValueFiles(Path(folder), budget, self._recording.finding)

    def _hit(self, hit: Hit) -> None:
        self.hits.append(hit)
        self._recording.finding(as_finding(hit, "watch" if self._late is None else LATE))
        self._on_hit(hit)

    def settle(self) -> None:
        """Wait for the scans that are still running, and report their hits."""
        if self._late is not None:
            self._late.settle()
        failure = self._watcher.failure if self._watcher is not None else None
        if failure is not None:
            error = f"{type(failure).__name__}: {failure}"
            message = f"watch(): your predicate raised an exception and was disabled: {error}"
            raise RuntimeError(message) from failure

    def close(self) -> None:
        """Report which filters matched nothing, and what was not seen; before the recording closes."""
        if self._shows or self._watcher is not None:
            for finding in self._recording.noted:
                if finding.kind in _UNSEEN:
                    print(f"kernelscope: {finding}", file=sys.stderr)
        first, *later = self._filters.values()
        watch = self._late or self._watcher
        complaints = watch.watches.complaints() if watch is not None else first.complaints()
        complaints += [line for each in later if each.has_seen for line in each.complaints()]
        for message in complaints:
            print(f"kernelscope: {message}", file=sys.stderr)
            self._recording.finding(Finding("nothing-matched", message))
        self.let_go()

    def let_go(self) -> None:
        PRINTED.want(self, None)
        while self.at_close:
            self.at_close.pop()()


@contextmanager
def observe(
    level: IntermediateValueDebuggingLevel | str | int = IntermediateValueDebuggingLevel.PRINT_ONLY,
    *,
    kernels: str | Sequence[str] = (),
    folder: str | Path | None = None,
    ops: str = "graph",
    most_shown: int = MOST_SHOWN,
    stream: TextIO | None = None,
    path: str | Path | None = None,
) -> Iterator[Run]:
    """Print or save the arguments of every kernel launched inside the block, before and after its launch.

    level   0 nothing, 1 save, 2 print, 3 print only the kernels' names, flushed before the launch
    kernels only these: globs, ignoring case, of kernelscope's or AOTInductor's names; a list or "a,b"
    folder  where files go, as FOLDER/CALL/before_launch_KERNEL_ARGUMENT_DEVICE.pt; default kscope-values/N
    ops     "all" for eager operators too
    most_shown  tensors up to this many elements are printed in full
    stream  where to print; default standard output
    path    record to this folder as well

    Example:
        with kernelscope.values.observe("2", kernels="*addmm*"):
            model(x)
    """
    level = level_of(level)
    if folder is not None and level not in ("0", "1"):
        raise ValueError(f"observe({level!r}, folder={str(folder)!r}): only level 1 saves files")
    settings = settings_of_level(level, globs_of(kernels), "" if folder is None else str(folder))
    recording = _recording("stats" if settings.prints else "off", ops, path)
    with _open(recording, lambda: ValueSession(recording, settings, most_shown=most_shown, stream=stream)):
        yield recording.run


@contextmanager
def watch(
    *conditions: str | Predicate,
    kernels: str | Sequence[str] = (),
    on_hit: str = "stop",
    folder: str | Path | None = None,
    exact: bool = False,
    ops: str = "graph",
    path: str | Path | None = None,
) -> Iterator[list[Hit]]:
    """Stop, with `WatchHit`, after the first launch inside the block whose outputs meet a condition.

    conditions  "nan", "inf", "-inf", "changed", "max>1e4", optionally followed by @KERNEL or
            @KERNEL@ARGUMENT; or a function of a tensor
    on_hit  "stop" raises WatchHit, "pdb" enters the debugger, "note" goes on and records a finding
    folder  save there what the launch found and what it left
    path    record to this folder as well, with the tensors of each hit
    exact   on a GPU, wait for each launch and check its inputs too. Without it nothing waits: `nan`, `inf`
            and `-inf` are found on the GPU itself and reported at the next graph. A folder, "pdb", a function
            and the other conditions imply it

    Example:
        with kernelscope.values.watch("nan", folder="nan-inputs"):
            model(x).sum().backward()
    """
    if on_hit not in _ACTIONS:
        raise ValueError(f"watch(on_hit={on_hit!r}): use one of {', '.join(map(repr, _ACTIONS))}")
    if not conditions:
        raise ValueError("watch() needs a condition, such as 'nan' or 'max>1e4'")
    texts = [each for each in conditions if isinstance(each, str)]
    predicates = [each for each in conditions if not isinstance(each, str)]
    if len(predicates) > 1 or not all(map(callable, predicates)):
        raise ValueError("watch() takes conditions in words and at most one function of a tensor")
    for text in texts:
        parse_watch(text)
    settings = ValueSettings(
        kernels=globs_of(kernels),
        folder="" if folder is None else str(folder),
        watches=tuple(texts),
        exact=exact or on_hit == "pdb" or not has_gpu(),
    )
    recording = _recording("stats", ops, path, keeps_calls=False)
    act = {"stop": stop_in_python, "pdb": enter_debugger, "note": lambda hit: None}[on_hit]
    predicate = predicates[0] if predicates else None
    with _open(
        recording, lambda: ValueSession(recording, settings, on_hit=act, predicate=predicate)
    ) as session:
        yield session.hits


def has_gpu() -> bool:
    """Not is_available(), which would make it impossible to fork."""
    return torch.cuda.device_count() > 0


def settings_of_level(level: str, kernels: tuple[str, ...] = (), folder: str = "") -> ValueSettings:
    if level == "0":
        return ValueSettings()
    return ValueSettings(
        prints=level == "2",
        names=level == "3",
        saves=level == "1",
        kernels=kernels,
        folder=folder if level == "1" else "",
    )


def folder_for_values() -> Path:
    """A new folder for saved values; made at once, because other processes look for one too."""
    for number in itertools.count(1):
        folder = Path(HOME) / str(number)
        try:
            make_folder(folder)
        except FileExistsError:
            continue
        except OSError as error:
            raise RunError(f"values cannot be saved to {folder}: {error.strerror}") from None
        return folder
    raise AssertionError


@contextmanager
def _open(recording: Recording, make: Callable[[], ValueSession]) -> Iterator[ValueSession]:
    try:
        session = make()
    except BaseException:
        recording.sink.close()
        raise
    recording.open()
    try:
        yield session
        session.settle()
    finally:
        session.close()
        recording.close()


def _recording(values: str, ops: str, path: str | Path | None, *, keeps_calls: bool = True) -> Recording:
    config = Config(
        values=values,  # type: ignore[arg-type]  # checked by Config
        ops=ops,  # type: ignore[arg-type]
        strict=strict_from_environment(),
    )
    place = None if path is None else folder.create(folder.named(path))
    return Recording(config, place, keeps_calls=keeps_calls)


def _take_statistics(recording: Recording) -> None:
    if recording.fingerprinter is None or not recording.fingerprinter.has_stats:
        recording.take_values_with(Fingerprinter(level="stats"))
