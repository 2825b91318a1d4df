"""What is not the value of any node: the inputs of its kernel are kept for whoever goes on with it.

A kernel that reads it is judged from those inputs. Where the graph returns it, that result is judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Node

from kernelscope.probes.launch import Launch
from kernelscope.shadowing.culprit import Culprit, culprit_of
from kernelscope.shadowing.graph_call_state import GraphCallState
from kernelscope.shadowing.reference.evaluate import CannotEvaluate, Reference
from kernelscope.shadowing.reference.graph_walk import concrete_shape, shaped, stop_at, walk
from kernelscope.shadowing.reference.launch_nodes import given_values
from kernelscope.shadowing.reference.node_kinds import results_of, value_of
from kernelscope.shadowing.reference.places import Memories
from kernelscope.shadowing.reference.small_errors.rounding import Rounding

from .judge import judge, why_not_comparable
from .verdict_record import Verdict

Key = tuple[int, str]  # graph and buffer


@dataclass(frozen=True, slots=True)
class _Doubt:
    culprit: Culprit
    read: frozenset[Key]  # doubtful buffers that its own kernel was given


class Doubts:
    """Buffers that do not hold what their origins suggest, until a reader has decided: right, if that is."""

    def __init__(self) -> None:
        self._found: dict[Key, _Doubt] = {}
        self.blamed: set[Key] = set()

    def add(self, key: Key, culprit: Culprit, read: Iterable[Key]) -> None:
        self._found[key] = _Doubt(culprit, frozenset(read))

    def of(self, keys: Iterable[Key]) -> list[Culprit]:
        """Who is to blame if a reader of these is wrong, with those whose doubtful results went into them."""
        known = [key for key in dict.fromkeys(keys) if key in self._found]
        found = [self._found[key] for key in known]
        self.blamed |= {*known}.union(*(doubt.read for doubt in found))
        return [replace(d.culprit, joined=tuple(dict.fromkeys(self._joined(d)))) for d in found]

    def _joined(self, doubt: _Doubt) -> list[str]:
        earlier = [self._found[key] for key in sorted(doubt.read) if key in self._found]
        names = [name for each in earlier for name in (each.culprit.kernel_name, *self._joined(each))]
        return [name for name in (*doubt.culprit.joined, *names) if name != doubt.culprit.kernel_name]

    def settle(self, keys: Iterable[Key]) -> None:
        """A reader of these is right, so they are too, and what they were made of."""
        for key in keys:
            if (doubt := self._found.pop(key, None)) is not None:
                self.settle(doubt.read)

    def blamed_since(self, launch: int) -> Culprit | None:
        """A function is wrong, and nothing that was decided explains it: the first of the rest."""
        rest = [(k, d.culprit) for k, d in self._found.items() if k not in self.blamed]
        rest = sorted((each for each in rest if each[1].index >= launch), key=lambda each: each[1].index)
        if not rest:
            return None
        self.blamed |= {key for key, _ in rest}
        first, names = rest[0][1], [name for _, c in rest for name in (c.kernel_name, *c.joined)]
        others = [name for name in dict.fromkeys(names) if name != first.kernel_name]
        return replace(first, joined=tuple(others))

    def unsettled(self) -> set[Key]:
        """Buffers of which no reader has shown that they hold something else than was guessed."""
        return set(self._found)

    def open(self) -> list[Culprit]:
        return [doubt.culprit for key, doubt in self._found.items() if key not in self.blamed]


def all_inputs(launch: Launch, state: GraphCallState, memories: Memories) -> dict[Node, torch.Tensor]:
    """All that this kernel was given, for the kernels that go on with its unfinished results."""
    found: dict[Node, torch.Tensor] = {}
    for name in given_values(launch, state):
        node, value = state.holds.node(name), state.holds.read(name, memories)
        if node is not None and value is not None:
            alike: dict[Node, str] = {}  # a reader may need it in the form that it had before a reshape
            for each in (node, *state.lowered.same.get(node, ())):
                stop_at(alike, each, name)
            found |= {each: shaped(value, each, state.symbols) for each in alike}
        found |= state.carried.get(name, {})
    return found


def maker_of(launch: Launch, index: int, state: GraphCallState, name: str) -> Culprit:
    """Who is to blame if a result that is made of this piece is wrong."""
    argument = next((a.name for a in launch.site.args if a.wrapper_name == name), "result")
    makers = [m for each in (name, *given_values(launch, state)) for m in state.makers.get(each, ())]
    joined = tuple(m for m in dict.fromkeys(makers) if m != launch.site.kernel.name)
    about = {"argument": argument, "buffer": name, "graph": state.name, "joined": joined}
    return culprit_of(launch, index, "wrong-kernel", "", **about)


def found_apart(
    culprits: Sequence[Culprit], wrong: set[str], note: Callable[[str], None]
) -> Iterator[Culprit]:
    """Without those that were judged together with one of the kernels that are known to be wrong."""
    for culprit in culprits:
        makers = [name for name in culprit.joined if name in wrong]
        if makers and culprit.kernel_name not in wrong:
            about = f"{culprit.kernel_name} reads results of {makers[0]}, which is wrong"
            note(f"{about}, and could not be judged without it.")
        else:
            wrong.add(culprit.kernel_name)
            yield culprit


def made_by_part(culprit: Culprit, state: GraphCallState, alive: Mapping[str, Any]) -> Culprit:
    """Of a value that several kernels wrote, part by part: the one that wrote the wrong element."""
    whole, place = alive.get(culprit.buffer), culprit.where
    if place is None or not isinstance(whole, torch.Tensor) or len(place) != whole.dim():
        return culprit
    names = [name for name in state.holds.pieces_in(whole[tuple(place)]) if name in state.pieces]
    if not names:  # the last of them, in this launch
        return culprit
    maker = state.pieces[names[-1]]
    return replace(
        maker, reason=culprit.reason, buffer=culprit.buffer, node=culprit.node, nodes=culprit.nodes,
        where=place, numbers=culprit.numbers,
    )  # fmt: skip


def judged_results(
    state: GraphCallState, results: Sequence[Any], *, offload: bool
) -> Iterator[tuple[list[Culprit], bool]]:
    """Who made the pieces in whose memory a result of the graph lies, and whether that result is wrong."""
    nodes = results_of(state.lowered.module)
    if not state.pieces or len(nodes) != len(results):
        return
    for node, result in zip(nodes, results, strict=True):
        if not isinstance(node, Node):
            continue
        names = [n for n in state.holds.pieces_in(result) if n in state.pieces and n in state.carried]
        if not names or any(state.whole_of(name) in state.holds for name in names):
            continue
        given = {n: v for name in names for n, v in state.carried[name].items()}
        order, leaves, missing = walk([node], {*given}, state.overwritten)
        if missing or any(state.in_place.memory_of(n) in state.in_place.writers for n in (*order, *leaves)):
            continue  # a write in the middle of the graph belongs to a launch, which is over
        reference = Reference(
            state.lowered.module, state.symbols, state.in_place, offload=offload,
            triton=any(state.pieces[name].kind == "triton" for name in names),
        )  # fmt: skip
        try:
            verdict = _verdict(reference, order, given, node, result)
        except CannotEvaluate:  # their kernels stay unjudged
            continue
        if verdict is not None:
            why, where, numbers = verdict.reason, verdict.where, verdict.numbers
            makers = [state.pieces[name] for name in names]
            yield [replace(m, reason=why, where=where, numbers=numbers) for m in makers], verdict.is_wrong


def _verdict(
    reference: Reference, order: Sequence[Node], given: Mapping[Node, Any], node: Node, result: torch.Tensor
) -> Verdict | None:
    values = reference.same(order, given)
    eager = values[node]
    if why_not_comparable(result, eager):
        return None
    made, undefined = result.to(eager.device), reference.undefined(order, given, values, node)
    generator, rounding = torch.Generator().manual_seed(0), Rounding.of(order)

    def defined(value: torch.Tensor) -> torch.Tensor:
        return value if undefined is None else torch.where(undefined, eager.to(value.dtype), value)

    return judge(
        defined(made),
        eager,
        lambda: defined(reference.double(order, given)[node]),
        lambda: defined(reference.jittered(order, given, generator)[node]),
        rounding.eps(made.dtype),
        adds=rounding.adds,
        signed_zeros=rounding.signed_zeros,
        unwritten=lambda: reference.unwritten(order, given, eager, node),
    )


def made_up(
    nodes: Sequence[Node], which: int, symbols: Mapping[str, Any], *, offload: bool
) -> dict[Node, Any]:
    """In place of values that are not known: one of three, none of which a result may depend on."""

    def value(fake: Any) -> Any:
        if isinstance(fake, tuple | list):  # of an operator with several results
            return type(fake)(map(value, fake))
        if not isinstance(fake, torch.Tensor):
            return fake
        device = "cpu" if offload else fake.device
        made = torch.empty(concrete_shape(fake, symbols), dtype=fake.dtype, device=device)
        is_number = made.is_floating_point() or made.is_complex()
        return made.fill_((math.nan, 0.5, -2.0)[which] if is_number else which)

    return {node: value(value_of(node)) for node in nodes}


def differ(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return True
    return one.shape != other.shape or not torch.equal(_bits(one), _bits(other))


def _bits(value: torch.Tensor) -> torch.Tensor:
    """So that NaN is equal to NaN."""
    return value.nan_to_num(nan=12345.0) if value.is_floating_point() else value
