"""Which FX nodes each launch of a wrapper computes, and where in the user's program those come from.

Inductor calls one function for each launch that it writes, generated or extern, and puts the number that
this returns beside the launch as a comment. Its own mapping knows no backward nodes; ours follows autograd's
sequence numbers to the forward nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kernelscope.generated_code.launch_comments import call_name
from kernelscope.probes.origins import frames_of_trace, is_users
from kernelscope.probes.patching import Patch
from kernelscope.stages.records import Compilation, FxOrigin, Provenance

from .compile_context import CompileContext, ours

_NAME = "set_kernel_post_grad_provenance_tracing"
# Where it is defined, and who imported it by name.
_HOMES = ("torch._inductor.debug", "torch._inductor.codegen.cpp", "torch._inductor.codegen.triton")
_PRE_GRAD = "torch._inductor.compile_fx:_recursive_pre_grad_passes"
# Extern kernels whose launches Inductor writes without a number.
_UNNUMBERED = ("InplaceBernoulliFallback", "ScatterFallback", "IndexPutFallback")
# What Inductor makes for all nodes that draw random numbers together; each looks up its own.
_MADE_FOR_OTHERS = ("prims.inductor_seeds.default", "prims.rand_eager_offsets.default")
_MOST_FRAMES = 12


class KernelProvenance:
    """Takes down the nodes of each launch while its graph is being generated."""

    def __init__(self, context: CompileContext) -> None:
        self._context = context
        self.patches = [Patch(f"{home}:{_NAME}", self._around) for home in _HOMES]
        self.patches.append(Patch(_PRE_GRAD, self._around_pre_grad))
        self.patches += [
            Patch(f"torch._inductor.ir:{name}.codegen", self._around_codegen) for name in _UNNUMBERED
        ]

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def set_provenance(schedule: Any, kernel_name: str, *args: Any, **kwargs: Any) -> Any:
            handle = original(schedule, kernel_name, *args, **kwargs)
            graph = self._context.graph
            if graph is not None and handle is not None:
                with ours("noting the nodes of a kernel"):
                    self._context.emit(self._provenance(graph, schedule, kernel_name, handle))
            return handle

        return set_provenance

    def _around_codegen(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def codegen(kernel: Any, wrapper: Any) -> Any:
            if self._context.graph is not None:
                with ours("numbering the launch of a kernel"):
                    kernel.codegen_comment(wrapper)
            return original(kernel, wrapper)

        return codegen

    def _around_pre_grad(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The graphs before and after these passes have the names that later nodes say they are from."""

        def pre_grad_passes(module: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(module, *args, **kwargs)
            with ours("reading the names of a graph before autograd"):
                here = self._context.here()
                if here is not None:
                    frame = here.id if here.frame < 0 else here.frame
                    names = self._context.pre_grad.setdefault(frame, set())
                    names.update(node.name for each in (module, result) for node in each.graph.nodes)
            return result

        return pre_grad_passes

    def number(self, graph: Compilation, module: Any) -> None:
        """Autograd numbers an operator and its backward alike: remember which nodes have which number."""
        numbers = self._context.by_sequence.setdefault(graph.frame, {})
        names = self._context.pre_grad.get(graph.frame, set())
        for node in module.graph.nodes:
            number, found = node.meta.get("seq_nr"), _sources(node, names)
            if number is not None and found:
                numbers.setdefault(number, set()).update(found)

    def _provenance(self, graph: Compilation, schedule: Any, kernel: str, handle: int) -> Provenance:
        pieces = [schedule] if hasattr(schedule, "origins") else [_ir(each) for each in schedule]
        pieces = [piece for piece in pieces if piece is not None]
        buffers = dict.fromkeys(piece.get_name() for piece in pieces)
        nodes: dict[str, FxOrigin] = {}
        for piece in pieces:
            # What a buffer holds comes first, then the nodes that were folded into it.
            own = getattr(piece, "origin_node", None)
            for node in ([own] if own is not None else []) + sorted(piece.origins, key=_place):
                if node.name not in nodes:
                    nodes[node.name] = self.origin(graph, node)
        return Provenance(graph.id, call_name(kernel), int(handle), tuple(buffers), tuple(nodes.values()))

    def origin(self, graph: Compilation, node: Any) -> FxOrigin:
        """Where a node that is lowered comes from."""
        found = [each for each in _made_for(node) if self._pre_grad(graph, each) or _trace(each)] or [node]
        pre_grad = set[str]().union(*(self._pre_grad(graph, each) for each in found))
        pre_grad = pre_grad or self._pre_grad_of_neighbours(graph, node)
        frames = frames_of_trace(_trace(found[0]))
        if not any(is_users(frame.file) for frame in frames):
            # Modules of a library alone, as in a Sequential: then it is who called the compiled code.
            frames = (*self._context.origin_of(graph.frame), *frames)
        frames = frames[:_MOST_FRAMES]
        return FxOrigin(node.name, str(node.target), tuple(sorted(pre_grad)), frames)

    def _pre_grad(self, graph: Compilation, node: Any) -> set[str]:
        found = _sources(node, self._context.pre_grad.get(graph.frame, set()))
        numbers = self._context.by_sequence.get(graph.frame, {})
        return found or numbers.get(node.meta.get("seq_nr"), set())

    def _pre_grad_of_neighbours(self, graph: Compilation, node: Any) -> set[str]:
        """For a node that a pass made with nothing but a stack trace, such as the padding of a product."""
        seen, waiting = {node}, [node]
        while waiting and _trace(node):
            around = dict.fromkeys(near for each in waiting for near in (*each.users, *each.all_input_nodes))
            waiting = [near for near in around if near not in seen and _trace(near) == _trace(node)]
            found = set[str]().union(*(self._pre_grad(graph, near) for near in waiting))
            if found:
                return found
            seen.update(waiting)
        return set()


def _trace(node: Any) -> str:
    return node.meta.get("stack_trace") or ""


def _made_for(node: Any) -> list[Any]:
    """The node itself; of one that a pass made without a word where from, those that it was made for."""
    if str(node.target) not in _MADE_FOR_OTHERS:
        return [node]
    lookups = list(node.users)
    return [user for lookup in lookups for user in lookup.users] + lookups


def _ir(node: Any) -> Any:
    """What a scheduler node computes; the marks between loops compute nothing."""
    found = getattr(node, "node", None)
    return found if hasattr(found, "origins") and hasattr(found, "get_name") else None


def _place(node: Any) -> str:
    return str(node.name)


def _sources(node: Any, names: set[str]) -> set[str]:
    """Nodes of the graph before autograd that a later node says it is from."""
    return {name for source in node.meta.get("from_node") or () for name in _names(source) if name in names}


def _names(source: Any) -> Iterator[str]:
    yield str(getattr(source, "name", ""))
    for each in getattr(source, "from_node", None) or ():
        yield from _names(each)
