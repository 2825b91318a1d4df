"""Runs an everyday model bare, recorded and shadowed, and says what differs and what was judged."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

import kernelscope
from tests.programs.models.registry import Model

STEPS = 2
BARE_AGAIN = 15  # executions, before a difference counts: atomic additions may come in one order twice
MOST_UNJUDGED = 0.03  # of launches, and of output bytes
Digests = dict[str, str]  # by step and name: of every output, gradient and buffer


@dataclass(frozen=True)
class Mode:
    """How a model is run."""

    train: bool
    autocast: torch.dtype | None = None

    def __str__(self) -> str:
        return f"{'train' if self.train else 'eval'}-{'bfloat16' if self.autocast else 'float32'}"


MODES = {
    str(mode): mode
    for mode in (Mode(train, dtype) for train in (True, False) for dtype in (None, torch.bfloat16))
}


@dataclass
class Outcome:
    """What became of one model in one mode."""

    model: str
    mode: str
    device: str = "cpu"
    launches: int = 0
    graphs: int = 0
    buffers: int = 0
    judged: dict[str, float] = field(default_factory=dict)  # shares
    unjudged: dict[str, int] = field(default_factory=dict)  # by kernel, argument and reason
    alarms: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # of kernelscope
    problem: str = ""
    notes: list[str] = field(default_factory=list)
    varying: int = 0  # results that differ between two bare executions
    changed_by_recording: list[str] = field(default_factory=list)
    changed_by_shadow: list[str] = field(default_factory=list)
    error: str = ""  # the program itself ended here
    seconds: float = 0.0
    commit: str = ""  # of kernelscope

    @property
    def unjudged_share(self) -> float:
        return 1 - min(self.judged.get("launches", 1.0), self.judged.get("bytes", 1.0))

    def broken_promises(self) -> list[str]:
        """Empty for a clean program that is judged rightly."""
        found = [*self.alarms, *self.failures]
        found += [f"a recording changes {name}" for name in self.changed_by_recording]
        found += [f"shadow changes {name}" for name in self.changed_by_shadow]
        if self.unjudged_share > MOST_UNJUDGED:
            found += [f"{self.unjudged_share:.1%} not judged", *self.unjudged]
        return found + [text for text in (self.problem, self.error) if text]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Program:
    """A few steps of one model, which start from the same state each time."""

    def __init__(self, model: Model, mode: Mode, device: str) -> None:
        torch.manual_seed(0)
        module, given = model.make()
        self.module = module.to(device).train(mode.train)
        self.given = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in given.items()}
        self.mode, self.device = mode, device
        self.start = {name: value.clone() for name, value in self.module.state_dict().items()}
        self.compiled = torch.compile(self.module)
        self.compiled_late = False  # another graph, after the first step of the last run

    def run(self) -> Digests:
        """Digests of all that the steps compute."""
        with torch.no_grad():
            for name, value in self.module.state_dict().items():
                value.copy_(self.start[name])
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(self.module.parameters(), lr=0.01)
        found: Digests = {}
        for step in range(STEPS):
            graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
            optimizer.zero_grad()
            autocast = (
                torch.autocast(self.device, self.mode.autocast) if self.mode.autocast else nullcontext()
            )
            with autocast, torch.set_grad_enabled(self.mode.train):
                result = self.compiled(**self.given)
            if self.mode.train:
                _loss(result).backward()
            found |= {f"step {step}: {name}": _digest(value) for name, value in self._values(result)}
            if self.mode.train:
                optimizer.step()
            self.compiled_late = step > 0 and graphs < torch._dynamo.utils.counters["stats"]["unique_graphs"]
        return found

    def _values(self, result: Any) -> Iterator[tuple[str, torch.Tensor]]:
        for index, value in enumerate(_tensors(result)):
            yield f"output {index}", value
        for name, parameter in self.module.named_parameters():
            if parameter.grad is not None:
                yield f"gradient of {name}", parameter.grad
        yield from self.module.named_buffers()


def check(model: Model, mode: Mode, device: str = "cpu") -> Outcome:
    """Run a model bare, with a recording, and under shadow."""
    start = time.perf_counter()
    outcome = Outcome(model.name, str(mode), device)
    with torch._dynamo.config.patch(**model.dynamo):
        torch._dynamo.reset()
        program = Program(model, mode, device)
        first = bare = program.run()
        if program.compiled_late:  # the next run begins with other graphs, which may round differently
            first = bare = program.run()
        varying = _varying(bare, program.run())  # on a GPU, where atomic additions come in any order
        with kernelscope.record(values="hash"):
            recorded = program.run()
        varying += _varying_often(program, bare, recorded, varying)
        torch._dynamo.reset()
        with kernelscope.shadow() as result:
            program = Program(model, mode, device)
            shadowed = program.run()
            if program.compiled_late:
                shadowed = program.run()
        if device == "cuda":  # Triton chooses configs by timing: the other program may round differently
            bare = program.run()
            varying += _varying(bare, program.run())
        varying += _varying_often(program, bare, shadowed, varying)
        torch._dynamo.reset()
    outcome.varying = len({*varying})
    outcome.changed_by_recording = [name for name in differing(first, recorded) if name not in varying]
    outcome.changed_by_shadow = [name for name in differing(bare, shadowed) if name not in varying]
    counts = result.counts
    outcome.launches, outcome.buffers, outcome.graphs = counts.launches, counts.buffers, counts.graphs
    outcome.judged = counts.shares
    found = result.to_dict()
    outcome.alarms = [_alarm(culprit) for culprit in found["culprits"]]
    outcome.failures = [f"{each['where']}: {each['traceback']}" for each in found["failures"]]
    outcome.unjudged = {
        f"{each['kernel_name']} {each['argument']}: {each['reason']}": each["times"]
        for each in found["unchecked"]
    }
    outcome.problem, outcome.notes = result.problem, result.notes
    outcome.seconds = time.perf_counter() - start
    return outcome


def _alarm(culprit: dict[str, Any]) -> str:
    named = f"{culprit['verdict']}: {culprit['kernel_name']} {culprit['argument']} {culprit['buffer']}"
    return f"{named}: {culprit['reason']} (of {culprit['node']}, {culprit['nodes']}, {culprit['numbers']})"


def differing(expected: Digests, found: Digests) -> list[str]:
    return [name for name in expected | found if expected.get(name) != found.get(name)]


def _varying(one: Digests, other: Digests) -> list[str]:
    """What differs between two executions, and all that later steps compute from it."""
    found = differing(one, other)
    steps = [name.partition(":")[0] for name in found]
    return found + [name for name in one if steps and name.partition(":")[0] > min(steps)]


def _varying_often(program: Program, bare: Digests, found: Digests, varying: list[str]) -> list[str]:
    """What differs in some of many bare executions, asked for only where something has differed."""
    if not {*differing(bare, found)} - {*varying}:
        return []
    found: list[str] = []
    for _ in range(BARE_AGAIN):
        with _beside_other_work(program.device):
            found += _varying(bare, program.run())
    return found


@contextmanager
def _beside_other_work(device: str) -> Iterator[None]:
    """A GPU that is busy adds atomically in another order, as it does beside the kernels of a recording."""
    if device == "cuda":
        with torch.cuda.stream(torch.cuda.Stream()):
            left = torch.randn(2048, 2048, device=device)
            for _ in range(200):
                left = left @ left
    yield


def _tensors(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _loss(result: Any) -> torch.Tensor:
    loss: torch.Tensor | None = getattr(result, "loss", None)
    if loss is not None:
        return loss
    found = [t.float().square().mean() for t in _tensors(result) if t.requires_grad]
    return torch.stack(found).sum()


def _digest(value: torch.Tensor) -> str:
    described = f"{value.dtype} {tuple(value.shape)} {value.stride()}".encode()
    plain = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(described + plain.numpy().tobytes()).hexdigest()
