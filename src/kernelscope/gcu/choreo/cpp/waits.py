"""Each asynchronous DMA is waited for exactly once, and its data is not read before."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span
from kernelscope.gcu.choreo.syntax.walk import children, nodes, root

from . import under_way
from .under_way import Names

Choices = dict[int, int | None]  # by the id of a selection: which choice it is, where that is known


@dataclass
class _State:
    status: str  # "empty", "pending", "chained", "ready", "sync", "selected"
    span: Span  # of the DMA
    waited: Span | None = None
    among: tuple[str, ...] = ()  # of a selection: the futures that it may be
    chained_to: str = ""  # the DMA that starts after this one
    skipped: bool = False  # whether there is a wait, which a condition can skip
    target: str = ""  # the buffer that is filled as a whole
    fills: tree.Expr | None = None  # the tile that is filled; None: not known, or memory of its own
    copies: tree.Expr | None = None  # the tile that is read
    within: frozenset[str] = frozenset()  # the variables of loops around the DMA


@dataclass
class _Checked:
    events: frozenset[str]
    states: dict[str, _State] = field(default_factory=dict)
    choices: Choices = field(default_factory=dict)
    names: Names = field(default_factory=Names)

    def copy(self) -> _Checked:
        states = {name: replace(s) for name, s in self.states.items()}
        return _Checked(self.events, states, self.choices, self.names.copy())

    def forget(self, changed: set[str]) -> None:
        """Tiles that were named by variables which now have other values."""
        for name, state in self.states.items():
            fills, copies = (_kept(tile, changed) for tile in (state.fills, state.copies))
            self.states[name] = replace(state, fills=fills, copies=copies)
        for name in [n for n, tile in self.names.tiles.items() if under_way.mentions(tile, changed)]:
            del self.names.tiles[name]


def _kept(tile: tree.Expr | None, changed: set[str]) -> tree.Expr | None:
    return None if tile is None or under_way.mentions(tile, changed) else tile


def check_waits(function: tree.Function) -> Choices:
    """Refuse a program that waits wrongly; which future a selection is, where only one is under way."""
    events = frozenset(n.name for n in nodes(function.body) if isinstance(n, tree.DeclareEvent))
    _check_events(function, events)
    found = _Checked(events)
    found.names.shapes.update({p.name: p.dims for p in function.parameters if p.dims is not None})
    _block(function.body, found)
    _leave(found, set())
    return found.choices


def _check_events(function: tree.Function, events: frozenset[str]) -> None:
    triggered = {root(e) for n in nodes(function.body) if isinstance(n, tree.Trigger) for e in n.events}
    for each in nodes(function.body):
        if isinstance(each, tree.Dma) and each.event is not None and root(each.event) not in events:
            raise ChoreoError(f"`{root(each.event) or 'this'}` is not an event", each.event.span)
        if isinstance(each, tree.Trigger):
            wrong = next((e for e in each.events if root(e) not in events), None)
            if wrong is not None:
                raise ChoreoError(f"`{root(wrong) or 'this'}` is not an event", each.span)
        elif isinstance(each, tree.Wait):
            for target in each.targets:
                name = root(target)
                if name in events and name not in triggered:
                    raise ChoreoError(f"event `{name}` is waited for, but nothing triggers it", each.span)


def _block(block: tree.Block, c: _Checked) -> None:
    before = set(c.states)
    for each in block:
        _statement(each, c)
    _leave(c, before)


def _leave(c: _Checked, keep: set[str]) -> None:
    for name in [n for n in c.states if n not in keep]:
        state = c.states.pop(name)
        if state.status == "pending":
            how = "not waited for in every case: a condition can skip its wait"
            how = how if state.skipped else "never waited for"
            raise ChoreoError(f"the asynchronous DMA `{name}` is {how}", state.span)


def _statement(each: tree.Stmt, c: _Checked) -> None:
    match each:
        case tree.Assign(value=tree.Dma() as dma):
            _start(each.name, dma, each.span, c)
        case tree.Do(dma=dma):
            if dma.is_async and dma.event is None:
                message = "nothing can wait for this asynchronous DMA, because it has no name; write `f = …`"
                raise ChoreoError(message, each.span)
            _reads_of_dma(dma, c)
            _chain("", dma, c)
        case tree.Assign(value=tree.Builtin(name="select") as chosen):
            _reads(chosen, c)
            among = _among(chosen, c)
            if among:
                c.states[each.name] = _State("selected", each.span, among=among)
        case tree.Wait():
            for target in each.targets:
                if root(target) not in c.events:
                    _wait_target(target, each.span, c)
        case tree.Swap():
            _turn((each.first, each.second), each.span, c)
        case tree.Rotate():
            _turn(each.names, each.span, c)
        case tree.If() | tree.InThreads():
            _reads(each.condition, c)
            _uses(each.condition, c)
            other = c.copy()
            c.names.conditions += 1
            _block(each.then if isinstance(each, tree.If) else each.body, c)
            c.names.conditions -= 1
            other.names.conditions += 1
            _block(each.other if isinstance(each, tree.If) else (), other)
            for name, state in other.states.items():
                here = c.states.get(name)
                skipped = here is not None and (here.waited is None) != (state.waited is None)
                if state.status == "pending":
                    c.states[name] = state
                if skipped and c.states[name].status == "pending":
                    c.states[name].skipped = True
        case tree.Foreach() | tree.While():
            _reads(each.ranges if isinstance(each, tree.Foreach) else each.condition, c)
            _loop(each, c)
        case tree.With() | tree.Parallel():
            if isinstance(each, tree.With):
                c.names.domains.update(
                    {n: (bind.names, bind.domain) for bind in each.binds for n in bind.names}
                )
            _block(each.body, c)
        case _:
            for child in children(each):
                _reads(child, c)
            _uses(each, c)
            _names(each, c)


def _loop(each: tree.Foreach | tree.While, c: _Checked) -> None:
    changed = under_way.changes(each)
    outer = c.names
    for _ in range(2):  # what the first round leaves, the second finds
        c.forget(changed)
        c.names = c.names.copy()
        if isinstance(each, tree.Foreach):
            under_way.enter(each, c.names)
        else:
            c.names.conditions += 1
        _block(each.body, c)
        c.names = outer
    c.forget(changed)


def _names(each: tree.Stmt, c: _Checked) -> None:
    """What a statement gives a name to."""
    if isinstance(each, tree.DeclareBuffer):
        c.names.shapes[each.name] = each.dims
    if isinstance(each, tree.Assign | tree.DeclareScalar | tree.DeclareBuffer):
        c.forget({each.name})
        c.names.tiles.pop(each.name, None)
    if isinstance(each, tree.Assign) and isinstance(each.value, tree.ChunkAt | tree.Tile | tree.SpanAs):
        tile = c.names.known(each.value)
        if tile is not None:
            c.names.tiles[each.name] = tile


def _start(name: str, dma: tree.Dma, span: Span, c: _Checked) -> None:
    _reads_of_dma(dma, c)
    old = c.states.get(name)
    if old is not None and old.status == "pending":
        raise ChoreoError(f"`{name}` is filled again while its DMA has not been waited for", span)
    status = "empty" if dma.kind == "any" else "pending" if dma.is_async else "sync"
    target = dma.target.id if isinstance(dma.target, tree.Name) else ""
    fills, copies = c.names.known(dma.target), c.names.known(dma.source)
    within = frozenset(c.names.loops)
    c.states[name] = _State(status, span, target=target, fills=fills, copies=copies, within=within)
    _chain(name, dma, c)


def _chain(name: str, dma: tree.Dma, c: _Checked) -> None:
    """`after f`: f has ended when this DMA starts, so waiting for this one is enough."""
    if not dma.after:
        return
    before = c.states.get(dma.after)
    if before is None:
        raise ChoreoError(f"`{dma.after}` is not a future, so nothing can come after it", dma.span)
    if before.status == "empty":
        raise ChoreoError(f"`{dma.after}` holds no DMA, so nothing can come after it", dma.span)
    if before.status == "pending":
        status = "chained" if dma.is_async else "ready"
        c.states[dma.after] = replace(before, status=status, chained_to=name)


def _turn(names: tuple[str, ...], span: Span, c: _Checked) -> None:
    for name in names:
        if name not in c.states:
            message = "only the results of copies can be exchanged: `f = dma.copy … => local;`"
            raise ChoreoError(f"`{name}` is not a future; {message}", span)
    c.forget({*names})  # tiles of what they hold
    moved = [c.states[n] for n in (*names[1:], names[0])]
    c.states.update(zip(names, moved, strict=True))


def _among(chosen: tree.Builtin, c: _Checked) -> tuple[str, ...]:
    """The futures that a selection may be: the one that is under way, if there is just one."""
    names = [a.id for a in chosen.args[1:] if isinstance(a, tree.Name) and a.id in c.states]
    pending = {n for n in names if c.states[n].status == "pending"}
    if len(names) != len(chosen.args) - 1 or len(pending) != 1:
        c.choices[id(chosen)] = None
        return tuple(names)
    one = pending.pop()
    place = names.index(one)
    known = c.choices.get(id(chosen), place)
    c.choices[id(chosen)] = place if known == place else None
    return (one,) if known == place else tuple(names)


def _wait_target(target: tree.Expr, span: Span, c: _Checked) -> None:
    match target:
        case tree.Name():
            _wait(target.id, span, c)
        case tree.Builtin(name="select"):
            _reads(target, c)
            _wait_one(_among(target, c), "this", span, c)
        case _:
            raise ChoreoError("only a future or an event can be waited for", span)


def _wait_one(among: tuple[str, ...], name: str, span: Span, c: _Checked) -> None:
    if len(among) != 1:
        which = " and ".join(among) or "its futures"
        raise ChoreoError(f"`{name}` is a selection; wait for {which}", span)
    _wait(among[0], span, c)


def _wait(name: str, span: Span, c: _Checked) -> None:
    state = c.states.get(name)
    if state is None:
        raise ChoreoError(f"`{name}` is not a future, so it cannot be waited for", span)
    if state.status == "sync":
        raise ChoreoError(f"`{name}` is a synchronous DMA, which is not waited for", span)
    if state.status == "ready":
        first = f", first on line {state.waited.line}" if state.waited else ""
        raise ChoreoError(f"`{name}` is waited for twice{first}", span)
    if state.status == "selected":
        _wait_one(state.among, name, span, c)
        return
    if state.status == "empty":
        raise ChoreoError(f"`{name}` holds no DMA, so it cannot be waited for", span)
    c.states[name] = _State("ready", state.span, span)
    for other, found in c.states.items():
        if found.status == "chained" and found.chained_to == name:
            c.states[other] = _State("ready", found.span, span)


def _reads_of_dma(dma: tree.Dma, c: _Checked) -> None:
    for part in (dma.source, dma.target, *dma.settings):
        if isinstance(part, tree.Expr):
            _reads(part, c, dma.after)
    _uses(dma, c, dma.after)


def _uses(node: Any, c: _Checked, after: str = "") -> None:
    """Complain about tiles that a DMA under way fills, and about writing to what one reads."""
    running = {n: s for n, s in c.states.items() if s.status in ("pending", "chained") and n != after}
    for use in under_way.uses(node) if running else ():
        for future, state in running.items():
            if state.fills is not None and under_way.shares(use, state.fills, c.names, state.within):
                name = root(state.fills)
                message = f"this part of `{name}` is the target of `{future}`, and is used before its wait"
                raise ChoreoError(f"{message}; write `wait {future};` first", use.data.span)
            read = state.copies
            if use.writes and read is not None and under_way.shares(use, read, c.names, state.within):
                message = f"`{root(read)}` is written while the asynchronous DMA `{future}` copies from it"
                raise ChoreoError(f"{message}; write `wait {future};` first", use.data.span)


def _reads(e: Any, c: _Checked, after: str = "") -> None:
    """Complain about data that is read before its DMA has ended; the shape of a future is always known."""
    match e:
        case tree.Member(name="span") | tree.Count():
            return
        case tree.Builtin(name="select"):
            _reads(e.args[0], c, after)
            for choice in e.args[1:]:
                if not isinstance(choice, tree.Name):
                    _reads(choice, c, after)
            return
        case tree.Name():
            _read(e, c, after)
    for child in children(e):
        _reads(child, c, after)


def _read(name: tree.Name, c: _Checked, after: str) -> None:
    for future, filled in c.states.items():
        if filled.target == name.id and filled.status in ("pending", "chained") and future != after:
            message = f"`{name.id}` is the target of `{future}`, and is used before its wait"
            raise ChoreoError(message, name.span)
    state = c.states.get(name.id)
    if state is None or name.id == after:
        return
    for one in state.among:
        if one in c.states and c.states[one].status == "pending":
            message = f"`{name.id}` may be `{one}`, whose data is read before its wait"
            raise ChoreoError(message, name.span)
    if state.status in ("pending", "chained"):
        raise ChoreoError(f"the data of `{name.id}` is read before its wait", name.span)
    if state.status == "empty":
        raise ChoreoError(f"`{name.id}` holds no data yet", name.span)
