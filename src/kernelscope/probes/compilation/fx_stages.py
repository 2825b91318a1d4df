"""The graph before and after each stage of FX passes, and after each pass in it."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from kernelscope.probes.patching import Patch, PatchSet

_COMPILE_FX = "torch._inductor.compile_fx"
_OBSERVER = "torch.fx.passes.graph_transform_observer:GraphTransformObserver"
_STAGES = {
    "pre-grad": f"{_COMPILE_FX}:_recursive_pre_grad_passes",
    "joint": f"{_COMPILE_FX}:_recursive_joint_graph_passes",
    "post-grad": f"{_COMPILE_FX}:_recursive_post_grad_passes",
}


@dataclass(slots=True)
class Stage:
    """One stage: what went in, what came out."""

    name: str  # pre-grad | joint | post-grad
    before: GraphModule
    after: GraphModule | None = None
    passes: list[tuple[str, GraphModule]] = field(default_factory=list)  # what each pass that changed it left


class _ThreadState(threading.local):
    stage: Stage | None = None
    text: str = ""


class FxStages(PatchSet):
    """The probe: tells of each stage that is over."""

    def __init__(self, emit: Callable[[Stage], None]) -> None:
        self._emit = emit
        self._here = _ThreadState()
        super().__init__(
            *(Patch(path, self._around(name)) for name, path in _STAGES.items()),
            Patch(f"{_OBSERVER}.apply_gm_pass", self._around_pass),
            Patch(f"{_OBSERVER}.apply_graph_pass", self._around_pass),
        )

    def _around(self, name: str) -> Callable[[Any], Any]:
        here = self._here

        def make(original: Any) -> Any:
            def run(gm: Any, *args: Any, **kwargs: Any) -> Any:
                if here.stage is not None or not isinstance(gm, GraphModule):
                    return original(gm, *args, **kwargs)  # a graph inside a graph
                stage = here.stage = Stage(name, _copied(gm))
                here.text = _text(gm)
                try:
                    result = original(gm, *args, **kwargs)
                finally:
                    here.stage = None
                stage.after = _copied(result if isinstance(result, GraphModule) else gm)
                self._emit(stage)
                return result

            return run

        return make

    def _around_pass(self, original: Any) -> Any:
        here = self._here

        def apply(observer: Any, pass_fn: Any) -> Any:
            result = original(observer, pass_fn)
            gm = getattr(observer, "gm", None)
            if here.stage is not None and isinstance(gm, GraphModule):
                text = _text(gm)
                if text != here.text:
                    here.text = text
                    here.stage.passes.append((_name(observer, pass_fn), _copied(gm)))
            return result

        return apply


def _name(observer: Any, pass_fn: Any) -> str:
    name = str(getattr(observer, "passname", ""))
    own = getattr(pass_fn, "__qualname__", type(pass_fn).__name__)
    return f"{name} ({own})" if "custom" in name else name or str(own)


def _text(gm: GraphModule) -> str:
    return "\n".join(f"{n.name} {n.target} {n.args} {n.kwargs}" for n in gm.graph.nodes)


def _copied(gm: GraphModule) -> GraphModule:
    with torch.utils._python_dispatch._disable_current_modes(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch about its own way to copy a tree's shape
        return GraphModule(gm, copy.deepcopy(gm.graph))
