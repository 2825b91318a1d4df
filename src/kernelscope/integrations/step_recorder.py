"""Records chosen steps of a training loop: what the callbacks of all trainers share.

Between two ranges of steps no recording is open, so a step outside of them costs one comparison.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from kernelscope.config import Config, ValueSettings, strict_from_environment, strings
from kernelscope.errors import reason
from kernelscope.store import folder
from kernelscope.store.ranks.shared_folder import numbered_part_of_rank
from kernelscope.values.conditions import parse_watch

if TYPE_CHECKING:
    from kernelscope.recording import Recording
    from kernelscope.values.session import ValueSession

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
        self._latest = -1  # that has begun, recorded or not

    @property
    def is_recording(self) -> bool:
        return self._open is not None

    def begin(self, step: int) -> None:
        """A step begins. What fails here is reported, and the program goes on unrecorded."""
        self._latest = step
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

    def finish(self) -> None:
        """The training has ended. If it had none of the chosen steps, that is reported."""
        self.close()
        if self.steps and not self.paths:
            seen = f"the last one was {self._latest}" if self._latest >= 0 else "there was none"
            print(
                f"kernelscope: nothing was recorded: the training had none of the chosen steps, "
                f"of which the first is {min(self.steps)}; {seen}",
                file=sys.stderr,
            )

    def _start(self) -> None:
        from kernelscope.probes.probe_list import check_gil
        from kernelscope.recording import Recording

        check_gil()
        part = self._folder()
        recording = Recording(self.config, part, says_why_empty=True)
        with ExitStack() as stack:
            stack.callback(recording.close)
            session = self._watch(recording) if self.stop_on else None
            recording.open()
            if session is not None:
                stack.callback(session.close)
                stack.callback(session.settle)
            self._around = stack.pop_all()
        self._open = recording
        self.paths.append(part)
        atexit.register(self.close)

    def _watch(self, recording: Recording) -> ValueSession:
        """In the same recording, so that its run has the finding and the tensors of the call."""
        from kernelscope.values.session import ValueSession, has_gpu

        exact = self.config.values != "off" or not has_gpu()
        return ValueSession(recording, ValueSettings(watches=self.stop_on, exact=exact))

    def _folder(self) -> Path:
        """A new run; ranks share one, and each has its part in it."""
        home, stem = self.stem.parent, self.stem.name.removesuffix(folder.SUFFIX)
        from kernelscope.probes.distributed.process_groups import launch, place

        here = place()
        if here.world_size == 1:
            return folder.create_numbered(home, stem, folder.SUFFIX)
        return numbered_part_of_rank(home, stem, here.rank, launch())

    def _give_up(self, error: Exception) -> None:
        print(f"kernelscope: not recording: {reason(error)}", file=sys.stderr)
        self.steps = frozenset()
        self.close()


def step_numbers(steps: Steps) -> frozenset[int]:
    """A pair is the first step and the one after the last; anything else names each step."""
    try:
        named: Iterable[int] = range(*steps) if isinstance(steps, tuple) and len(steps) == 2 else steps
        found = frozenset(named)
    except TypeError:  # a number, or something with parts that are not numbers
        found = frozenset()
    if not found or not all(type(step) is int and step >= 0 for step in found):
        raise ValueError(
            f"steps={steps!r}: give the first step and the one after the last, (3, 6), or a list of steps"
        )
    return found
