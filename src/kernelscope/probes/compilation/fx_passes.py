"""What each of Inductor's FX passes changed, as a diff of the graph."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from kernelscope.probes.patching import Patch

from .compile_context import CompileContext, ours

_OBSERVER = "torch.fx.passes.graph_transform_observer:GraphTransformObserver"
_MOST_LINES = 3000  # of two versions that differ: beyond it, lines are compared as sets


class _Thread(threading.local):
    known: tuple[int, list[Any], str] | None = None  # the graph that was printed last: id, state, text


class FxPasses:
    """Watches the passes that go through torch's `GraphTransformObserver`: nearly all of them."""

    def __init__(self, context: CompileContext) -> None:
        self._context = context
        self._here = _Thread()
        self.patches = [Patch(f"{_OBSERVER}.{name}", self._around) for name in _METHODS]

    def forget(self) -> None:
        self._here = _Thread()

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def apply(observer: Any, pass_function: Any) -> Any:
            with ours("looking at a graph before a pass"):
                self._look(observer.gm.graph)
            start = monotonic_ns()
            result = original(observer, pass_function)
            took = monotonic_ns() - start
            with ours("looking at a graph after a pass"):
                self._compare(observer, start, took)
            return result

        return apply

    def _look(self, graph: Any) -> str:
        """The graph's text, printed again only if it has changed."""
        now = state_of(graph)
        known = self._here.known
        if known is None or known[0] != id(graph) or not same_state(known[1], now):
            self._here.known = known = (id(graph), now, str(graph))
        return known[2]

    def _compare(self, observer: Any, start: int, took: int) -> None:
        graph, known, here = observer.gm.graph, self._here.known, self._context.here()
        if here is None or known is None or (known[0] == id(graph) and same_state(known[1], state_of(graph))):
            return
        before = known[2]
        after = self._look(graph)
        if before != after:
            name = "/".join(filter(None, (observer.subsystem, observer.passname)))
            text = changes(before, after)
            self._context.stage(here, f"pass {name}", "diff", text, start, took)


_METHODS = ("apply_gm_pass", "apply_graph_pass")


def state_of(graph: Any) -> list[Any]:
    """All that a pass can change, each as the very object: FX replaces arguments, it does not change them."""
    return [part for node in graph.nodes for part in (node, node.target, node.args, node.kwargs)]


def same_state(before: list[Any], now: list[Any]) -> bool:
    # By identity: comparing symbolic sizes would make the compiler guard on the answer.
    return len(before) == len(now) and all(a is b for a, b in zip(before, now, strict=True))


def changes(before: str, after: str) -> str:
    """A unified diff, fast also on large graphs."""
    old, new = before.splitlines(), after.splitlines()
    first = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    if len(old) + len(new) - 2 * (first + last) <= _MOST_LINES:
        return "\n".join(difflib.unified_diff(old, new, "before", "after", lineterm="", n=2))
    gone, come = set(new), set(old)
    return "\n".join(
        ["--- before", "+++ after"]
        + [f"-{line}" for line in old if line not in gone]
        + [f"+{line}" for line in new if line not in come]
    )
