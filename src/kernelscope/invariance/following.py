"""Follows a program while it runs: each launch of compiled code and each eager operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch.utils._pytree import tree_leaves

from kernelscope.events import GraphCall
from kernelscope.fingerprint.torch_bits import why_not
from kernelscope.probes.bus import BUS
from kernelscope.probes.compilation.lowering import LoweredGraph
from kernelscope.probes.launch import Launch
from kernelscope.shadowing.checks.launch_check import LaunchCheck
from kernelscope.shadowing.checks.pending import Pending, made_outputs
from kernelscope.shadowing.graph_call_state import GraphCallState
from kernelscope.shadowing.reference.graph_walk import is_value_of, shaped
from kernelscope.shadowing.reference.node_kinds import draws_from_generator, is_random, value_of
from kernelscope.shadowing.result import ShadowResult
from kernelscope.shadowing.session import Session

from .flow import Code, Key, Launched, Made, code_of
from .matched_nodes import matched, matched_tokens, node_keys


class Sink(Protocol):
    """What takes what a run did: the flow of the whole batch, or a judge of another run."""

    def entered(self, inputs: list[Made]) -> None: ...
    def launched(self, launch: Launched) -> None: ...


class _Ignored:
    """A run that is not looked at: it compiles, and shows what it returns."""

    def entered(self, inputs: list[Made]) -> None: ...
    def launched(self, launch: Launched) -> None: ...


class _GraphKeys:
    """A lowered graph, with what its nodes compute."""

    def __init__(self, lowered: LoweredGraph, forward: _GraphKeys | None) -> None:
        self.nodes = list(lowered.module.graph.nodes)
        saved = forward.by_name if forward is not None else {}
        self.keys = node_keys(self.nodes, lambda name: saved.get(name))
        self.by_name: dict[str, Key] = {node.name: key for node, key in self.keys.items()}


class Following(Session):
    """Follows one run after the other, with the graphs that were compiled for any of them."""

    def __init__(self) -> None:
        self._noted = _Launches()
        super().__init__(ShadowResult(), launches=self._noted)
        self._sink: Sink = _Ignored()
        self._calls: dict[int, tuple[int, _GraphKeys]] = {}  # by graph call: its number in the run
        self._of_path: dict[str, _GraphKeys] = {}
        self._forward: dict[str, _GraphKeys] = {}  # by compile id
        self._whole: list[_GraphKeys] = []  # the graph calls of the whole batch, in order
        self._guessed: dict[Key, frozenset[Key]] = {}  # in it: of what each buffer is made, by a guess
        self._whole_operators: list[Key] = []
        self._matches: dict[tuple[int, int], dict[Any, tuple[Any, bool]]] = {}
        self._operators: list[Key] = []  # of this run
        self._places: dict[int, tuple[int, bool]] = {}  # of operators: in the run of the whole batch
        self._times: Counter[Key] = Counter()  # how often this run has made a value so far
        self._whole_times: Counter[Key] = Counter()
        self._is_whole = False
        self._follows_operators = False
        self._noted.follower = self

    @contextmanager
    def run(self, sink: Sink | None, *, is_whole: bool = False, operators: bool = False) -> Iterator[None]:
        """One run of the program; without a sink it only compiles, and shows the order of its operators."""
        self._sink = sink or _Ignored()
        self._is_whole, self._follows_operators = is_whole, operators
        self._calls, self._operators, self._times = {}, [], Counter()
        try:
            yield
        finally:
            if is_whole:
                self._whole_operators, self._whole_times = self._operators, self._times
            elif sink is None:
                self._places = matched_tokens(self._operators, self._whole_operators)
            self._sink = _Ignored()

    # -- graphs ------------------------------------------------------------------------------------------

    def graph_call(self, graph_call: GraphCall, inputs: Sequence[Any]) -> None:
        super().graph_call(graph_call, inputs)
        state = self.state_of(graph_call.index)
        if state is None:
            return
        with self._contained_here("the call of a graph"):
            graph = graph_call.graph
            found = self._of_path.get(graph.path)
            if found is None:
                forward = self._forward.get(graph.compile_id) if graph.direction == "backward" else None
                found = self._of_path[graph.path] = _GraphKeys(state.lowered, forward)
            if graph.direction != "backward":
                self._forward[graph.compile_id] = found
            number = len(self._calls)
            self._calls[graph_call.index] = number, found
            if self._is_whole:
                self._whole.append(found)
            placeholders = [node for node in found.nodes if node.op == "placeholder"]
            made = []
            for node, value in zip(placeholders, inputs, strict=False):
                if isinstance(value, torch.Tensor) and why_not(value) is None:
                    key, is_certain = self.key_of(graph_call.index, node)
                    storage = BUS.storages.of(value).id
                    made.append(Made(key, is_certain, value, value, storage, f"{graph.name} {node.name}"))
            self._sink.entered([each for each in self._told_apart(made) if each.key is not None])

    def key_of(self, graph_call: int, node: Any) -> tuple[Key | None, bool]:
        """What a node of this graph call is called in the run of the whole batch."""
        if graph_call not in self._calls:
            return None, False
        number, keys = self._calls[graph_call]
        if self._is_whole:
            return ("graph", number, node.name), True
        if number >= len(self._whole):
            return None, False
        whole = self._whole[number]
        if whole is keys:
            return ("graph", number, node.name), True
        pair = id(keys), id(whole)
        if pair not in self._matches:
            self._matches[pair] = matched(keys.nodes, keys.keys, whole.nodes, whole.keys)
        other, is_certain = self._matches[pair].get(node, (None, False))
        return (None, False) if other is None else (("graph", number, other.name), is_certain)

    def is_same_guess(self, key: Key, state: GraphCallState, buffer: str) -> bool:
        """Of a buffer whose node is a guess: whether it is made of the same nodes in the whole batch's run.

        So it is with the inputs of a custom operator, which may be copies for which no node stands.
        """
        keys = self._of_path[state.lowered.path].keys if state.lowered.path in self._of_path else {}
        origins = state.lowered.origins.get(state.source_of(buffer) or buffer, ())
        made_of = frozenset(keys[node] for node in origins if node in keys)
        if self._is_whole:
            self._guessed[key] = made_of
        return bool(made_of) and self._guessed.get(key) == made_of

    # -- launches ----------------------------------------------------------------------------------------

    def take(self, launch: Launch, made: list[Made], code: Code, *, is_random: bool) -> None:
        """A launch is over; `made` are those of its results that have a node."""
        point = launch.point
        written = {launch.storages[position].id for _, position in point.outputs}
        written |= {storage.id for storage in launch.storages[len(point.tensors) :]}
        pairs = zip(point.tensors, launch.storages, strict=False)
        reads = tuple(storage.id for i, storage in pairs if launch.site.args[i].role != "out")
        partly = {launch.storages[position].id for i, position in point.outputs if _is_part(launch.flat[i])}
        self._sink.launched(
            Launched(
                code, reads, tuple(sorted(written)), frozenset(partly), self._told_apart(made), is_random,
                bool(reads),
            )
        )  # fmt: skip

    def _told_apart(self, made: list[Made]) -> list[Made]:
        """A value may be made several times, as by the kernel that copies it into a larger buffer."""
        found = []
        for each in made:
            if each.key is not None:
                time = self._times[each.key]
                self._times[each.key] += 1
                if not self._is_whole:
                    time = min(time, self._whole_times[each.key] - 1)
                each = replace(each, key=(each.key, time))
            found.append(each)
        return found

    def before(self, launch: Launch) -> Any:
        if self.state_of(launch.graph_call) is not None:
            return super().before(launch)
        if self._follows_operators and launch.outer is None and launch.site.kernel.producer == "eager":
            return launch
        return None

    def after(self, launch: Launch, pending: Any) -> None:
        if not isinstance(pending, Launch):
            super().after(launch, pending)
            return
        if launch.error is None:
            with self._contained_here(launch.site.kernel.name), self.apart():
                self._take_operator(launch)

    def _take_operator(self, launch: Launch) -> None:
        place = len(self._operators)
        self._operators.append(_token(launch))
        key, is_certain = (place, True) if self._is_whole else self._places.get(place, (None, False))
        written = [(launch.flat[i], launch.site.args[i].name) for i in sorted(launch.point.written)]
        returned = [(t, f"result{i}" if i else "result") for i, t in enumerate(launch.returned)]
        made = []
        for number, (tensor, name) in enumerate([*written, *returned]):
            if why_not(tensor) is None:
                found = None if key is None else ("operator", key, number)
                made.append(Made(found, is_certain, tensor, tensor, BUS.storages.of(tensor).id, name))
        is_drawn = draws_from_generator(launch.func, launch.args, launch.kwargs)
        self.take(launch, made, code_of(launch, "", (), launch.flat), is_random=bool(is_drawn))

    @contextmanager
    def _contained_here(self, where: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.result.fail(where, error)


class _Launches(LaunchCheck):
    """Passes on what each launch of compiled code leaves; nothing is computed again."""

    follower: Following

    def __init__(self) -> None:
        super().__init__(ShadowResult(), offload=False)
        self.poisons = False

    def wants(self, launch: Launch, pending: Pending) -> bool:
        return False

    def after(self, launch: Launch, pending: Pending) -> None:
        super().after(launch, pending)
        follower, state, nodes = self.follower, pending.state, pending.nodes
        tensors, made = made_outputs(launch, pending), []
        guessed = Counter(output.node for output in nodes.outputs if output.is_guess)
        for output in nodes.outputs:
            node, tensor = output.held or output.node, tensors[output.name]
            if not isinstance(tensor, torch.Tensor) or why_not(tensor) is not None:
                continue
            key, is_certain = self._key(launch, state, node)
            if output.is_guess and key is not None:
                is_same = follower.is_same_guess(key, state, output.name)
                is_certain &= is_same and guessed[output.node] == 1 and not _is_reduction(output.node)
            view = shaped(tensor, node, state.symbols) if is_value_of(node, tensor, state.symbols) else tensor
            made.append(Made(key, is_certain, view, tensor, BUS.storages.of(tensor).id, output.argument))
        computed = tuple(node.name for node in nodes.order)
        is_drawn = nodes.given or any(map(is_random, nodes.order))
        given = [value for node in nodes.order for value in tree_leaves((node.args, node.kwargs))]
        follower.take(launch, made, code_of(launch, state.name, computed, given), is_random=is_drawn)

    def _key(self, launch: Launch, state: GraphCallState, node: Any) -> tuple[Key | None, bool]:
        if self.follower.state_of(launch.graph_call) is not state:
            return None, False  # in the body of a branch or loop, which may run several times
        return self.follower.key_of(launch.graph_call, node)


def _is_reduction(node: Any) -> bool:
    """Whether it has fewer dimensions than an input, or one of a single element instead.

    Its kernel may leave a last step, such as a division by the number of rows, to the readers of its result.
    """
    made = value_of(node)
    return any(
        isinstance(given := value_of(each), torch.Tensor)
        and isinstance(made, torch.Tensor)
        and _is_less(made, given)
        for each in node.all_input_nodes
    )


def _is_less(made: torch.Tensor, given: torch.Tensor) -> bool:
    pairs = zip(map(str, made.shape), map(str, given.shape), strict=False)
    return made.dim() < given.dim() or (made.dim() == given.dim() and any(m == "1" != g for m, g in pairs))


def _is_part(tensor: torch.Tensor) -> bool:
    """Whether its memory holds more than its elements."""
    return tensor.numel() * tensor.element_size() < tensor.untyped_storage().nbytes()


def _token(launch: Launch) -> Key:
    """What an operator is known by, whatever the number of rows."""
    site = launch.site
    # Without the number of dimensions: torch drops one where there is a single row.
    forms = tuple(str(a.tensor.dtype) for a in site.args if a.tensor is not None)
    line = site.origin[0].line if site.origin else 0
    return site.kernel.name, launch.phase, forms, line
