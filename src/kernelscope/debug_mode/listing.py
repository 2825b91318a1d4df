"""The lines between the calls: modules and ranges that are entered, and operators that launch nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kernelscope.config import Config
from kernelscope.model.call import KernelCall
from kernelscope.model.debug_notes import CallNotes
from kernelscope.model.labels import map_tree
from kernelscope.probes.eager.annotations import forward_trace, placements_text
from kernelscope.probes.launch import Capture
from kernelscope.recording import Recording

from .entries import Annotation, Entry, OperatorEntry, OutputPlacement, Redistribution
from .flags import Flags
from .hooks import Hooks
from .labels import Labels, operator_label
from .stacks import stack_here

# Ranges that torch opens around compilation and benchmarking, not around the program's own work.
_TORCHS_RANGES = ("CachingAutotuner.", "InductorBenchmarker.", "compile_fx.<locals>.")

# What opens and closes a range is listed as the range.
_RANGE_FUNCTIONS = ("torch._ops.profiler.", "profiler::")


class Listing:
    """Entries by the index of the call that follows them, and the depth at which the next line stands."""

    def __init__(self, flags: Flags, config: Config) -> None:
        self.flags = flags
        self.depth = 0
        self.labels = Labels(flags.record_tensor_attributes or (), ids=flags.record_ids)
        self.recording = _ListedRecording(config, self)
        self.hooks = Hooks(self.recording, stock_form=flags.stock_form)
        self.notes: dict[int, CallNotes] = {}  # by key of the call
        self.recording.run.debug_notes = self.notes
        self._entries: list[tuple[int, Entry]] = []
        self._ranges: list[str] = []
        self._modules: list[str] = []  # entered, outermost first
        self._outside: list[int] = []  # how many of them each compiled region was entered with
        self._node_trace: str | None = None

    def lines(self) -> Iterator[KernelCall | Entry]:
        """Calls in order, with the entries between them."""
        entries = iter(self._entries)
        entry = next(entries, None)
        for call in self.recording.run.calls:
            while entry is not None and entry[0] <= call.index:
                yield entry[1]
                entry = next(entries, None)
            yield call
        if entry is not None:
            yield entry[1]
        yield from (e for _, e in entries)

    def stack(self) -> tuple[str, str | None]:
        """Where we are, and in the backward pass where its forward was."""
        return (stack_here(), forward_trace()) if self.flags.record_stack_trace else ("", None)

    def operator_stack(self) -> tuple[str, str | None]:
        """The same of an operator: a node of a compiled graph has the stack of the line it comes from."""
        trace = self._node_trace
        return self.stack() if trace is None or not self.flags.record_stack_trace else (trace, trace)

    def close(self) -> None:
        self.depth, self._node_trace = 0, None
        for entered in (self._ranges, self._modules, self._outside):
            entered.clear()

    def annotate(self, header: str, tag: Any, depth: int | None = None) -> None:
        self._add(Annotation(tag, header, self.depth if depth is None else depth, self.stack()))

    def _add(self, entry: Entry) -> None:
        self._entries.append((self.recording.next_index, entry))

    def _add_operator(self, func: Any, args: Any, kwargs: Any, depth: int) -> OperatorEntry:
        described = self.labels.tree(tuple(args)), self.labels.tree(dict(kwargs))
        original = (args, kwargs) if self.flags.store_original_args else None
        entry = OperatorEntry(
            func,
            operator_label(func),
            described,
            original,
            depth,
            self.operator_stack(),
            stock_form=self.flags.stock_form,
        )
        self._add(entry)
        return entry

    def _note_output(self, entry: OperatorEntry, result: Any) -> None:
        if self.flags.record_output:
            entry.output = self.labels.tree(result)

    # -- ranges, modules, functions --------------------------------------------------------------------

    def leave(self) -> None:
        self.depth = max(0, self.depth - 1)

    def mark(self, kind: str, text: str) -> None:
        if not self.flags.record_profiler_context or text.startswith(_TORCHS_RANGES):
            return
        if kind == "record_function":
            self.annotate("record function", text)
            self._ranges.append(text)
            self.depth += 1
        elif kind == "record_function end" and text in self._ranges:
            self._ranges.remove(text)
            self.leave()

    def enter_module(self, name: str, header: str = "nn.Mod") -> None:
        self.annotate(header, name, self.depth + 1)
        self._modules.append(name)
        self.depth += 1

    def leave_module(self) -> None:
        if self._modules:
            self._modules.pop()
        self.leave()

    def watch_function(self, func: Any, args: Any, kwargs: Any, proceed: Callable[[], Any]) -> Any:
        if operator_label(func).startswith(_RANGE_FUNCTIONS):
            return proceed()
        entry = self._add_operator(func, args, kwargs, self.depth)
        self.depth += 1
        try:
            result = proceed()
        finally:
            self.leave()
        self._note_output(entry, result)
        return result

    # -- operators that launch nothing (a bystander of the bus) ----------------------------------------

    def passing(self, what: str, func: Any, args: Any, kwargs: Any) -> Callable[[Any], None] | None:
        wanted = self.flags.record_faketensor if what == "fake" else self.flags.record_realtensor
        if what == "annotation":
            self.annotate("annotate", args[0])
            return None
        if what == "in graph" and not self.flags.stock_form:
            return None  # its calls are kernels of their own kind
        if not wanted or getattr(func, "namespace", "") == "prim":
            return None
        if what == "region":
            return self._enter_subgraph(func, args)
        entry = self._add_operator(func, args, kwargs, self.depth + 1)
        return self._with_hooks(entry, func, args, kwargs, values=what != "fake")

    def _with_hooks(
        self, entry: OperatorEntry, func: Any, args: Any, kwargs: Any, *, values: bool = True
    ) -> Callable[[Any], None]:
        name = entry.kernel_name
        entry.note({}, self.hooks.before(func, args, kwargs, entry, name, values=values))

        def after(result: Any) -> None:
            self._note_output(entry, result)
            if result is not None:
                entry.note(*self.hooks.after(func, args, kwargs, result, name, values=values))

        return after

    def _enter_subgraph(self, func: Any, args: Any) -> Callable[[Any], None]:
        """Between its two lines stand the operators of the graph, which is no argument to show."""
        _, name, *operands = args
        entry = self._add_operator(func, (name, *operands), {}, self.depth + 1)
        after = self._with_hooks(entry, func, (name, *operands), {})
        self.depth += 1
        self.annotate("annotate", f"[enter InvokeSubgraph HOP] {name}")

        def leave(result: Any) -> None:
            self.annotate("annotate", f"[exit InvokeSubgraph HOP] {name}")
            self.leave()
            after(result)

        return leave

    def unwrapping(self, func: Any, types: Any, args: Any, kwargs: Any) -> None:
        names = {t.__name__ for t in types}
        if "DTensor" in names:
            self._add_operator(func, args, kwargs, self.depth)
        elif ("LocalTensor" in names and self.flags.record_localtensor) or (
            "AsyncCollectiveTensor" in names and self.flags.record_realtensor
        ):
            self._add_operator(func, args, kwargs, self.depth + 1)

    # -- called where aot_eager's graphs run node by node ----------------------------------------------

    def enter_region(self, backend: str) -> None:
        self._add(Annotation("enter", f"{backend} region (compile)", self.depth))
        self._outside.append(len(self._modules))

    def at_node(self, modules: Sequence[str], header: str, stack_trace: str | None) -> None:
        self._node_trace = stack_trace
        if not self.flags.record_nn_module:
            return
        inside = [*self._modules[: self._outside[-1]], *modules]
        for _ in set(self._modules) - set(inside):
            self.leave_module()
        for name in sorted(set(inside) - set(self._modules)):
            self.enter_module(name, header)

    def leave_region(self, backend: str) -> None:
        self._node_trace = None
        before = self._outside.pop() if self._outside else 0
        while len(self._modules) > before:
            self.leave_module()
        self._add(Annotation("exit", f"{backend} region (compile)", self.depth))

    # -- called by DTensor's dispatch code -------------------------------------------------------------

    @contextmanager
    def record_redistribute_calls(
        self,
        arg: Any,
        src_placement: Any,
        dst_placement: Any,
        transform_info_str: str | None = None,
        is_explicit: bool = False,
    ) -> Iterator[None]:
        placements = _placements(src_placement), _placements(dst_placement)
        how = "implicit" if isinstance(arg, int) else "explicit" if is_explicit else ""
        label, depth = self.labels.tree(arg), self.depth + 1
        self._add(Redistribution(label, placements, transform_info_str, how, depth, self.stack()))
        self.depth += 1
        try:
            yield
        finally:
            self.leave()

    def record_output_placements(self, output_spec: Any) -> None:
        if self.flags.record_output:
            self._add(OutputPlacement(str(_placements(output_spec)), self.depth + 1))


class _ListedRecording(Recording):
    """A recording that passes profiler ranges on, and indents what a CUDA graph replays."""

    def __init__(self, config: Config, listing: Listing) -> None:
        super().__init__(config)
        self._listing = listing

    @property
    def next_index(self) -> int:
        """Of the call that comes next."""
        calls = self.run.records_of_calls
        return calls[-1].index + 1 if calls else 0

    def mark(self, kind: str, text: str) -> None:
        super().mark(kind, text)
        self._listing.mark(kind, text)

    def replayed(self, capture: Capture, stream: int, graph_call: int) -> None:
        count = len(self.run.records_of_calls)
        super().replayed(capture, stream, graph_call)
        for call in self.run.records_of_calls[count:]:
            call.depth = self._listing.depth + 1


def _placements(spec: Any) -> str:
    if hasattr(spec, "placements"):
        return placements_text(spec)
    return str(map_tree(lambda s: placements_text(s) if hasattr(s, "placements") else s, spec))
