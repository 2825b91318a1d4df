"""kernelscope: what a compiled PyTorch program really did, kernel by kernel and value by value."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import fingerprint as fingerprint
    from . import repro as repro
    from . import values as values
    from .analysis.determinism import DeterminismResult as DeterminismResult
    from .analysis.diff.divergence import Divergence as Divergence
    from .analysis.ranks.compare import ranks as ranks
    from .analysis.ranks.deviation import RanksResult as RanksResult
    from .analysis.sharding.result import ShardedResult as ShardedResult
    from .bisection import BisectResult as BisectResult
    from .bisection import bisect as bisect
    from .comparison.api import compare as compare
    from .comparison.one_against_many import diff_sharded as diff_sharded
    from .comparison.recorded.diffing import diff as diff
    from .comparison.result import ComparisonResult as ComparisonResult
    from .debug_mode import DebugMode as DebugMode
    from .determinism.api import check_determinism as check_determinism
    from .errors import RunError as RunError
    from .invariance.api import check_invariance as check_invariance
    from .invariance.result import InvarianceResult as InvarianceResult
    from .model.call import KernelCall as KernelCall
    from .model.run import Run as Run
    from .precision.api import precision_map as precision_map
    from .precision.result import PrecisionMap as PrecisionMap
    from .probes.cpp_wrappers.packages import aoti_compile_and_package as aoti_compile_and_package
    from .recording import record as record
    from .recording import step as step
    from .reduction import Reduction as Reduction
    from .reduction import reduce as reduce
    from .shadowing.api import check_correctness as check_correctness
    from .shadowing.api import shadow as shadow
    from .shadowing.replacement import replace as replace
    from .shadowing.result import ShadowResult as ShadowResult
    from .store.stored_run import load as load

_HOMES = {
    "BisectResult": ".bisection",
    "ComparisonResult": ".comparison.result",
    "DebugMode": ".debug_mode",
    "DeterminismResult": ".analysis.determinism",
    "Divergence": ".analysis.diff.divergence",
    "KernelCall": ".model.call",
    "Run": ".model.run",
    "RunError": ".errors",
    "aoti_compile_and_package": ".probes.cpp_wrappers.packages",
    "bisect": ".bisection",
    "check_determinism": ".determinism.api",
    "check_invariance": ".invariance.api",
    "compare": ".comparison.api",
    "InvarianceResult": ".invariance.result",
    "diff": ".comparison.recorded.diffing",
    "diff_sharded": ".comparison.one_against_many",
    "ShardedResult": ".analysis.sharding.result",
    "PrecisionMap": ".precision.result",
    "RanksResult": ".analysis.ranks.deviation",
    "ShadowResult": ".shadowing.result",
    "check_correctness": ".shadowing.api",
    "Reduction": ".reduction",
    "load": ".store.stored_run",
    "load_ipython_extension": ".integrations.notebook",
    "precision_map": ".precision.api",
    "ranks": ".analysis.ranks.compare",
    "record": ".recording",
    "reduce": ".reduction",
    "replace": ".shadowing.replacement",
    "shadow": ".shadowing.api",
    "step": ".recording",
    "unload_ipython_extension": ".integrations.notebook",
}

__all__ = [
    "BisectResult",
    "ComparisonResult",
    "DebugMode",
    "DeterminismResult",
    "Divergence",
    "InvarianceResult",
    "KernelCall",
    "PrecisionMap",
    "RanksResult",
    "Reduction",
    "Run",
    "RunError",
    "ShadowResult",
    "ShardedResult",
    "__version__",
    "aoti_compile_and_package",
    "bisect",
    "check_correctness",
    "check_determinism",
    "check_invariance",
    "compare",
    "diff",
    "diff_sharded",
    "fingerprint",
    "load",
    "precision_map",
    "ranks",
    "record",
    "reduce",
    "replace",
    "repro",
    "shadow",
    "step",
    "values",
]


def __getattr__(name: str) -> Any:
    """Public names load on first use: `import kernelscope` does not import torch."""
    from .own_warnings import printed_at_most

    with printed_at_most():
        return _load(name)


def _load(name: str) -> Any:
    if name in ("fingerprint", "repro", "values"):
        return import_module(f".{name}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module 'kernelscope' has no attribute {name!r}; it has {', '.join(__all__)}")
    try:
        home = import_module(_HOMES[name], __name__)
    except ImportError as error:
        from .supported import installed_torch_is_too_old

        if why := installed_torch_is_too_old():
            raise ImportError(f"{why}. Upgrade torch.") from error
        raise
    return getattr(home, name)


def __dir__() -> list[str]:
    return sorted(__all__)


def _honour_printer() -> None:
    """torch's own variable for printing intermediate values acts once kernelscope is imported."""
    from .config import wants_printer

    if wants_printer():
        from .startup.autorecord import start_printer

        start_printer()


_honour_printer()
