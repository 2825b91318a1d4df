"""The callable that Dynamo gets from a backend for each graph, with the graph as it was traced."""

from __future__ import annotations

import copy
import functools
import re
import sys
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch.fx import GraphModule

from kernelscope.probes.compilation.compile_context import current_compile_id
from kernelscope.probes.origins import caller_frames
from kernelscope.probes.patching import Patch, PatchSet

_COMPILE = "torch._dynamo.output_graph:OutputGraph.call_user_compiler"
_WRAPPED = "torch._dynamo.variables.functions:WrapperUserFunctionVariable.call_function"
_TORCH = str(Path(torch.__file__).parent)
_FRAME = re.compile(r'File "(.+?)", line (\d+), in (\w+)')
_DEEPEST = 400  # frames of Dynamo between us and the program
Compiled = Callable[..., Any]
_COMPILED_BY_THEMSELVES = {
    "map_impl", "scan", "associative_scan", "flex_attention", "invoke_subgraph", "switch", "while_loop",
    "cond", "flex_attention_backward", "while_loop_stack_output",
}  # fmt: skip


@dataclass(slots=True)
class TracedRegion:
    """What Dynamo knows of one frame, or of a part of it up to a graph break."""

    module: GraphModule  # a copy, that no pass has touched
    compile_id: str
    code: CodeType  # uncompiled
    globals: dict[str, Any]
    where: tuple[str, int, str]  # file, line and function of the program
    module_name: str  # where a whole module was compiled and the function is torch's; else empty
    names: list[str]  # of the graph's inputs, as the program calls them
    is_backward: bool = False  # of compiled autograd
    unrepeatable: list[str] = field(default_factory=list)  # why the frame cannot be run once more


class CompiledRegions(PatchSet):
    """The probe: `compiled` may put another callable in place of each compiled one.

    `failed` is told of our own mistakes, which must not end the program, and `uncompiled` of what the backend
    could not compile.
    """

    def __init__(
        self,
        compiled: Callable[[TracedRegion, Compiled], Compiled],
        failed: Callable[[str, Exception], None],
        uncompiled: Callable[[TracedRegion, Exception], None],
    ) -> None:
        self._compiled, self._failed, self._uncompiled = compiled, failed, uncompiled
        super().__init__(Patch(_COMPILE, self._around), Patch(_WRAPPED, _noting_caches))

    def _around(self, original: Any) -> Any:
        @functools.wraps(original)
        def call_user_compiler(output: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
            traced = None
            if isinstance(gm, GraphModule) and not output.export:
                try:
                    traced = _traced(output, gm)
                except Exception as error:
                    self._failed("a compiled function", error)
            try:
                compiled = original(output, gm, *args, **kwargs)
            except Exception as error:
                if traced is not None and not _goes_on(error):
                    self._uncompiled(traced, error)
                raise
            try:
                return compiled if traced is None else self._compiled(traced, compiled)
            except Exception as error:
                self._failed("a compiled function", error)
                return compiled

        return call_user_compiler


def _goes_on(error: Exception) -> bool:
    """Dynamo traces once more, or leaves the function uncompiled, and says why."""
    from torch._dynamo.exc import RestartAnalysis, SkipFrame, Unsupported

    return isinstance(error, RestartAnalysis | SkipFrame | Unsupported)


# Compilations in which Dynamo looked past a `functools.lru_cache`, which a run in eager would fill.
_PAST_CACHES: list[weakref.ref[Any]] = []  # not a set: they have no hash


def _noting_caches(original: Any) -> Any:
    @functools.wraps(original)
    def call_function(self: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
        wrapper = self.wrapper_obj
        module = str(getattr(getattr(wrapper, "__wrapped__", None), "__module__", ""))
        if hasattr(wrapper, "cache_info") and module.partition(".")[0] != "torch":
            _PAST_CACHES[:] = [*(each for each in _PAST_CACHES if each() is not None), weakref.ref(tx.output)]
        return original(self, tx, *args, **kwargs)

    return call_function


def _traced(output: Any, gm: GraphModule) -> TracedRegion:
    with torch.utils._python_dispatch._disable_current_modes(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch about its own way to copy a tree's shape
        module = GraphModule(gm, copy.deepcopy(gm.graph))
    module.train(gm.training)
    _inline_repeated(module)
    _remove_prints(module)
    tx = output.root_tx
    sources = [node.meta["grapharg"].source for node in gm.graph.nodes if node.op == "placeholder"]
    return TracedRegion(
        module, current_compile_id(), tx.f_code, tx.f_globals, _where(gm, tx.f_code),
        _module_name(gm, tx.f_code), [_name(s) for s in sources],
        _is_in_compiled_autograd(), list(_unrepeatable(output, sources)),
    )  # fmt: skip


def _where(gm: GraphModule, code: CodeType) -> tuple[str, int, str]:
    """The compiled function; where torch wraps it, the first line of the program in it, or its caller."""
    if not code.co_filename.startswith(_TORCH):
        return code.co_filename, code.co_firstlineno, code.co_name
    for node in gm.graph.nodes:
        for file, line, function in _FRAME.findall(node.meta.get("stack_trace") or ""):
            if not file.startswith(_TORCH):
                return file, int(line), function
    callers = [f for f in caller_frames(limit=_DEEPEST) if not f.file.startswith(_TORCH)]
    if callers:  # a module of torch's own, such as Sequential
        return callers[0].file, callers[0].line, callers[0].function
    return code.co_filename, code.co_firstlineno, code.co_name


def _module_name(gm: GraphModule, code: CodeType) -> str:
    """The class of a compiled module that torch wraps in a function of its own."""
    if not code.co_filename.startswith(_TORCH):
        return ""
    for node in gm.graph.nodes:
        for _, kind in (node.meta.get("nn_module_stack") or {}).values():
            return kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]
    return ""


def _inline_repeated(module: GraphModule) -> None:
    """Regions that are compiled once and used several times: their operator runs only inside the compiler."""
    repeated = [n for n in module.graph.nodes if getattr(n.target, "_name", "") == "invoke_subgraph"]
    for node in repeated:
        body = node.args[0]
        node.op, node.target, node.args = "call_module", body.target, tuple(node.args[2:])
    if repeated:
        module.recompile()


def _remove_prints(module: GraphModule) -> None:
    """The program prints; its copy must not."""
    printing = [n for n in module.graph.nodes if getattr(n.target, "_name", "") == "print" and not n.users]
    for node in printing:
        module.graph.erase_node(node)
    if printing:
        module.recompile()


def _is_in_compiled_autograd() -> bool:
    module = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(getattr(module, "in_compiled_autograd_region", False))


def _name(source: Any) -> str:
    """`L['self']._parameters['weight']` as a person writes it: self.weight."""
    try:
        name = source.name if source is not None else ""
        name = str(name() if callable(name) else name)
    except NotImplementedError:  # what Dynamo itself made, such as a block mask
        return ""
    for table in ("._modules", "._parameters", "._buffers"):
        name = name.replace(table, "")
    for space in ("L", "G"):
        if name.startswith(f"{space}['"):
            first, _, rest = name[3:].partition("']")
            name = first + rest
    while "['" in name:  # names in a module's tables
        before, _, rest = name.partition("['")
        inner, _, after = rest.partition("']")
        name = f"{before}.{inner}{after}"
    return name


def _unrepeatable(output: Any, sources: list[Any]) -> Any:
    """Why running the frame once more would be seen by the program, or differ for another reason."""
    reason = output.compile_subgraph_reason
    if reason is None or reason.graph_break:
        yield "it has a graph break"
    effects = output.side_effects
    if effects.tensor_hooks:
        yield "it registers hooks"
    if any(each() is output for each in _PAST_CACHES):
        yield "it calls a function with a cache, which would be filled"
    if output.random_calls:
        yield "it draws numbers from Python's generator"
    numpy = [*sources, *(node.target for node in output.graph.nodes)]
    if any("numpy" in type(each).__name__.lower() for each in numpy):
        yield "it computes with NumPy arrays"
    if output.root_tx.debug_locals or torch._dynamo.config.ignore_logging_functions:
        yield "it may call functions that Dynamo postpones or skips"
    if any("triton_kernel_wrapper" in getattr(node.target, "_name", "") for node in output.graph.nodes):
        yield "it launches Triton kernels of its own, which write to its tensors"
    compiled = {getattr(node.target, "_name", "") for node in output.graph.nodes} & _COMPILED_BY_THEMSELVES
    if compiled:
        yield f"torch compiles {', '.join(sorted(compiled))} also outside of torch.compile"
    changed = [
        var for var in effects.id_to_variable.values()
        if type(var.mutation_type).__name__.endswith("Existing") and effects.is_modified(var)
    ]  # fmt: skip
    if changed:
        source = getattr(changed[0], "source", None)
        yield f"it changes {_name(source) or 'an object'} of the program"
