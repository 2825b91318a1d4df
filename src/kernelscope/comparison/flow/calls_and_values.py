"""What one program did: its calls, the values that each of them read, and those that it left."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._pytree import keystr, tree_leaves_with_path

from kernelscope.events import Frame
from kernelscope.fingerprint.torch_bits import why_not
from kernelscope.probes.eager.annotations import forward_trace
from kernelscope.probes.launch import Launch
from kernelscope.probes.origins import frames_of_trace
from kernelscope.shadowing.reference.node_kinds import draws_from_generator
from kernelscope.shadowing.reference.small_errors.library_digits import library_rounding
from kernelscope.shadowing.reference.small_errors.rounding import eps_of, rounding_of

from .call_parts import parts_of
from .held_values import HeldValues
from .numbers_of_calls import Number, numbers_of_launch

_FILLS = ("new_zeros", "new_ones", "new_full", "zero_", "fill_", "uniform_", "normal_", "bernoulli_")
SERIES = "series"  # the kind of a call that stands for several
_ADOPTS = "aten.set_."  # another memory, as it is
_OVERWRITES = ("aten.copy_.", "aten._foreach_copy_.")  # all of what they write to, unread
LEAF = -1  # the call of a value that no call made
Read = tuple[str, list[int]]  # an argument's name, and the values that it holds
Written = tuple[str, torch.Tensor]  # an argument's name, and the tensor
_COPIES = (
    "_to_copy",
    "clone",
    "copy_",
    "copy",
    "contiguous",
    "detach",
    "alias",
    "lift_fresh",
    "_foreach_copy_",
    "_unsafe_view",
)


@dataclass(slots=True)
class Call:
    """One launch or operator."""

    index: int
    name: str
    kind: str
    phase: str
    origin: tuple[Frame, ...]  # the program's lines, innermost first
    reads: tuple[int, ...]  # numbers of values
    eps: float  # the coarsest rounding of what it reads and writes
    turn: int = 0  # how many backward passes had begun
    joined_turn: int = -1  # the same, those counted as one that add up gradients; -1: no pass does
    is_draw: bool = False
    nodes: tuple[str, ...] = ()
    writes: list[int] = field(default_factory=list)
    parts: tuple[int, ...] = ()  # calls of which it is a series
    digits: float = 0.0  # one rounding that a library may do inside, where it is coarser than the dtype's
    number: int = -1  # of the program's calls, or of the run's that it was recorded in
    is_continued: bool = False  # a part of a call that is not its first
    numbers: tuple[tuple[str, Number], ...] = ()  # that it was given, by name

    @property
    def operator(self) -> str:
        """Without namespace, overload and the mark of writing in place: mul, of aten.mul_.Tensor."""
        parts = self.name.split(".")
        found = parts[1] if len(parts) > 1 else parts[0]
        return found.removeprefix("_foreach_").rstrip("_") if not self.is_kernel else self.name

    @property
    def is_kernel(self) -> bool:
        """Generated code, which may do what several operators do."""
        return self.kind not in ("op", "extern")

    @property
    def is_fused(self) -> bool:
        """It does what the other program may do in several calls."""
        return self.is_kernel or self.operator.startswith("_fused_")

    @property
    def is_copy(self) -> bool:
        parts = self.name.split(".")
        return (parts[1] if len(parts) > 1 else parts[0]) in _COPIES


@dataclass(slots=True)
class Value:
    """What one call left in a tensor, or what a program was given."""

    number: int
    call: int  # LEAF: made by none
    argument: str
    shape: tuple[int, ...]
    dtype: str
    eps: float  # one rounding of its dtype; 0 for integers
    tiny: float = 0.0  # the smallest number of its dtype: what rounding does to numbers near zero
    device: str = "cpu"
    sources: tuple[int, ...] = ()  # values that it is a copy of, perhaps in another dtype
    readers: list[int] = field(default_factory=list)  # calls

    @property
    def numel(self) -> int:
        found = 1
        for size in self.shape:
            found *= size
        return found


class Flow:
    """Calls and values in order, and which values a tensor holds."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.values: list[Value] = []
        self.held = HeldValues()
        self.replaced: dict[int, tuple[int, ...]] = {}  # by number of a value: what was in its memory before
        self.results: dict[str, int | None] = {}  # values returned, by place; none: a part of one, or several
        self._launches = 0

    def add_leaf(self, tensor: torch.Tensor) -> tuple[Value, torch.Tensor]:
        """What a program was given, as its memory lies."""
        whole = memory_of(tensor)
        value = self._value(LEAF, "", whole, ())
        self.held.set_memory(tensor, value.number)
        return value, whole

    def add_launch(self, launch: Launch, reads: Sequence[Read]) -> Iterator[tuple[Call, list[Written]]]:
        """The call, or those that it is several in one, each with what it has left."""
        for tensor in workspaces(launch):
            self.forget(tensor)
        is_draw = bool(draws_from_generator(launch.func, launch.args, launch.kwargs))
        kernel = launch.site.kernel
        call = Call(
            0, kernel.name, kernel.kind, launch.phase, _origin(launch), (), _eps(launch), is_draw=is_draw,
            digits=_digits(launch), number=self._launches, numbers=numbers_of_launch(launch),
        )  # fmt: skip
        self._launches += 1
        yield from self.add_parts(call, reads, written_tensors(launch))

    def add_parts(
        self, call: Call, reads: Sequence[Read], writes: Sequence[Written]
    ) -> Iterator[tuple[Call, list[Written]]]:
        """Its caller adds the values of each part before it asks for the next."""
        writes = () if call.name.startswith(_ADOPTS) else writes
        if call.name.startswith(_OVERWRITES):
            reads = [each for each in reads if not each[0].startswith("self")]
        parts = parts_of(call.name, [name for name, _ in reads], [name for name, _ in writes])
        made: Call | None = None
        for part in parts:
            numbers = [number for i in part.reads for number in reads[i][1]]
            numbers += made.writes if part.continues and made is not None else []
            made = self.append(
                replace(
                    call, index=len(self.calls), reads=tuple(numbers), writes=[],
                    is_draw=call.is_draw and part.is_draw, is_continued=made is not None,
                )
            )  # fmt: skip
            yield made, [writes[i] for i in part.writes]

    def append(self, call: Call) -> Call:
        """The next call: between which backward passes it is, and what reads which value, is noted."""
        call.reads = () if _reads_form_only(call.name) else tuple(dict.fromkeys(call.reads))
        call.turn = self._turn(call.phase)
        self.calls.append(call)
        for number in call.reads:
            self.values[number].readers.append(call.index)
        return call

    def forget(self, tensor: torch.Tensor) -> None:
        """Bytes that mean nothing to another program."""
        self.held.set_memory(tensor)

    def _turn(self, phase: str) -> int:
        before = self.calls[-1] if self.calls else None
        begins = phase == "backward" and (before is None or before.phase != "backward")
        return (before.turn if before is not None else 0) + begins

    def add_value(self, call: Call, argument: str, tensor: torch.Tensor) -> Value:
        sources = call.reads if call.is_copy else ()
        value = self._value(call.index, argument, tensor, sources)
        call.writes.append(value.number)
        self.replaced[value.number] = self.held.write(tensor, value.number)
        return value

    def note_results(self, result: Any) -> None:
        """What the program has returned."""
        for place, tensor in tree_leaves_with_path(result):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and why_not(tensor) is None:
                numbers = self.held.of(tensor)
                whole = len(numbers) == 1 and self.values[numbers[0]].numel == tensor.numel()
                self.results[keystr(place)] = numbers[0] if whole else None

    def add_whole(self, call: Call, tensor: torch.Tensor) -> Value:
        """All of a memory that calls have written part by part, the last of them this one."""
        parts = tuple(self.held.of_memory(tensor))
        made = replace(call, index=len(self.calls), kind=SERIES, reads=parts, writes=[])
        self.calls.append(made)
        for number in parts:
            self.values[number].readers.append(made.index)
        value = self._value(made.index, "", tensor, parts)
        made.writes.append(value.number)
        self.held.set_memory(tensor, value.number)
        return value

    def add_series(self, parts: list[Value], tensor: torch.Tensor) -> Value:
        """What several calls left, as if one had."""
        calls = [self.calls[part.call] for part in parts]
        numbers = tuple(part.number for part in parts)
        call = replace(
            calls[-1], index=len(self.calls), kind=SERIES, reads=numbers, writes=[],
            parts=tuple(each.index for each in calls),
        )  # fmt: skip
        self.calls.append(call)
        for part in parts:
            part.readers.append(call.index)
        value = self._value(call.index, parts[0].argument, tensor, numbers)
        call.writes.append(value.number)
        return value

    def _value(self, call: int, argument: str, tensor: torch.Tensor, sources: tuple[int, ...]) -> Value:
        name = str(tensor.dtype).removeprefix("torch.")
        shape = tuple(tensor.shape)
        value = Value(
            len(self.values), call, argument, shape, name, eps_of(tensor.dtype), _tiny(tensor.dtype),
            str(tensor.device), sources,
        )  # fmt: skip
        self.values.append(value)
        return value


_NEAR = 32  # values: as far as one program may compute something in other steps than the other


def nearest(flow: Flow, reads: Iterable[int], wanted: Container[int]) -> set[int]:
    """Of the values from which these were computed, and of them: the last that are wanted."""
    found, todo, seen = set(), list(reads), set[int]()
    while todo and len(seen) < _NEAR:
        number = todo.pop(0)
        if number in seen:
            continue
        seen.add(number)
        if number in wanted:
            found.add(number)
        elif (call := flow.values[number].call) != LEAF:
            todo += flow.calls[call].reads
    return found


def read_tensors(launch: Launch) -> list[Written]:
    """Those whose contents mean something, with the names of its arguments."""
    skipped = set(launch.uninitialised)
    found = []
    for i in launch.point.tensors:
        arg = launch.site.args[i]
        if i not in skipped and arg.role != "out" and why_not(launch.flat[i]) is None:
            found.append((arg.name, launch.flat[i]))
    return found


def written_tensors(launch: Launch) -> list[Written]:
    """What a launch that is over has left, with the names of its arguments."""
    args = launch.site.args
    found = [(args[i].name, launch.flat[i]) for i in sorted(launch.point.written)]
    names = [arg.name for arg in args if arg.returned and arg.tensor is not None]
    if len(names) != len(launch.returned):
        names = [f"result{i}" for i in range(len(launch.returned))]
    found += zip(names, launch.returned, strict=True)
    skipped = {id(tensor) for tensor in workspaces(launch)}
    return [(name, t) for name, t in found if why_not(t) is None and id(t) not in skipped]


def workspaces(launch: Launch) -> list[torch.Tensor]:
    """Bytes that an operator of torch leaves, beside its results, for its backward: that of an LSTM does."""
    is_ours = launch.site.kernel.name.startswith("aten.")
    if not is_ours or not any(tensor.is_floating_point() for tensor in launch.returned):
        return []
    return [tensor for tensor in launch.returned if tensor.dtype == torch.uint8]


def alias_of(tensor: torch.Tensor, storage: Any = None) -> torch.Tensor:
    """The same memory, or the same place in another one: writing to it is unseen by autograd."""
    memory = tensor.untyped_storage() if storage is None else storage
    made = torch.empty(0, dtype=tensor.dtype, device=memory.device)
    return made.set_(memory, tensor.storage_offset(), tensor.size(), tensor.stride())


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor's memory: in the shape in which it is contiguous, or else as a list."""
    memory = tensor.untyped_storage()
    count = memory.nbytes() // tensor.element_size()
    alias = alias_of(tensor)
    if tensor.numel() == count and tensor.dim():
        order = sorted(range(tensor.dim()), key=lambda d: int(tensor.stride()[d]), reverse=True)
        ordered = alias.permute(order)
        if ordered.is_contiguous():
            return ordered
    made = torch.empty(0, dtype=tensor.dtype, device=memory.device)
    return made.set_(memory, 0, (count,), (1,))


def _tiny(dtype: torch.dtype) -> float:
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    found = torch.finfo(dtype)
    return float(found.smallest_normal) * float(found.eps)


def _reads_form_only(name: str) -> bool:
    """Such as ones_like: of its argument it uses shape and dtype."""
    parts = name.split(".")
    operator = parts[1] if len(parts) > 1 else parts[0]
    return operator.endswith("_like") or operator in _FILLS


def _origin(launch: Launch) -> tuple[Frame, ...]:
    """In the backward pass of eager code: where the forward operator was called."""
    own = launch.site.origin
    if launch.site.kernel.kind != "op" or launch.phase != "backward":
        return own
    trace = forward_trace()
    if trace is None or (own and _is_inside_backward(own[0])):
        return own
    return frames_of_trace(trace) or own


def _is_inside_backward(frame: Frame) -> bool:
    """A function of the program that autograd calls: its own line says more than the forward's."""
    return frame.function == "backward" or "hook" in frame.function


def _eps(launch: Launch) -> float:
    return max((rounding_of(launch.func, t.dtype, t.device) for t in _floats(launch)), default=0.0)


def _digits(launch: Launch) -> float:
    return max((library_rounding(launch.func, t.dtype, t.device) for t in _floats(launch)), default=0.0)


def _floats(launch: Launch) -> list[torch.Tensor]:
    tensors = [launch.flat[i] for i in launch.point.tensors] + launch.returned
    return [t for t in tensors if t.is_floating_point() or t.is_complex()]
