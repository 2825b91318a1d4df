"""Random numbers on both sides of a step: the same ones are given to both.

`aten.rand` in the joint graph becomes `prims.inductor_random` of a seed, so the n-th draw of one graph
belongs to the n-th of the other, where kind and size agree. Operators that draw inside (attention with
dropout, `multinomial`) stay what they are: both sides evaluate the n-th of them with the same generator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelscope.shadowing.generator_state import seeded
from kernelscope.shadowing.reference.graph_walk import concrete_shape
from kernelscope.shadowing.reference.node_kinds import (
    RANDINT,
    RANDOM,
    SEEDS,
    aten,
    draws_from_generator,
    is_given,
    saves_generator,
    value_of,
)

Drawn = dict[str, Any]  # by the name of the node: numbers, or `Seeded`
_KINDS = {"rand": "rand", "rand_like": "rand", "randn": "randn", "randn_like": "randn"}
# The first saves the state, and need not draw; the second gets it, where the forward graph has saved one.
_WITH_AN_OPERATOR = ("run_and_save_rng_state", "run_with_rng_state")
_INTEGERS = ("randint", "randint_like", "randperm")


@dataclass(frozen=True, slots=True)
class Seeded:
    """In place of numbers that an operator draws inside: it is evaluated with this seed."""

    number: int


def pair(old: GraphModule, new: GraphModule, symbols: Mapping[str, Any]) -> tuple[Drawn, Drawn]:
    """The numbers that each side draws; what has no counterpart is missing, and not evaluated."""
    olds, news = drawing_nodes(old), drawing_nodes(new)
    drawn: tuple[Drawn, Drawn] = {}, {}
    generator = torch.Generator().manual_seed(2)
    for kind in ("seeds", "rand", "randn", "integers"):
        ours, theirs = ([n for n in nodes if _kind(n) == kind] for nodes in (olds, news))
        if kind != "seeds" and not _is_of_seeds(ours) and not _is_of_seeds(theirs):
            pass  # drawn without a seed on both sides
        elif kind != "seeds" and _is_of_seeds(ours) == _is_of_seeds(theirs):
            continue  # computed from the seeds on both sides
        if len(ours) != len(theirs):
            continue
        for one, other in zip(ours, theirs, strict=True):
            if saves_generator(one) or saves_generator(other):
                _draw_saved((one, other), drawn, len(drawn[0]))
                continue
            value = _value(one, kind, symbols, generator)
            if value is not None and _shape(one, symbols) == _shape(other, symbols):
                drawn[0][one.name], drawn[1][other.name] = value, value.to(value_of(other).dtype)
    ours, theirs = seeded_nodes(old), seeded_nodes(new)
    if [n.target for n in ours] == [n.target for n in theirs]:
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            drawn[0][one.name] = drawn[1][other.name] = Seeded(number)
    return drawn


def _draw_saved(nodes: tuple[Node, Node], drawn: tuple[Drawn, Drawn], seed: int) -> None:
    """Numbers with the state of the generator that they come from: a later node draws them again from it."""
    saving: Node = next(node for node in nodes if saves_generator(node))
    operator: Any = saving.target
    if any(isinstance(part, Node) for part in saving.args):
        return
    with seeded(seed):
        state, value = operator(*saving.args, **saving.kwargs)
    for node, found in zip(nodes, drawn, strict=True):
        found[node.name] = (state, value) if saves_generator(node) else value


def draws_inside(target: Any, args: Any, kwargs: Any) -> bool:
    """From torch's generators, numbers that it does not return."""
    is_plain = getattr(target, "namespace", "") in ("aten", "prims") and target is not SEEDS
    if not is_plain or target._schema.is_mutable:
        return False
    return draws_from_generator(target, args, kwargs) and not kind_of_draw(target)


def seeded_nodes(graph: GraphModule) -> list[Node]:
    return [node for node in graph.graph.nodes if draws_inside(node.target, node.args, node.kwargs)]


def draws_unknown(node: Node) -> bool:
    """Whether it draws random numbers from a state of its own."""
    name = str(getattr(node.target, "_name", ""))
    is_hidden = "rng_state" in name and name not in _WITH_AN_OPERATOR
    return is_hidden or is_given(node) or node.target is aten.bernoulli.p


def draws(graph: GraphModule) -> bool:
    return any(draws_unknown(node) or _kind(node) for node in graph.graph.nodes)


def drawing_nodes(graph: GraphModule) -> list[Node]:
    return [node for node in graph.graph.nodes if _kind(node)]


def _kind(node: Node) -> str:
    if saves_generator(node):
        return "seeds" if node.args[0] is SEEDS else kind_of_draw(node.args[0])
    if node.target is SEEDS:
        return "seeds"
    if node.target is RANDOM:
        return "randn" if node.args[2] == "randn" else "rand"
    if node.target is RANDINT:
        return "integers"
    return kind_of_draw(node.target)


def kind_of_draw(target: Any) -> str:
    """Of an operator whose numbers depend on nothing but the generator; else empty."""
    if getattr(target, "namespace", "") != "aten":
        return ""
    name = str(getattr(target.overloadpacket, "__name__", ""))
    return _KINDS.get(name) or ("integers" if name in _INTEGERS else "")


def _is_of_seeds(nodes: Sequence[Node]) -> bool:
    return any(node.target in (RANDOM, RANDINT) for node in nodes)


def _shape(node: Node, symbols: Mapping[str, Any]) -> tuple[int, ...] | None:
    fake = value_of(node)
    try:
        return concrete_shape(fake, symbols) if isinstance(fake, torch.Tensor) else None
    except KeyError:  # a size that is not known
        return None


def _value(node: Node, kind: str, symbols: Mapping[str, Any], generator: torch.Generator) -> Any:
    fake, shape = value_of(node), _shape(node, symbols)
    if shape is None:
        return None
    if kind == "seeds":
        made = torch.randint(0, 1 << 31, shape, generator=generator)
    elif kind == "integers":
        bounds = [part for part in node.args if isinstance(part, int)]
        if not bounds or any(isinstance(part, Node) for part in node.args[1:]):
            return None
        name = str(node.target)
        if "randperm" in name:
            made = torch.randperm(bounds[0], generator=generator)
        else:
            low, high = (bounds[0], bounds[1]) if len(bounds) > 1 and "low" in name else (0, bounds[0])
            low, high = (bounds[0], bounds[1]) if node.target is RANDINT else (low, high)
            made = torch.randint(low, high, shape, generator=generator)
    else:
        made = (torch.randn if kind == "randn" else torch.rand)(shape, generator=generator)
    return made.to(fake.dtype).to(fake.device)
