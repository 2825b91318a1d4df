"""The CUDA graphs that torch.compile captures itself, which stand in trees."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from kernelscope.events import INPUTS_RANGE
from kernelscope.probes.eager.profilers import range_if_profiled
from kernelscope.probes.patching import Patch, PatchSet


class InputCopies(PatchSet):
    """While installed, what torch copies into a CUDA graph's inputs is a range in a profiler's trace."""

    def __init__(self) -> None:
        node = "torch._inductor.cudagraph_trees:CUDAGraphNode"
        super().__init__(Patch(f"{node}._copy_inputs_and_remove_from_src", self._around))

    def install(self) -> None:
        if torch.cuda.is_available():
            super().install()

    def _around(self, original: Any) -> Any:
        def copying(*args: Any, **kwargs: Any) -> Any:
            with range_if_profiled(INPUTS_RANGE):
                return original(*args, **kwargs)

        return copying


class LaunchByLaunch(PatchSet):
    """While installed, torch.compile's CUDA graphs are neither captured nor replayed: their code is run."""

    def __init__(self, told: Callable[[], None] = lambda: None) -> None:
        """`told` is called whenever one is run so."""
        manager = "torch._inductor.cudagraph_trees:CUDAGraphTreeManager"
        super().__init__(Patch(f"{manager}._run", self._in_place_of))
        self._told = told

    def install(self) -> None:
        if torch.cuda.is_available():
            super().install()

    def _in_place_of(self, original: Any) -> Any:
        def run(manager: Any, inputs: Any, function: Any) -> Any:
            self._told()
            return manager.ids_to_funcs[function].model(inputs)

        return run


def tree_graphs() -> dict[Any, str]:
    """What is captured now: graphs, and which compilation each is of."""
    found = {}
    for manager in _managers():
        todo = [*manager.get_roots(), *_path(manager)]
        while todo:
            node = todo.pop()
            if node.graph is not None:
                compiled = getattr(manager, "id_to_compile_id", {}).get(node.wrapped_function.id)
                found[node.graph] = f"compiled graph {compiled or '?'}"
            todo += [child for children in node.children.values() for child in children]
    return found


def drop_tree_graphs(which: Callable[[Any], bool]) -> None:
    """Remove nodes from torch.compile's trees, so that it captures them again; those in use live on."""
    for manager in _managers():
        path = _path(manager)
        if path:
            path[0].kernelscope_path = path[1:]  # a node knows its parent weakly
        todo = [manager.roots, *(node.children for node in path)]
        while todo:
            for nodes in todo.pop().values():
                gone = [node for node in nodes if which(node.graph)]
                nodes[:] = [node for node in nodes if node not in gone]
                todo += [node.children for node in nodes]
                for node in gone:
                    _let_go(node, path)


def _let_go(node: Any, path: list[Any]) -> None:
    for children in node.children.values():
        for child in children:
            _let_go(child, path)
    if node not in path:
        node.remove_node_cached_tensors()
    # Now, and not when Python collects it: that may be while another graph is captured, and would spoil that.
    node.graph.reset()


def _path(manager: Any) -> list[Any]:
    """The node that was executed or captured last, and those before it."""
    path = []
    node = manager.current_node
    while node is not None:
        if hasattr(node, "children"):  # not one that only warms up
            path.append(node)
        node = node.parent
    return path


def _managers() -> Iterator[Any]:
    trees: Any = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is None:
        return
    for container in list(trees.get_obj(trees.local, "tree_manager_containers").values()):
        manager = container.tree_manager
        if manager is not None and manager.roots is not None:
            yield manager
