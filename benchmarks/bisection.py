"""How long it takes to a cause in one process: `kernelscope.bisect` and torch's CompilerBisector.

python benchmarks/bisection.py            print the table
python benchmarks/bisection.py --check    exit status 1 below the promised 5×

The same faults and the same check, in a process that is warm and in which the function has just failed: what
that has built is in the cache, for both. bisect_commands.py measures the commands, from an empty cache.

(Not bisect.py: beside the other benchmarks that would stand in for Python's own module of this name.)
"""

from __future__ import annotations

import contextlib
import io
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch._inductor.codegen.cpp import CppOverrides
from torch._inductor.compiler_bisector import CompilerBisector
from torch._inductor.utils import fresh_cache
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # a machine that cannot install still measures

import _report
from _measure import machine, versions

import kernelscope

PAGE = _report.ROOT / "docs" / "bisect.md"
LEAST = 5.0  # × faster, where both find the cause


def network(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    hidden = F.layer_norm(F.gelu(x @ w), (x.shape[-1],))
    hidden = (hidden @ w).softmax(-1) @ x
    return ((hidden @ w).relu() + hidden).tanh()


@dataclass(frozen=True)
class Fault:
    name: str
    model: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    plant: Callable[[], AbstractContextManager[None]]
    says: str  # what ours has to name
    stock: str  # what stock has to name
    is_small: bool = (
        True  # one or two kernels, like the planted faults of the tests: what is promised is for these
    )


@contextmanager
def operator(name: str, wrong: str) -> Iterator[None]:
    """Generated C++ computes this operator wrongly."""
    original = vars(CppOverrides)[name]
    setattr(CppOverrides, name, staticmethod(lambda x: wrong.format(x=x)))
    try:
        yield
    finally:
        setattr(CppOverrides, name, original)


@contextmanager
def setting(name: str, value: Any) -> Iterator[None]:
    with inductor_config.patch({name: value}):
        yield


def sums_to_differences(graph: torch.fx.Graph) -> None:
    for node in graph.nodes:
        if node.target is torch.ops.aten.add.Tensor:
            node.target = torch.ops.aten.sub.Tensor


def relu() -> AbstractContextManager[None]:
    return operator("relu", "std::max({x}, decltype({x})(0.01))")


PASS = "post_grad_custom_post_pass"
FAULTS = [
    Fault("relu", lambda x, w: (x @ w).relu() + 1, relu, "relu", "relu"),
    Fault(
        "exp, of a softmax",
        lambda x, w: (x @ w).softmax(-1),
        lambda: operator("exp", "std::exp({x} * 1.25f)"),
        "softmax",
        "exp",
    ),
    Fault(
        "erf, of a GELU",
        lambda x, w: F.gelu(x) * w,
        lambda: operator("erf", "std::erf({x} * 1.25f)"),
        "gelu",
        "erf",
    ),
    Fault(
        "a pass that turns sums into differences",
        lambda x, w: (x.sin() + w).exp(),
        lambda: setting(PASS, sums_to_differences),
        PASS,
        PASS,
    ),
    Fault("relu, in a network of 7 kernels", network, relu, "relu", "relu", is_small=False),
]


def measure(fault: Fault) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(32, 32, generator=generator) for _ in range(2))
    expected = fault.model(x, w)
    trials = 0

    def is_wrong(result: torch.Tensor) -> bool:
        return not torch.allclose(result, expected, atol=1e-4)

    def passes() -> bool:
        nonlocal trials
        trials += 1
        torch._dynamo.reset()
        return not is_wrong(torch.compile(fault.model)(x, w))

    with fault.plant(), inductor_config.patch({"cpp.simdlen": 1}):
        with failed_before(fault.model, x, w, is_wrong):
            start = time.perf_counter()
            with contextlib.redirect_stdout(io.StringIO()):  # it tells of each step
                stock = CompilerBisector.do_bisect(passes)
            stock_seconds = time.perf_counter() - start
        with failed_before(fault.model, x, w, is_wrong):
            quick_seconds, quick = timed(fault.model, x, w, is_wrong, workaround=False)
        with failed_before(fault.model, x, w, is_wrong):
            our_seconds, ours = timed(fault.model, x, w, is_wrong, workaround=True)
    torch._dynamo.reset()
    return {
        "fault": fault.name,
        "is_small": fault.is_small,
        "stock": {"said": _said(stock), "trials": trials, "seconds": stock_seconds},
        "ours": {
            "said": str(quick.cause),
            "workaround": list(ours.workaround),
            "trials": quick.trials,
            "seconds": quick_seconds,
            "trials_with_workaround": ours.trials,
            "seconds_with_workaround": our_seconds,
        },
        "stock_found": fault.stock in _said(stock),
        "we_found": fault.says in str(quick.cause) and quick.causes.keys() <= ours.causes.keys(),
        "ratio": stock_seconds / quick_seconds,
        "ratio_with_workaround": stock_seconds / our_seconds,
    }


@contextmanager
def failed_before(model: Any, x: torch.Tensor, w: torch.Tensor, is_wrong: Any) -> Iterator[None]:
    """A cache of its own, in which there is what has just failed: that is when somebody bisects."""
    with fresh_cache():
        torch._dynamo.reset()
        assert is_wrong(torch.compile(model)(x, w))
        torch._dynamo.reset()
        yield


def timed(model: Any, x: torch.Tensor, w: torch.Tensor, fails: Any, *, workaround: bool) -> tuple[float, Any]:
    start = time.perf_counter()
    program = lambda: torch.compile(model)(x, w)  # noqa: E731  # compiled at each call, as the command would
    result = kernelscope.bisect(program, fails=fails, compile=False, workaround=workaround)
    return time.perf_counter() - start, result


def _said(result: Any) -> str:
    if result is None:
        return "nothing"
    return " ".join(str(part) for part in (result.subsystem or result.backend, result.debug_info) if part)


def warm_up() -> None:
    """What is loaded by the first compilation of a process is nobody's doing."""
    x = torch.randn(8, 8)
    with fresh_cache(), inductor_config.patch({"cpp.simdlen": 1}):
        torch.compile(lambda x: (x.sin() @ x).relu())(x)
        kernelscope.check_correctness(lambda x: x.cos() + 1, (x,))
    torch._dynamo.reset()


def markdown(result: dict[str, Any]) -> str:
    lines = [
        "- programs: functions of one or two kernels; a network of products, GELU, layer norm, softmax, relu",
        "- check, for both: the result is not close to eager's; in a process in which it has just failed",
        f"- machine: {result['machine']}",
        f"- versions: {result['versions']}",
        "",
        "| fault | CompilerBisector | runs | kernelscope.bisect | runs | faster | with a workaround |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        stock, ours = row["stock"], row["ours"]
        lines.append(
            f"| {row['fault']} | {stock['said']}, {stock['seconds']:.1f} s | {stock['trials']} "
            f"| {ours['said']}, {ours['seconds']:.1f} s | {ours['trials']} | {row['ratio']:.1f}× "
            f"| {ours['seconds_with_workaround']:.1f} s, {row['ratio_with_workaround']:.1f}× |"
        )
    both = [
        row["ratio"] for row in result["rows"] if row["stock_found"] and row["we_found"] and row["is_small"]
    ]
    found = sum(row["we_found"] for row in result["rows"])
    lines += [
        "",
        f"kernelscope named {found} of {len(result['rows'])}, CompilerBisector "
        f"{sum(row['stock_found'] for row in result['rows'])}. Where both did, on small programs, it was "
        f"{min(both):.1f}× to {max(both):.1f}× faster, in the median {statistics.median(both):.1f}× "
        f"(promised: {LEAST:.0f}×).",
    ]
    return "\n".join(lines)


def broken(result: dict[str, Any]) -> list[str]:
    found = [
        f"{row['fault']}: not found ({row['ours']['said']})" for row in result["rows"] if not row["we_found"]
    ]
    for row in result["rows"]:
        both = row["stock_found"] and row["we_found"] and row["is_small"]
        if both and row["ratio"] < LEAST:
            found.append(f"{row['fault']}: {row['ratio']:.1f}× faster than stock, promised {LEAST}×")
    return found


def main() -> None:
    options = _report.parser(__doc__, PAGE).parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    warm_up()
    rows = []
    for fault in FAULTS:
        rows.append(measure(fault))
        print(f"{fault.name}: {rows[-1]['ratio']:.1f}×", file=sys.stderr, flush=True)
    result = {"machine": machine("cpu"), "versions": versions(), "rows": rows}
    _report.report(options, result, markdown(result), (PAGE, "bisect:cpu"), broken)


if __name__ == "__main__":
    main()
