"""Which node of one graph is which node of another: two graphs of the same function at other batch sizes.

A node is known by what it computes: its operator and, in the same way, its arguments. Numbers are left out,
because sizes are among them. Where an operator was decomposed otherwise, what follows is matched by operator,
dtype and line, in order.
"""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch.fx import Node

Key = Hashable


def node_keys(nodes: Sequence[Node], placeholder: Callable[[str], Key | None]) -> dict[Node, Key]:
    """By node: the same for nodes that compute the same; sizes have none.

    `placeholder` tells what an input of a backward graph is, by its name.
    """
    keys: dict[Node, Key] = {}
    inputs = 0
    for node in nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | int | float):
            continue
        if node.op == "placeholder":
            known = placeholder(str(node.target))
            keys[node] = hash(("input", inputs if known is None else known, _form(value)))
            inputs += 1
        elif node.op == "get_attr":
            keys[node] = hash(("constant", str(node.target), _form(value)))
        elif node.op != "output":
            keys[node] = hash((str(node.target), _frozen((node.args, node.kwargs), keys), _form(value)))
    return keys


def _form(value: Any) -> Key:
    return (str(value.dtype), value.dim()) if isinstance(value, torch.Tensor) else type(value).__name__


def _frozen(part: Any, keys: dict[Node, Key]) -> Key:
    if isinstance(part, Node):
        return keys.get(part, "number")
    if isinstance(part, tuple | list):
        if all(_is_number(each, keys) for each in part):
            return "numbers"  # a shape
        return tuple(_frozen(each, keys) for each in part)
    if isinstance(part, dict):
        return tuple((str(k), _frozen(v, keys)) for k, v in part.items())
    if isinstance(part, bool) or part is None:
        return str(part)
    return "number" if isinstance(part, int | float | torch.SymInt | torch.SymFloat) else str(part)


def _is_number(part: Any, keys: dict[Node, Key]) -> bool:
    if isinstance(part, Node):
        return part not in keys
    return isinstance(part, int | float | torch.SymInt) and not isinstance(part, bool)


def matched(
    nodes: Sequence[Node], keys: dict[Node, Key], others: Sequence[Node], other_keys: dict[Node, Key]
) -> dict[Node, tuple[Node, bool]]:
    """By node: its counterpart, and whether that is certain."""
    by_key: dict[Key, list[Node]] = defaultdict(list)
    for other in others:
        if other in other_keys:
            by_key[other_keys[other]].append(other)
    found: dict[Node, tuple[Node, bool]] = {}
    for node in nodes:
        if node in keys and by_key[keys[node]]:
            found[node] = by_key[keys[node]].pop(0), True
    # What a graph returns, it returns in the same order however it was computed.
    results, other_results = _results(nodes), _results(others)
    taken = {other for other, _ in found.values()}
    if len(results) == len(other_results):
        for result, counterpart in zip(results, other_results, strict=True):
            if result is None or counterpart is None or result in found or counterpart in taken:
                continue
            is_known = result in keys and counterpart in other_keys
            if is_known and _form_of(result) == _form_of(counterpart):
                found[result] = counterpart, True
                taken.add(counterpart)
    left = [n for n in nodes if n in keys and n not in found]
    right = [n for n in others if n in other_keys and n not in taken]
    tokens, other_tokens = [*map(_token, left)], [*map(_token, right)]
    matcher = difflib.SequenceMatcher(None, tokens, other_tokens, autojunk=False)
    for i, j, count in matcher.get_matching_blocks():
        found |= {left[i + k]: (right[j + k], False) for k in range(count)}
    return found


def _results(nodes: Sequence[Node]) -> list[Node | None]:
    last = nodes[-1] if nodes and nodes[-1].op == "output" else None
    given = last.args[0] if last is not None else ()
    found = given if isinstance(given, tuple | list) else (given,)
    return [each if isinstance(each, Node) else None for each in found]


def _form_of(node: Node) -> Key:
    return _form(node.meta.get("val"))


def matched_tokens(tokens: Sequence[Key], others: Sequence[Key]) -> dict[int, tuple[int, bool]]:
    """By place in one sequence: the place of the same token in the other, and whether that is certain."""
    if list(tokens) == list(others):
        return {i: (i, True) for i in range(len(tokens))}
    often = {token for sequence in (tokens, others) for token, n in Counter(sequence).items() if n > 1}
    matcher = difflib.SequenceMatcher(None, list(tokens), list(others), autojunk=False)
    return {
        i + k: (j + k, tokens[i + k] not in often)
        for i, j, count in matcher.get_matching_blocks()
        for k in range(count)
    }


def _token(node: Node) -> Key:
    trace = str(node.meta.get("stack_trace") or "")
    return (
        str(node.target) if node.op != "placeholder" else "input",
        _form(node.meta.get("val")),
        trace[-200:],
    )
