"""What the run of the whole batch did: its kernels, their results, and which of them reads which."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelscope.events import Frame
from kernelscope.probes.launch import Launch

from .row_maps import Difference, RowMap

Key = Hashable


@dataclass(frozen=True, slots=True)
class Made:
    """One result of a launch, or one input of a graph."""

    key: Key | None  # of the same value in the run of the whole batch; None: it has none
    is_certain: bool  # that it is the same value
    tensor: torch.Tensor  # in the shape of its node
    memory: torch.Tensor  # the same elements, as the kernel has them
    storage: int
    argument: str


@dataclass(frozen=True, slots=True)
class Code:
    """What a launch ran."""

    name: str
    kind: str
    phase: str = ""
    graph: str = ""
    origin: tuple[Frame, ...] = ()
    wrapper: str = ""  # file:line of the generated code that launched it
    source: str = ""
    source_hash: str = ""
    config: str = ""
    nodes: tuple[str, ...] = ()
    numbers: frozenset[float] = frozenset()  # that stand in it or were passed to it


@dataclass(frozen=True, slots=True)
class Launched:
    """One launch that is over."""

    code: Code
    reads: tuple[int, ...] = ()  # storages
    writes: tuple[int, ...] = ()
    partly: frozenset[int] = frozenset()  # storages of which it wrote a part
    made: list[Made] = field(default_factory=list)
    is_random: bool = False
    has_inputs: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run with other rows showed of one kernel."""

    run: str
    tests: str  # size | position | contents | repeat
    status: str  # same | variant | handed | combined | unfollowed
    reason: str = ""
    argument: str = ""
    difference: Difference | None = None
    other: Code | None = None  # what ran in its place
    joined: tuple[str, ...] = ()  # other kernels that may be to blame as well
    reaches: str = ""  # the kernel whose rows it changes
    moves: bool = False  # by the places that it gives to rows


@dataclass(slots=True)
class Kernel:
    """One launch in the run of the whole batch."""

    index: int
    code: Code
    reads: set[int] = field(default_factory=set)  # launches
    outcomes: list[Outcome] = field(default_factory=list)
    made: int = 0  # results that have a key
    numbers_rows: bool = False  # its result holds indices of rows


@dataclass(slots=True)
class Value:
    """A result in the run of the whole batch."""

    tensor: torch.Tensor
    maker: int | None  # None: an input of a graph
    maps: list[RowMap] | None = None  # where its rows may be, as far as other runs showed
    varying: set[int] = field(default_factory=set)  # dimensions that do not follow the number of rows
    met: set[int] = field(default_factory=set)  # places of selected rows that runs with half of the rows have


class Flow:
    """Collects it while that run happens."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.kernels: list[Kernel] = []
        self.values: dict[Key, Value] = {}
        self.numbers: set[float] = set()  # in all of its kernels
        self.draws = False  # random numbers, of which a row has others in another batch
        self._makers: dict[int, int] = {}  # by storage

    def entered(self, inputs: list[Made]) -> None:
        """A graph is called with these."""
        for made in inputs:
            self.values[made.key] = Value(_copy(made.tensor), None)

    def launched(self, launch: Launched) -> None:
        index = len(self.kernels)
        kernel = Kernel(index, launch.code)
        kernel.reads = {self._makers[storage] for storage in launch.reads if storage in self._makers}
        self.kernels.append(kernel)
        self.draws |= launch.is_random
        self.numbers |= launch.code.numbers
        self._makers |= dict.fromkeys(launch.writes, index)
        for made in launch.made:
            self.values[made.key] = Value(_copy(made.tensor), index)
            kernel.made += 1

    def forget(self, run: str) -> None:
        """A run that did not come to its end says nothing."""
        for kernel in self.kernels:
            kernel.outcomes = [outcome for outcome in kernel.outcomes if outcome.run != run]

    def readers(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {kernel.index: set() for kernel in self.kernels}
        for kernel in self.kernels:
            for maker in kernel.reads - {kernel.index}:
                found[maker].add(kernel.index)
        return found


def code_of(launch: Launch, graph: str, nodes: tuple[str, ...], given: Iterable[Any]) -> Code:
    """`given`: the arguments among which the numbers are that the program has passed."""
    site, kernel = launch.site, launch.site.kernel
    settings: dict[str, Any] = dict(site.config)
    return Code(
        kernel.name, kernel.kind, launch.phase, graph, site.origin, f"{site.file}:{site.line}", kernel.source,
        kernel.source_hash, f"{settings} {site.grid}" if settings else "", nodes,
        frozenset(value for value in given if isinstance(value, float)),
    )  # fmt: skip


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone()
