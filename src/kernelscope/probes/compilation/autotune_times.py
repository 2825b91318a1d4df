"""What Inductor timed before it chose: the configs of a Triton kernel, the algorithms of a matmul."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from kernelscope.probes.patching import Patch
from kernelscope.stages.records import TimedConfig

from .compile_context import CompileContext, ours

_CONFIGS = "torch._inductor.runtime.triton_heuristics:CachingAutotuner.benchmark_all_configs"
_ALGORITHMS = "torch._inductor.select_algorithm:AlgorithmSelectorCache.log_results"


class AutotuneTimes:
    """Takes down every candidate with its time."""

    def __init__(self, context: CompileContext) -> None:
        self._context = context
        self.patches = [Patch(_CONFIGS, self._around_configs), Patch(_ALGORITHMS, self._around_algorithms)]

    def _around_configs(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def benchmark_all_configs(autotuner: Any, *args: Any, **kwargs: Any) -> Any:
            timings = original(autotuner, *args, **kwargs)
            with ours("noting the times of a kernel's configs"):
                name = autotuner.inductor_meta.get("kernel_name") or autotuner.fn.__name__
                self._emit(str(name), [(_config(launcher.config), ms) for launcher, ms in timings.items()])
            return timings

        return benchmark_all_configs

    def _around_algorithms(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def log_results(name: str, input_nodes: Any, timings: Any, *args: Any, **kwargs: Any) -> Any:
            with ours("noting the times of algorithms"):
                self._emit(name, [(str(getattr(c, "name", c)), ms) for c, ms in timings.items()])
            return original(name, input_nodes, timings, *args, **kwargs)

        return staticmethod(log_results)

    def _emit(self, kernel: str, times: Iterable[tuple[str, float]]) -> None:
        finite = [(config, ms) for config, ms in times if math.isfinite(ms)]
        here = self._context.here()
        for position, (config, ms) in enumerate(sorted(finite, key=lambda pair: pair[1])):
            compilation = here.id if here is not None else -1
            self._context.emit(TimedConfig(compilation, kernel, config, round(ms * 1e6), position == 0))


def _config(config: Any) -> str:
    return ", ".join(
        [f"{k}={v}" for k, v in getattr(config, "kwargs", {}).items()]
        + [f"{name}={getattr(config, name)}" for name in ("num_warps", "num_stages") if hasattr(config, name)]
    )
