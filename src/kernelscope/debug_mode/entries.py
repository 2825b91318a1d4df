"""What stands between the calls in DebugMode's listing: ranges, modules, operators that launch nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from kernelscope.model.labels import arguments_text, call_text, output_text, settings_text, tree_text

REDISTRIBUTE = "redistribute_input"


class Entry(ABC):
    """One line of the listing that is not a launch."""

    def __init__(self, call_depth: int, stack: tuple[str, str | None] = ("", None)) -> None:
        self.call_depth = call_depth
        self.stack_trace, self.fwd_stack_trace = stack
        self.log: dict[str, Any] | None = {}
        self.record: dict[str, Any] | None = {}

    @property
    def name(self) -> str:
        """What two listings are aligned by."""
        return self.render()

    @abstractmethod
    def render(self, attributes: Sequence[str] = ()) -> str: ...

    def __repr__(self) -> str:
        return self.render()

    def __iter__(self) -> Iterator[Any]:
        """As stock's entries: what, args, kwargs, depth."""
        yield from (self.render(), (), {}, self.call_depth)


class Annotation(Entry):
    """`[record function] …`, `[nn.Mod] …`, `[annotate] …`, `[aot_eager region (compile)] …`."""

    def __init__(
        self, tag: Any, header: str, call_depth: int, stack: tuple[str, str | None] = ("", None)
    ) -> None:
        super().__init__(call_depth, stack)
        self.tag, self.header = tag, header

    def render(self, attributes: Sequence[str] = ()) -> str:
        return f"[{self.header}] {self.tag}"


class OutputPlacement(Entry):
    """The placements of what an operator on DTensors returned."""

    def __init__(self, placements_str: str, call_depth: int) -> None:
        super().__init__(call_depth)
        self.placements_str = placements_str

    def render(self, attributes: Sequence[str] = ()) -> str:
        return f"-> output: {self.placements_str}"


class OperatorEntry(Entry):
    """A function or operator that launches nothing itself: torch.nn.functional.linear, a view."""

    def __init__(
        self,
        op: Any,
        name: str,
        described: tuple[tuple[Any, ...], dict[str, Any]],
        original: tuple[tuple[Any, ...], dict[str, Any]] | None,
        call_depth: int,
        stack: tuple[str, str | None],
        *,
        stock_form: bool = False,
    ) -> None:
        super().__init__(call_depth, stack)
        self.op = op
        self._name = name
        self._described = described
        self.is_stock_form = stock_form
        if original is not None or not stock_form:
            self.args, self.kwargs = original or described
        if stock_form:
            self.log = self.record = None
        self.output: Any = None

    def note(self, record: dict[str, Any], log: dict[str, Any]) -> None:
        """Add what hooks answered."""
        if record:
            self.record = (self.record or {}) | record
        if log:
            self.log = (self.log or {}) | log

    @property
    def name(self) -> str:
        return self._name

    @property
    def kernel_name(self) -> str:
        return str(self.op)

    @property
    def args_str(self) -> str:
        return arguments_text(self._described[0])

    @property
    def kwargs_str(self) -> str:
        return settings_text(self._described[1])

    @property
    def output_str(self) -> str | None:
        return output_text(self.output) or None

    def render(self, attributes: Sequence[str] = ()) -> str:
        args, kwargs = self._described
        text = call_text(self._name, args, kwargs, attributes) + output_text(self.output, attributes)
        return text + (f"  # {self.log}" if self.log else "")

    def __iter__(self) -> Iterator[Any]:
        if hasattr(self, "args"):
            yield from (self.op, self.args, self.kwargs, self.call_depth)
        else:
            yield from (self.op, self.args_str, self.kwargs_str, self.call_depth)


class Redistribution(Entry):
    """A DTensor changes its placement."""

    def __init__(
        self, arg: Any, placements: tuple[str, str], trace: str | None, how: str, call_depth: int, stack: Any
    ) -> None:
        super().__init__(call_depth, stack)
        self.arg = arg
        self.src_placement, self.dst_placement = placements
        self.transform_info_str = trace
        self._how = how
        self.is_outer_call, self.is_explicit = how == "implicit", how == "explicit"

    @property
    def placements(self) -> str:
        if self.transform_info_str is not None:
            return f"trace: {self.transform_info_str}"
        return f"{self.src_placement} -> {self.dst_placement}"

    @property
    def arg_str(self) -> str:
        return tree_text(self.arg)

    def render(self, attributes: Sequence[str] = ()) -> str:
        how = f" [{self._how}] " if self._how else ""
        return f"{REDISTRIBUTE}{how}({tree_text(self.arg, attributes)}, {self.placements})"

    def __iter__(self) -> Iterator[Any]:
        how = (self.src_placement, self.dst_placement)
        placements = how if self.transform_info_str is None else (self.transform_info_str,)
        yield from (REDISTRIBUTE, [self.arg_str, *placements], {}, self.call_depth)
