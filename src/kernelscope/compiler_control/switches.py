"""Turns parts of the compiler off by name, where torch's bisector counts, and emits which parts there are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from kernelscope.compiler_control.cautious_settings import PASSES
from kernelscope.probes.compilation.fx_passes import same_state, state_of
from kernelscope.probes.patching import Patch, PatchSet

_BISECTOR = "torch._inductor.compiler_bisector:CompilerBisector"
_OBSERVER = "torch.fx.passes.graph_transform_observer:GraphTransformObserver"
_SCHEDULER = "torch._inductor.scheduler:Scheduler"
_SELECTOR = "torch._inductor.select_algorithm:AlgorithmSelectorCache.__call__"
_AUTOTUNER = "torch._inductor.runtime.triton_heuristics:CachingAutotuner"
# Without them a graph cannot be lowered.
_NEEDED = (
    "decompose_", "stable_sort", "fix_auto_functionalized", "move_constructors", "remove_profiler_ops",
)  # fmt: skip

Emit = Callable[[str, str, dict[str, Any]], None]  # axis, name, what is known of it


class CompilerSwitches(PatchSet):
    """The probe: answers for the switches that are off, and tells of each that it meets."""

    def __init__(self, off: Mapping[str, frozenset[str]], backend: str, emit: Emit) -> None:
        self._off = off
        self._backend = backend
        self._emit = emit
        self._graphs: list[Any] = []  # in the order in which they are lowered
        self._choices = 0
        super().__init__(
            Patch(f"{_BISECTOR}.disable_subsystem", self._around_bisector),
            Patch(f"{_BISECTOR}.get_backend", self._around_backend),
            Patch(f"{_OBSERVER}.apply_gm_pass", self._around_pass),
            Patch(f"{_OBSERVER}.apply_graph_pass", self._around_pass),
            Patch(f"{_SCHEDULER}.can_fuse", self._around_question),
            Patch(f"{_SCHEDULER}.fuse_two_nodes", self._around_fusion),
            Patch("torch._inductor.graph:make_fallback", self._around_fallback),
            Patch(_SELECTOR, self._around_choice),
            Patch(f"{_AUTOTUNER}.__init__", self._around_configs),
            Patch(f"{_AUTOTUNER}.autotune_to_one_config", self._around_tuning),
        )

    def _is_off(self, axis: str, name: str) -> bool:
        return name in self._off.get(axis, ())

    # -- passes, decompositions and lowerings: where torch's bisector decides ----------------------------

    def _around_bisector(self, original: Any) -> Any:
        def disable_subsystem(backend: str, subsystem: str, debug_info: Any = None) -> Any:
            name = debug_info() if debug_info is not None else ""
            if subsystem in PASSES:
                return self._is_off("pass", f"{subsystem}/{name}")
            if subsystem == "decomposition":
                name = _operator(name)
                self._emit("decomposition", name, {})
                return self._is_off("decomposition", name)
            if subsystem == "lowerings":
                return self._lowering(name)
            return original(backend, subsystem, debug_info)

        return staticmethod(disable_subsystem)

    def _around_fallback(self, original: Any) -> Any:
        def make_fallback(operator: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_off("decomposition", str(operator)):
                kwargs["override_decomp"] = True  # it is not decomposed, and there is no lowering for it
            return original(operator, *args, **kwargs)

        return make_fallback

    def _lowering(self, node: str) -> bool:
        from torch._inductor.virtualized import V

        graph: Any = V.graph
        name = f"{node} (graph {self._number(graph)})"
        found: Any = getattr(graph, "current_node", None)
        self._emit("lowering", name, {"node": node, "target": str(getattr(found, "target", ""))})
        return self._is_off("lowering", name)

    def _number(self, graph: Any) -> int:
        for i, known in enumerate(self._graphs):
            if known is graph:
                return i
        self._graphs.append(graph)
        return len(self._graphs) - 1

    def _around_backend(self, original: Any) -> Any:
        return staticmethod(lambda: self._backend or original())

    def _around_pass(self, original: Any) -> Any:
        def apply(observer: Any, pass_function: Any) -> Any:
            before = state_of(observer.gm.graph)
            result = original(observer, pass_function)
            subsystem, name = observer.subsystem, observer.passname
            is_free = subsystem in PASSES and not name.startswith(_NEEDED)
            if is_free and not same_state(before, state_of(observer.gm.graph)):
                own = getattr(pass_function, "__qualname__", type(pass_function).__name__)
                self._emit("pass", f"{subsystem}/{name}", {"function": own})
            return result

        return apply

    # -- the scheduler ---------------------------------------------------------------------------------

    def _around_question(self, original: Any) -> Any:
        def can_fuse(scheduler: Any, first: Any, second: Any, *args: Any, **kwargs: Any) -> Any:
            if self._off.get("fusion") and self._refuses(_operations(first), _operations(second)):
                return False
            return original(scheduler, first, second, *args, **kwargs)

        return can_fuse

    def _refuses(self, first: list[str], second: list[str]) -> bool:
        from torch._inductor.virtualized import V

        number = self._number(V.graph)
        for name in self._off["fusion"]:
            graph, left, right = _parsed(name)
            if graph == number and (
                (not left.isdisjoint(first) and not right.isdisjoint(second))
                or (not left.isdisjoint(second) and not right.isdisjoint(first))
            ):
                return True
        return False

    def _around_fusion(self, original: Any) -> Any:
        def fuse_two_nodes(scheduler: Any, first: Any, second: Any, *args: Any, **kwargs: Any) -> Any:
            from torch._inductor.virtualized import V

            name = f"{'+'.join(_operations(first))} with {'+'.join(_operations(second))}"
            nodes = sorted({*_origins(first), *_origins(second)})
            self._emit("fusion", f"{name} (graph {self._number(V.graph)})", {"nodes": nodes})
            return original(scheduler, first, second, *args, **kwargs)

        return fuse_two_nodes

    # -- autotuning ------------------------------------------------------------------------------------

    def _around_choice(self, original: Any) -> Any:
        def select(cache: Any, name: str, choices: Any, *args: Any, **kwargs: Any) -> Any:
            switch = f"{name} #{self._choices}"
            self._choices += 1
            extern = [choice for choice in choices if type(choice).__name__ == "ExternKernelCaller"]
            if 0 < len(extern) < len(choices):  # off: the first of the library's, nothing generated
                others = [choice.name for choice in choices if choice not in extern]
                self._emit("autotune", switch, {"instead": extern[0].name, "choices": others})
                choices = extern[:1] if self._is_off("autotune", switch) else choices
            return original(cache, name, choices, *args, **kwargs)

        return select

    def _around_configs(self, original: Any) -> Any:
        def __init__(tuner: Any, *args: Any, **kwargs: Any) -> None:
            original(tuner, *args, **kwargs)
            if self._off.get("autotune") and tuner.configs and len(tuner.configs) > 1:
                kept = [c for c in tuner.configs if not self._is_off("autotune", _config_name(tuner, c))]
                tuner.configs = kept or tuner.configs

        return __init__

    def _around_tuning(self, original: Any) -> Any:
        def autotune_to_one_config(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(tuner, *args, **kwargs)
            others = [str(config) for config in tuner.configs or ()]
            for launcher in tuner.launchers[:1]:
                self._emit("autotune", _config_name(tuner, launcher.config), {"choices": others})
            return result

        return autotune_to_one_config


def _operator(text: str) -> str:
    """`aten.add.Tensor` of `<OpOverload(op='aten.add', overload='Tensor')>`."""
    found = re.fullmatch(r"<OpOverload\(op='([\w.:]+)', overload='(\w*)'\)>", text)
    return ".".join(filter(None, found.groups())) if found else text


def _config_name(tuner: Any, config: Any) -> str:
    return f"{getattr(tuner.fn, '__name__', tuner.fn)} with {config}"


def _operations(node: Any) -> list[str]:
    return [each.get_name() for each in node.get_nodes()]


def _origins(node: Any) -> list[str]:
    return [
        origin.name
        for each in node.get_nodes()
        if each.node is not None
        for origin in each.node.get_origins()
    ]


def _parsed(name: str) -> tuple[int, set[str], set[str]]:
    pair, _, graph = name.removesuffix(")").partition(" (graph ")
    left, _, right = pair.partition(" with ")
    return int(graph), set(left.split("+")), set(right.split("+"))
