"""The graph before and after each step of the compiler: passes, partitioning, freezing.

A stage of passes also keeps what each pass, and each pattern that was applied in one, left of the graph.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from kernelscope.probes.bus import BUS
from kernelscope.probes.own_work import own_fault
from kernelscope.probes.patching import Patch, PatchSet

from .graph_copies import copied, text_of
from .pattern_names import pattern_name, plain_name

_COMPILE_FX = "torch._inductor.compile_fx"
_OBSERVER = "torch.fx.passes.graph_transform_observer:GraphTransformObserver"
_PATTERNS = "torch._inductor.pattern_matcher"
_ENTRIES = ("ReplacementPatternEntry", "GraphPatternEntry", "LoweringPatternEntry")
_STAGES = {
    "pre-grad": f"{_COMPILE_FX}:_recursive_pre_grad_passes",
    "joint": f"{_COMPILE_FX}:_recursive_joint_graph_passes",
    "post-grad": f"{_COMPILE_FX}:_recursive_post_grad_passes",
}
_NODES_COPIED = 60_000  # of all that the patterns of one stage leave; later ones are not told apart


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a pass, or one application of a pattern in it, left."""

    by: str  # the pass
    pattern: str  # empty: the whole pass
    graph: GraphModule


@dataclass(frozen=True, slots=True)
class Traced:
    """What a graph of Dynamo's is traced with, which the graph itself does not show."""

    inputs: tuple[Any, ...]  # fake
    has_grad: bool
    autocast: tuple[tuple[str, torch.dtype], ...]  # devices for which it is on


@dataclass(slots=True)
class Stage:
    """One step: what went in, what came out."""

    name: str  # pre-grad | joint | partition | freezing | post-grad
    before: GraphModule
    after: GraphModule | None = None
    passes: list[Snapshot] = field(default_factory=list)
    traced: Traced | None = None  # pre-grad
    backward: GraphModule | None = None  # of a partition, beside the forward graph
    by: str = ""  # the partitioner
    forward_outputs: int = 0  # of a partition: how many outputs of the joint graph are not gradients
    constants: Mapping[str, Any] = field(default_factory=dict)  # by input: what freezing put in its place


class _ThreadState(threading.local):
    stage: Stage | None = None
    joint: GraphModule | None = None  # after the joint passes
    graph: Any = None  # that the stage changes
    text: str = ""
    by: str = ""
    budget: int = 0


class FxStages(PatchSet):
    """The probe: tells of each stage that is over."""

    def __init__(self, emit: Callable[[Stage], None]) -> None:
        self._emit = emit
        self._here = _ThreadState()
        super().__init__(
            *(Patch(path, self._around(name)) for name, path in _STAGES.items()),
            Patch(f"{_COMPILE_FX}:partition_fn", self._around_partition),
            Patch("torch._inductor.freezing:freeze", self._around_freezing),
            Patch(f"{_OBSERVER}.apply_gm_pass", self._around_pass),
            Patch(f"{_OBSERVER}.apply_graph_pass", self._around_pass),
            *(Patch(f"{_PATTERNS}:{entry}.apply", self._around_pattern) for entry in _ENTRIES),
        )

    def _around(self, name: str) -> Callable[[Any], Any]:
        here = self._here

        def make(original: Any) -> Any:
            def run(gm: Any, *args: Any, **kwargs: Any) -> Any:
                if here.stage is not None or not isinstance(gm, GraphModule):
                    return original(gm, *args, **kwargs)  # a graph inside a graph
                with _own_work():
                    examples = args[0] if args else kwargs.get("example_inputs", ())
                    here.stage = Stage(name, copied(gm))
                    here.stage.traced = _traced(examples) if name == "pre-grad" else None
                    here.text, here.graph, here.by, here.budget = text_of(gm), gm.graph, "", _NODES_COPIED
                try:
                    result = original(gm, *args, **kwargs)
                finally:
                    stage, here.stage, here.graph = here.stage, None, None
                with _own_work():
                    if stage is not None:
                        stage.after = copied(result if isinstance(result, GraphModule) else gm)
                        here.joint = stage.after if name == "joint" else None
                        self._emit(stage)
                return result

            return run

        return make

    def _around_partition(self, original: Any) -> Any:
        here = self._here

        def partition(gm: Any, *args: Any, **kwargs: Any) -> Any:
            here.joint = None
            forward, backward = original(gm, *args, **kwargs)
            joint, here.joint = here.joint, None
            with _own_work():
                if joint is not None and here.stage is None:
                    by = plain_name(kwargs.get("partitioner_fn_override") or _partitioner())
                    stage = Stage("partition", joint, copied(forward), backward=copied(backward), by=by)
                    stage.forward_outputs = int(kwargs.get("num_fwd_outputs", 0))
                    self._emit(stage)
            return forward, backward

        return partition

    def _around_freezing(self, original: Any) -> Any:
        def freeze(dynamo_gm: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
            stage: Stage | None = None
            with _own_work():
                stage = Stage("freezing", copied(gm), constants=_parameters(gm))
            result = original(dynamo_gm, gm, *args, **kwargs)
            with _own_work():
                if stage is not None:
                    stage.after = copied(result[0])
                    self._emit(stage)
            return result

        return freeze

    def _around_pass(self, original: Any) -> Any:
        here = self._here

        def apply(observer: Any, pass_fn: Any) -> Any:
            outer = here.by
            with _own_work():
                here.by = _name(observer, pass_fn)
            try:
                result = original(observer, pass_fn)
            finally:
                by, here.by = here.by, outer
            with _own_work():
                gm = getattr(observer, "gm", None)
                if here.stage is not None and isinstance(gm, GraphModule) and text_of(gm) != here.text:
                    here.text = text_of(gm)
                    here.stage.passes.append(Snapshot(by, "", copied(gm)))
            return result

        return apply

    def _around_pattern(self, original: Any) -> Any:
        here = self._here

        def apply(entry: Any, match: Any, graph: Any, node: Any) -> Any:
            result = original(entry, match, graph, node)
            with _own_work():
                if here.stage is not None and graph is here.graph and here.budget > 0:
                    here.budget -= len(graph.nodes)
                    here.stage.passes.append(
                        Snapshot(here.by, pattern_name(entry), copied(graph.owning_module))
                    )
            return result

        return apply


@contextmanager
def _own_work() -> Iterator[None]:
    """Never ends the compilation: where it fails, a step is missing, and that is reported."""
    try:
        yield
    except Exception:
        BUS.finding(own_fault("reading a step of the compiler"))


def _traced(inputs: Sequence[Any]) -> Traced:
    devices = {i.device.type for i in inputs if isinstance(i, torch.Tensor)} | {"cpu"}
    on = [d for d in sorted(devices) if _has_autocast(d)]
    return Traced(tuple(inputs), torch.is_grad_enabled(), tuple((d, torch.get_autocast_dtype(d)) for d in on))


def _has_autocast(device: str) -> bool:
    try:
        return torch.is_autocast_enabled(device)
    except RuntimeError:  # a device without it
        return False


def _partitioner() -> Any:
    from torch._inductor import compile_fx, config

    own = getattr(config, "custom_partitioner_fn", None)
    return own if own is not None else vars(compile_fx)["min_cut_rematerialization_partition"]


def _parameters(gm: GraphModule) -> dict[str, Any]:
    """The real tensors that freezing puts in place of inputs, by the inputs' names."""
    context = torch._guards.TracingContext.try_get()
    flat = getattr(context, "params_flat_unwrap_subclasses", None) or getattr(context, "params_flat", None)
    names = [n.name for n in gm.graph.nodes if n.op == "placeholder"]
    return {name: t for name, t in zip(names, flat or (), strict=False) if isinstance(t, torch.Tensor)}


def _name(observer: Any, pass_fn: Any) -> str:
    name = str(getattr(observer, "passname", ""))
    own = getattr(pass_fn, "__qualname__", type(pass_fn).__name__)
    return f"{name} ({own})" if "custom" in name else name or str(own)
