"""Re-runs one call many times with the same inputs, and checks that its outputs are identical."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch

from kernelscope.events import Call
from kernelscope.fingerprint.torch_bits import poison
from kernelscope.probes.launch import Launch

from .run_again import Memory, RunAgain, hashes, written_by

TIMES = 20


@dataclass(frozen=True, slots=True)
class Replay:
    """What replaying one call alone has shown."""

    index: int
    kernel_name: str
    times: int = 0
    differed: int = 0  # of these, with the same contents everywhere
    arguments: tuple[str, ...] = ()  # those that differed
    uninitialised: bool = False  # it differs with the contents of uninitialised memory
    error: str = ""  # why it could not be replayed

    @property
    def is_confirmed(self) -> bool:
        return bool(self.differed or self.uninitialised)


class Replayer(RunAgain):
    """Re-runs the calls with these indices many times."""

    def __init__(self, calls: Collection[int], times: int = TIMES) -> None:
        super().__init__()
        self._wanted, self._times = frozenset(calls), times
        self.replays: dict[int, Replay] = {}
        # By call and argument: what its first launch left, and what a replay left that differed.
        self.examples: dict[int, dict[str, tuple[torch.Tensor, torch.Tensor]]] = {}

    def wants(self, call: Call, launch: Launch) -> bool:
        return call.index in self._wanted

    def check(self, call: Call, launch: Launch, found: Memory) -> None:
        self.replays[call.index] = self._replay(call, launch, found)

    def failed(self, call: Call, launch: Launch, error: Exception) -> None:
        what = f"{type(error).__name__}: {error}"
        self.replays[call.index] = Replay(call.index, launch.site.kernel.name, error=what)

    def _replay(self, call: Call, launch: Launch, found: Memory) -> Replay:
        written = written_by(launch, launch.result)
        first, kept = hashes(written), {i: tensor.clone() for i, tensor in written.items()}
        differing: dict[int, int] = {}
        differed = 0
        for _ in range(self._times):
            left = self._launch(launch, found)
            again = hashes(left)
            if missing := [launch.site.args[i].name for i in first if i not in again]:
                raise RuntimeError(f"launched again, it did not return {', '.join(missing)}")
            other = [i for i in first if again[i] != first[i]]
            differed += bool(other)
            for i in other:
                pair = (kept[i].cpu(), left[i].cpu().clone())
                self.examples.setdefault(call.index, {})[launch.site.args[i].name] = pair
            differing |= dict.fromkeys(other, 1)
        by_contents: list[int] = []
        if not differed and launch.uninitialised:
            for fill in (poison, torch.Tensor.zero_):
                again = hashes(self._launch(launch, found, fill))
                by_contents += [i for i in first if again.get(i) != first[i]]
        args = launch.site.args
        names = tuple(args[i].name for i in sorted(differing or dict.fromkeys(by_contents)))
        return Replay(call.index, launch.site.kernel.name, self._times, differed, names, bool(by_contents))

    def _launch(self, launch: Launch, found: Memory, fill: Any = None) -> dict[int, torch.Tensor]:
        found.put_back()
        if fill is not None:
            for i in launch.uninitialised:
                fill(launch.flat[i])
        return written_by(launch, launch.func(*launch.args, **launch.kwargs))
