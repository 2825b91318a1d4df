"""What the bus and the probes expect of a recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kernelscope.events import CompactCall, Finding, GraphCall, SteadySite, TensorSpec
from kernelscope.stages.records import Record

from .launch import Capture, Launch
from .python_wrappers.planned_source import When


class Kept(Protocol):
    """What a recording keeps for a CUDA graph, as long as the graph lives."""

    def begin(self) -> None:
        """First thing in the capture."""

    def end(self) -> None:
        """What was captured so far is complete; called at least as the last thing in the capture."""

    @property
    def memory(self) -> Any:
        """What the captured kernels write to, also after the recording has closed."""

    @property
    def nbytes(self) -> int: ...


class GraphReadings:
    """What one graph call fingerprinted, so that the next can do the same without looking."""

    def __init__(self) -> None:
        self.tensors: list[TensorSpec] = []  # by their number
        self.before: dict[int, list[tuple[int, int]]] = {}  # by site: argument, number of the tensor
        self.after: dict[int, list[tuple[int, int]]] = {}
        self.steady_sites: dict[int, SteadySite] = {}  # by site, with numbers for slots
        # Views of what had been read before, which one pass can read too: the number of that, by their own.
        self.views: dict[int, int] = {}
        self.swapped: dict[int, int] = {}  # those of them that are read so, the other way round
        self.beside: dict[int, list[int]] = {}  # by site: arguments that are handed over with what it left


class GraphPlan(Protocol):
    """Fingerprints one graph call after another."""

    @property
    def flushes(self) -> Sequence[Callable[..., None]]: ...

    def begin(self, graph_call: int) -> Any:
        """What the flushes of this graph call are given; None where this raised: they then do nothing."""

    def ended(self, execution: Any, *, broken_off: bool) -> None:
        """All of its flushes have been called; or it raised, and some never will be."""


class Planner(Protocol):
    """A recording whose fingerprints can be planned."""

    def when(self, readings: GraphReadings) -> When:
        """When it reads what a launch leaves."""

    def readings(self, graph_call: int, launches: int) -> GraphReadings | None:
        """What that graph call, which has just ended, fingerprinted; None if the next may differ."""

    def plan(self, readings: GraphReadings, flushes: Sequence[Sequence[int]]) -> GraphPlan | None: ...


class Listener:
    """A recording, as the bus sees it. What a listener does not override does nothing."""

    def before(self, launch: Launch) -> Any:
        """What it returns is passed to `after`; with None, that is not called."""

    def begun(self, call: Any) -> None:
        """A collective has returned and goes on; `after` comes when it has ended."""

    def after(self, launch: Launch, call: Any) -> None: ...

    def capturing(self) -> Kept | None:
        """A CUDA graph is about to be captured."""
        return None

    def replayed(self, capture: Capture, stream: int, graph_call: int) -> None:
        """Each launch of a CUDA graph has been enqueued once more."""

    def graph_call(self, graph_call: GraphCall, inputs: Sequence[Any]) -> None: ...

    def graph_call_ended(self, graph_call: int) -> None:
        """It is over, or raised; its launches are over."""

    @property
    def accepts_compact(self) -> bool:
        """Whether a compact note of a launch at a steady site is enough."""
        return False

    @property
    def wants_values(self) -> bool:
        """Whether it reads the contents of tensors of launches that are over, and not only their shapes."""
        return False

    @property
    def planner(self) -> Planner | None:
        """Itself, if it wants fingerprints that can be planned."""
        return None

    @property
    def notes_have_ends(self) -> bool:
        """Whether it must know when a noted launch is over."""
        return False

    @property
    def note(self) -> Callable[[CompactCall], Any]:
        """Takes a note, quickly. Code that does not report the ends of launches calls it."""
        return ignore

    @property
    def note_with_end(self) -> Callable[[CompactCall], Any]:
        """The same for code that calls what it returns, if anything, after the launch."""
        return self.note

    def note_failed(self, graph_call: int, line: int, error: BaseException) -> None: ...
    def mark(self, kind: str, text: str) -> None: ...
    def finding(self, finding: Finding) -> None: ...
    def compiled(self, record: Record) -> None: ...
    def step(self) -> None: ...


def ignore(entry: CompactCall) -> None:
    """Takes notes that are not kept: of a paused recording, or of a graph that outlasts its recording."""


class Bystander(Protocol):
    """Lists operators that launch nothing: views, allocations, fake tensors, subclasses unwrapping."""

    def passing(self, what: str, func: Any, args: Any, kwargs: Any) -> Callable[[Any], None] | None:
        """Called before; what it returns is called with the result."""

    def unwrapping(self, func: Any, types: Any, args: Any, kwargs: Any) -> None: ...
