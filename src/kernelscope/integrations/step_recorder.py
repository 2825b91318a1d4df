"""Records chosen steps of a training loop: what the callbacks of all trainers share.

Between two ranges of steps no recording is open, so a step outside of them costs one comparison.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from kernelscope.config import (
    Config,
    launch_from_environment,
    rank_from_environment,
    strict_from_environment,
    strings,
)
from kernelscope.errors import reason
from kernelscope.private_files import make_folder, write_text
from kernelscope.store import folder
from kernelscope.values.conditions import parse_watch

if TYPE_CHECKING:
    from kernelscope.recording import Recording

_LAUNCH = "launch.txt"  # in a run that ranks share: which launch they belong to
Steps = tuple[int, int] | Iterable[int]


class StepRecorder:
    """Opens a recording at the first of some steps that follow each other, and closes it after the last.

    steps   (3, 6) records steps 3, 4 and 5, as in `record()`; a range, list or set names each step
    path    runs are PATH-1, PATH-2, …: one for each range of steps, with a part for each rank
    stop_on conditions as for `values.watch`, such as "nan": the step raises `WatchHit` at the kernel
    """

    def __init__(
        self,
        steps: Steps,
        *,
        values: str = "hash",
        path: str | os.PathLike[str] = "kscope-runs/training",
        stop_on: str | Sequence[str] = (),
        stages: bool = True,
        time: bool = False,
    ) -> None:
        self.steps = step_numbers(steps)
        self.config = Config(
            values=values,  # type: ignore[arg-type]  # checked by Config
            strict=strict_from_environment(),
            stages=stages,
            time=time,
        )
        self.stop_on = strings(stop_on)
        for condition in self.stop_on:
            parse_watch(condition)
        self.stem = Path(path)
        self.paths: list[Path] = []  # of the runs that were made, in this process
        self._open: Recording | None = None
        self._around: ExitStack | None = None
        self._step = -1  # that is being recorded

    @property
    def is_recording(self) -> bool:
        return self._open is not None

    def begin(self, step: int) -> None:
        """A step begins. What fails here is reported, and the program goes on unrecorded."""
        if step == self._step:  # the next part of a step with gradient accumulation
            return
        if step not in self.steps:
            self.close()
            return
        try:
            if self._open is None or step != self._step + 1:
                self.close()
                self._start()
        except Exception as error:
            self._give_up(error)
            return
        self._step = step
        assert self._open is not None
        self._open.begin_step(step)

    def end(self, step: int) -> None:
        """A step has ended, with the update of the parameters."""
        if self._open is None or step != self._step:
            return
        if step + 1 in self.steps:
            self._open.end_step()
        else:
            self.close()

    def close(self) -> None:
        """End the recording that is open, if any."""
        around, self._open, self._around, self._step = self._around, None, None, -1
        if around is not None:
            atexit.unregister(self.close)
            try:
                around.close()
            except Exception as error:
                self._give_up(error)

    def _start(self) -> None:
        from kernelscope.probes.probe_list import check_gil
        from kernelscope.recording import Recording

        check_gil()
        part = self._folder()
        recording = Recording(self.config, part, says_why_empty=True)
        with ExitStack() as stack:
            stack.callback(recording.close)
            recording.open()
            if self.stop_on:
                from kernelscope.values import watch

                stack.enter_context(watch(*self.stop_on))
            self._around = stack.pop_all()
        self._open = recording
        self.paths.append(part)
        atexit.register(self.close)

    def _folder(self) -> Path:
        """A new run; ranks share one, and each has its part in it."""
        home, stem = self.stem.parent, self.stem.name.removesuffix(folder.SUFFIX)
        rank, world_size = _place()
        if world_size == 1:
            return folder.create_numbered(home, stem, folder.SUFFIX)
        return _part_of_rank(home, stem, rank)

    def _give_up(self, error: Exception) -> None:
        print(f"kernelscope: not recording: {reason(error)}", file=sys.stderr)
        self.steps = frozenset()
        self.close()


def step_numbers(steps: Steps) -> frozenset[int]:
    """A pair is the first step and the one after the last; anything else names each step."""
    if isinstance(steps, tuple) and len(steps) == 2:
        steps = range(*steps)
    found = frozenset(steps)
    if not found or not all(isinstance(step, int) and step >= 0 for step in found):
        raise ValueError(
            f"steps={steps!r}: give the first step and the one after the last, (3, 6), or a list of steps"
        )
    return found


def _place() -> tuple[int, int]:
    """Rank and number of ranks, as the process group has them, or else the launcher."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    world = rank_from_environment()
    return world.rank, world.world_size


def _part_of_rank(home: Path, stem: str, rank: int) -> Path:
    """The part of this rank in the first run of this launch that has none yet.

    Ranks do not talk to each other for that: some may have no recorder, and would be waited for in vain.
    """
    launch = launch_from_environment()
    for number in count(1):
        path = home / f"{stem}-{number}{folder.SUFFIX}"
        if not path.exists():
            _make_shared(path, launch)
        if not (path / f"rank-{rank}").exists() and _launch_of(path) == launch:
            return folder.claim_part(path, rank, os.getpid())
    raise AssertionError  # it counts for ever


def _make_shared(path: Path, launch: str) -> None:
    """Appears with its content at once; if another rank was faster, its folder stays."""
    with TemporaryDirectory(prefix=".kernelscope-", dir=make_folder(path.parent, exist_ok=True)) as made:
        own = Path(made) / path.name
        make_folder(own)
        write_text(own / _LAUNCH, launch)
        try:
            own.rename(path)
        except OSError:
            if not path.exists():
                raise


def _launch_of(path: Path) -> str:
    try:
        return (path / _LAUNCH).read_text(encoding="utf-8")
    except OSError:
        return ""
