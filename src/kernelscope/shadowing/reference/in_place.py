"""Writes in the middle of a graph: nodes that change what an earlier node's value is.

After Inductor's passes a graph is not functional any more. `copy_(slice(x), y)`, and operators that write to
their arguments, change x: what reads x further down reads what was written. This x is a base here, and
its writers are counted: its version is how many of them are done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from .node_kinds import base_of, hides_its_writes, is_copy, is_user_kernel, returned_target, writes


@dataclass(slots=True)
class InPlace:
    """Of one graph, and of the wrapper that it became."""

    writers: dict[Node, list[Node]] = field(default_factory=dict)  # by base, in the order of the graph
    variables: dict[Node, str] = field(default_factory=dict)  # the wrapper's name of a base
    views: dict[str, Node] = field(default_factory=dict)  # by variable that is a view: the base it writes to
    forms: dict[str, Node] = field(default_factory=dict)  # by variable of a base: the view of it that it has
    lines: dict[Node, list[int]] = field(default_factory=dict)  # of the wrapper, that write to it
    place: dict[Node, int] = field(default_factory=dict)  # in the graph
    results: dict[Node, Node] = field(default_factory=dict)  # by writer that returns what it wrote to: that

    def base_in(self, variable: str) -> Node | None:
        found = next((base for base, name in self.variables.items() if name == variable), None)
        return found or self.views.get(variable)

    def node_in(self, variable: str, base: Node) -> Node:
        """Whose value the variable of a base has: of one that is computed only in another form, a view."""
        return self.forms.get(variable, base)

    def is_made_at(self, base: Node, line: int) -> bool:
        """Whether the launch there computes the base, rather than changing it."""
        return self.is_nowhere(base) or (base.op != "placeholder" and self.lines.get(base, [])[:1] == [line])

    def is_nowhere(self, base: Node) -> bool:
        """No variable has it: Inductor computes the parts that are written, and the rest where it is read."""
        return base.op != "placeholder" and base not in self.variables

    def versions(self, base: Node, line: int) -> tuple[int, int] | None:
        """Of the base before and after the launch at this line; None: unknown.

        One that is nowhere has to be made and written to again wherever it is needed.
        """
        if self.is_nowhere(base):
            return 0, len(self.writers[base])
        lines, count = self.lines.get(base, []), len(self.writers[base])
        own = lines if base.op == "placeholder" else lines[1:]
        if not own:  # made and written to by one kernel
            return (0, count) if line in lines else (count, count) if lines and line > lines[0] else (0, 0)
        if len(own) == 1:
            each = [count]
        elif len(own) == count:
            each = [1] * count
        else:
            return (0, 0) if line < own[0] else (count, count) if line > own[-1] else None
        done = sum(n for n, at in zip(each, own, strict=True) if at < line)
        return done, done + sum(n for n, at in zip(each, own, strict=True) if at == line)

    def needed_by(self, node: Node) -> Iterable[tuple[Node, int]]:
        """The bases that a node reads, with the version that it reads."""
        for base in {b: None for i in node.all_input_nodes if (b := self.memory_of(i)) in self.writers}:
            yield base, sum(self.place[w] < self.place[node] for w in self.writers[base])

    def memory_of(self, node: Node) -> Node:
        """The node whose memory it is a view of: `squeeze(index_put_(empty, …))` lies in that of `empty`."""
        while (node := base_of(node)) not in self.writers and node in self.results:
            node = self.results[node]
        return node

    def finished_before(self, line: int) -> set[Node]:
        """The writers whose launches are over by this line: what they return is what their base is now."""
        return {
            writer
            for base, by in self.writers.items()
            if (span := self.versions(base, line)) is not None
            for writer in by[: span[0]]
            if writer in self.results
        }


def find_writers(nodes: Sequence[Node]) -> InPlace:
    """The bases of a graph. What is written as a whole, at the end, is a result like any other."""
    found = InPlace(place={node: i for i, node in enumerate(nodes)})
    written: dict[Node, list[Node]] = {}
    hidden: set[Node] = set()
    for node in nodes:
        if is_user_kernel(node):
            continue  # has a way of its own
        for target in writes(node):
            base = base_of(target)
            if is_copy(node) and node.args[1] is target:
                continue  # what was written in place, once more
            written.setdefault(base, []).append(node)
            if target is not base or hides_its_writes(node):
                hidden.add(base)
    for base, by in written.items():
        if base in hidden or _is_read_after(base, by[0], found.place):
            found.writers[base] = list(dict.fromkeys(by))
    for writer in (writer for by in found.writers.values() for writer in by):
        if (returned := returned_target(writer)) is not None:
            found.results[writer] = returned
    return found


def _is_read_after(base: Node, writer: Node, place: Mapping[Node, int]) -> bool:
    todo, seen = [base], {base}
    while todo:
        for user in todo.pop().users:
            if base_of(user) is base and user is not writer:
                if user not in seen:
                    seen.add(user)
                    todo.append(user)
            elif place.get(user, -1) > place[writer] and not _copies_itself(user):
                return True
    return False


def _copies_itself(node: Node) -> bool:
    return is_copy(node) and node.args[0] is node.args[1]


def find_variables(
    found: InPlace,
    mutates: Mapping[str, str],
    origins: Mapping[str, tuple[Any, ...]],
    nodes: Mapping[str, Node],
    lines: Mapping[str, list[int]],
    made: Mapping[Node, int],
    inputs: Mapping[str, Node],
) -> None:
    """Which variable of the wrapper a base is in, and the lines that write to it.

    Where ATen is left to do everything, as for complex numbers, views are variables too: `buf9 =
    torch.ops.aten.diagonal.default(buf1)`. A write to `buf9` is one to the base in `buf1`.
    """
    given = {node: name for name, node in inputs.items()}  # a body has names of its own for what it is given
    for base, writers in found.writers.items():
        names = {n for w in writers for n in _written_by(w, base, mutates, origins)}
        views = {n for n in names if (node := nodes.get(n)) is not base and node and base_of(node) is base}
        holders = [name for name, node in nodes.items() if node is base]
        if base.op == "placeholder":
            name = given.get(base, str(base.target))
        elif views and names == views and (base in made or any(each in lines for each in holders)):
            name = holders[-1] if holders else ""
        elif len(names) == 1 and names == views:  # the base itself is in no variable
            name = names.pop()
            found.forms[name] = nodes[name]
        else:
            name = names.pop() if len(names) == 1 else ""
        if name:
            found.variables[base] = name
            found.views |= dict.fromkeys(views, base)
            own = {line for each in {name, *views} for line in lines.get(each, ())}
            if views and not any(each in lines for each in holders) and base in made:
                own.add(made[base])  # by an operator that returned it
            found.lines[base] = sorted(own)


def _written_by(
    writer: Node, base: Node, mutates: Mapping[str, str], origins: Mapping[str, tuple[Any, ...]]
) -> list[str]:
    """The variables that lowering gave a writer for this base: one for each that it writes, in order."""
    names = [real for buffer, real in mutates.items() if writer in origins.get(buffer, ())]
    bases = [base_of(target) for target in writes(writer)]
    if len(names) == len(bases):
        return [name for name, each in zip(names, bases, strict=True) if each is base]
    return list(dict.fromkeys(names))
