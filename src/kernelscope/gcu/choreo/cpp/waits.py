"""Each asynchronous DMA is waited for exactly once, and its data is not read before."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span
from kernelscope.gcu.choreo.syntax.walk import children, nodes


@dataclass
class _State:
    status: str  # "empty", "pending", "ready", "sync"
    span: Span  # of the DMA
    waited: Span | None = None
    among: tuple[str, ...] = ()  # of a selection: the futures that it may be


_States = dict[str, _State]


def check_waits(function: tree.Function) -> None:
    states: _States = {}
    _block(function.body, states)
    _leave(states, set())


def _block(block: tree.Block, states: _States) -> None:
    before = set(states)
    for each in block:
        _statement(each, states)
    _leave(states, before)


def _leave(states: _States, keep: set[str]) -> None:
    for name in [n for n in states if n not in keep]:
        state = states.pop(name)
        if state.status == "pending":
            raise ChoreoError(f"the asynchronous DMA `{name}` is never waited for", state.span)


def _statement(each: tree.Stmt, states: _States) -> None:
    match each:
        case tree.Assign(value=tree.Dma() as dma):
            _reads(dma, states)
            old = states.get(each.name)
            if old is not None and old.status == "pending":
                raise ChoreoError(
                    f"`{each.name}` is filled again while its DMA has not been waited for", each.span
                )
            status = "empty" if dma.kind == "any" else "pending" if dma.is_async else "sync"
            states[each.name] = _State(status, each.span)
        case tree.Assign(value=tree.Builtin(name="select") as chosen):
            _reads(chosen, states)
            among = tuple(a.id for a in chosen.args[1:] if isinstance(a, tree.Name) and a.id in states)
            if among:
                states[each.name] = _State("selected", each.span, among=among)
        case tree.Wait():
            for name in each.names:
                _wait(name, each.span, states)
        case tree.Swap():
            for name in (each.first, each.second):
                if name not in states:
                    raise ChoreoError(f"`{name}` is not a future", each.span)
            states[each.first], states[each.second] = states[each.second], states[each.first]
        case tree.If():
            _reads(each.condition, states)
            other = {name: replace(s) for name, s in states.items()}
            _block(each.then, states)
            _block(each.other, other)
            for name, state in other.items():
                if state.status == "pending":
                    states[name] = state
        case tree.Foreach() | tree.While():
            _reads(each.ranges if isinstance(each, tree.Foreach) else each.condition, states)
            _block(each.body, states)
            _block(each.body, states)  # what the first round leaves, the second finds
        case tree.With() | tree.Parallel():
            _block(each.body, states)
        case _:
            for child in children(each):
                _reads(child, states)


def _wait(name: str, span: Span, states: _States) -> None:
    state = states.get(name)
    if state is None:
        raise ChoreoError(f"`{name}` is not a future that could be waited for", span)
    if state.status == "sync":
        raise ChoreoError(f"`{name}` is a synchronous DMA, which is not waited for", span)
    if state.status == "ready":
        first = f", first on line {state.waited.line}" if state.waited else ""
        raise ChoreoError(f"`{name}` is waited for twice{first}", span)
    if state.status == "selected":
        raise ChoreoError(f"`{name}` is a selection; wait for {' and '.join(state.among)}", span)
    if state.status == "empty":
        raise ChoreoError(f"`{name}` holds no DMA that could be waited for", span)
    states[name] = _State("ready", state.span, span)


def _reads(expression: Any, states: _States) -> None:
    for each in nodes(expression):
        if isinstance(each, tree.Member) and each.name == "data" and isinstance(each.of, tree.Name):
            state = states.get(each.of.id)
            for name in state.among if state is not None else ():
                if name in states and states[name].status == "pending":
                    message = f"`{each.of.id}` may be `{name}`, whose data is read before its wait"
                    raise ChoreoError(message, each.of.span)
            if state is not None and state.status == "pending":
                raise ChoreoError(f"the data of `{each.of.id}` is read before its wait", each.of.span)
            if state is not None and state.status == "empty":
                raise ChoreoError(f"`{each.of.id}` holds no data yet", each.of.span)
