"""What one recorded call costs on the host, in microseconds: our hooks around kernels that do nothing.

    python benchmarks/launch_cost.py            # the table
    python benchmarks/launch_cost.py --profile  # where the time goes, function by function

The hooks are the ones that a compiled wrapper calls, built from a wrapper's text as a recording builds them.
A launch is looked at in full the first time, and when values are hashed or calls filtered; else it is noted.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # a machine that cannot install still measures

import kernelscope
from kernelscope.events import Graph
from kernelscope.generated_code.calls import ArgText, Callsite
from kernelscope.generated_code.wrapper import Wrapper
from kernelscope.probes.bus import BUS
from kernelscope.probes.origins import LineMap
from kernelscope.probes.python_wrappers.wrapper_calls import lookup
from kernelscope.probes.python_wrappers.wrapper_launches import WrapperLaunches

TENSOR_COUNTS = (1, 6, 12)
CALLS = 1000  # in one recording: a step of a large model

Call = Callable[[], Any]


class Kernels:
    """Kernels that return at once: called as a compiled wrapper calls them, or through our hooks."""

    def __init__(self, tensors: int, *, hooked: bool) -> None:
        self._tensors = [torch.empty(8, 8) for _ in range(tensors)]
        self._result = torch.empty(8, 8)
        names = [f"in_ptr{i}" for i in range(tensors - 1)] + ["out_ptr0"]
        parameters = ", ".join(f"{'const ' * name.startswith('in')}float* {name}" for name in names)
        source = f'extern "C" void kernel({parameters}) {{'
        self._namespace = {
            "cpp_fused_0": lambda *args: None,
            "extern_kernels": self,
            "empty_strided_cpu": torch._C._dynamo.guards._empty_strided_cpu,  # type: ignore[attr-defined]
        }
        wrapper = Wrapper(f"cpp_fused_0 = async_compile.cpp_pybinding([], {source!r})")
        self._launches = WrapperLaunches(wrapper, "wrapper.py", self._namespace, LineMap(None))
        self._hooked = hooked

    def generated(self) -> Call:
        kernel, tensors = self._function("cpp_fused_0", len(self._tensors)), self._tensors
        return lambda: kernel(*tensors)

    def allocated_then_generated(self) -> Call:
        """A wrapper's rhythm: memory for the output, then the kernel that fills it."""
        allocate, kernel = self._function("empty_strided_cpu", 3), self._function("cpp_fused_0", 1)
        inputs = self._tensors[1:]
        return lambda: kernel(*inputs, allocate((8, 8), (8, 1), torch.float32))

    def extern(self) -> Call:
        """With a result of its own."""
        kernel, tensors = self._function("extern_kernels.returning", len(self._tensors)), self._tensors
        return lambda: kernel(*tensors)

    def extern_out(self) -> Call:
        """With a place for its result."""
        kernel, tensors = self._function("extern_kernels.filling", len(self._tensors) - 1), self._tensors
        return lambda: kernel(*tensors[1:], out=tensors[0])

    def returning(self, *args: Any) -> torch.Tensor:
        return self._result

    def filling(self, *args: Any, out: torch.Tensor) -> torch.Tensor:
        return out

    def _function(self, path: str, arguments: int) -> Callable[..., Any]:
        if not self._hooked:
            return lookup(path, self._namespace)  # type: ignore[no-any-return]
        texts = tuple(ArgText(f"buf{i}", False) for i in range(arguments))
        return self._launches.hook(Callsite("hook", 1, path, texts, {}, ""))


@contextmanager
def recorded(in_full: bool) -> Iterator[None]:
    """A recording inside a graph's execution; with a filter it looks at every launch in full."""
    with kernelscope.record(kind=("cpp", "extern") if in_full else ()):
        BUS.here.graph_call = BUS.graph_call(Graph(0, "forward"), "forward", 0)
        try:
            yield
        finally:
            BUS.here.graph_call = -1


def microseconds(call: Call, samples: int, in_full: bool) -> float:
    """Processor time of a call, opening and closing not in it; the median over recordings."""
    means = []
    for _ in range(samples):
        with recorded(in_full):
            call()
            start = time.thread_time_ns()
            for _ in range(CALLS):
                call()
            means.append((time.thread_time_ns() - start) / CALLS / 1000)
    return statistics.median(means)


def measure(samples: int) -> dict[str, dict[int, tuple[float, float]]]:
    """What a call costs, bare and recorded, by kind of kernel and number of tensors."""
    table: dict[str, dict[int, tuple[float, float]]] = {}
    for count in TENSOR_COUNTS:
        bare, hooked = Kernels(count, hooked=False), Kernels(count, hooked=True)
        rows = {
            "generated kernel": (bare.generated(), hooked.generated()),
            "allocation, generated kernel": (
                bare.allocated_then_generated(),
                hooked.allocated_then_generated(),
            ),
            "extern kernel with out=": (bare.extern_out(), hooked.extern_out()),
            "extern kernel, new result": (bare.extern(), hooked.extern()),
        }
        for name, (without, hooked_call) in rows.items():
            bare_cost = microseconds(without, samples, True)
            table.setdefault(f"{name}, in full", {})[count] = (
                bare_cost,
                microseconds(hooked_call, samples, True),
            )
            if "allocation" not in name:  # which is not hooked then
                noted = microseconds(hooked_call, samples, False)
                table.setdefault(f"{name}, noted", {})[count] = bare_cost, noted
    return table


def profile(tensors: int) -> None:
    call = Kernels(tensors, hooked=True).allocated_then_generated()
    with recorded(in_full=True):
        profiler = cProfile.Profile()
        profiler.enable()
        for _ in range(20 * CALLS):
            call()
        profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=30, help="recordings per number")
    parser.add_argument("--profile", action="store_true", help="profile calls with six tensors instead")
    parser.add_argument("--write-docs", action="store_true", help="accepted, as of every benchmark; no table")
    options = parser.parse_args()
    if options.profile:
        profile(6)
        return
    table = measure(options.samples)
    print("recording adds this to a call, in µs (the call itself: in brackets)")
    print(f"{'number of tensors':38}" + "".join(f"{count:>16}" for count in TENSOR_COUNTS))
    for name, costs in table.items():
        cells = (f"{recorded - bare:.2f} ({bare:.2f})" for bare, recorded in costs.values())
        print(f"{name:38}" + "".join(f"{cell:>16}" for cell in cells))


if __name__ == "__main__":
    main()
