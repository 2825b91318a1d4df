"""Triton without a GPU: these tests run its kernels through Triton's own interpreter.

Whether `@triton.jit` makes an interpreted function is decided for a whole process, before triton is
imported, so this folder has a process of its own: `pytest tests/interpreted`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from tests.interpreted.two_blocks import N

HERE = Path(__file__).parent
SWITCH = "TRITON_INTERPRET"
_reason_to_skip = ""


def pytest_configure(config: pytest.Config) -> None:
    global _reason_to_skip
    if "triton" in sys.modules and os.environ.get(SWITCH) != "1":
        _reason_to_skip = f"triton was imported without {SWITCH}=1; run `pytest tests/{HERE.name}` on its own"
    elif not all(_is_ours(config, arg) for arg in config.args):
        # Setting the switch would interpret the other folders' kernels too.
        _reason_to_skip = f"needs a process of its own: `pytest tests/{HERE.name}`"
    elif _numpy_is_too_new():
        _reason_to_skip = "the interpreter of triton before 3.7 needs numpy before 2.4"
    else:
        _interpret_triton()
        config.addinivalue_line("filterwarnings", "ignore:Could not find an active CPU backend")


def _numpy_is_too_new() -> bool:
    """It makes numbers of arrays that have one element, which numpy does not allow any more."""
    triton, numpy = (tuple(map(int, version(name).split(".")[:2])) for name in ("triton", "numpy"))
    return triton < (3, 7) and numpy >= (2, 4)


def _is_ours(config: pytest.Config, arg: str) -> bool:
    path = (config.invocation_params.dir / arg.partition("::")[0]).resolve()
    return path.is_relative_to(HERE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _reason_to_skip and HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=_reason_to_skip))


def _interpret_triton() -> None:
    os.environ[SWITCH] = "1"
    from tests.interpreted import faster_interpreter
    from triton.runtime.driver import driver

    faster_interpreter.install()
    driver.set_active(InterpretedDriver())


class InterpretedDriver:
    """What Triton and Inductor ask of a device's driver before they would use the device."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_device_interface(self) -> Any:
        import torch

        return torch.cpu

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Runs a candidate three times, and finds each later one faster: the last is chosen."""

        def benchmark(launch: Callable[[], object], quantiles: tuple[float, ...]) -> list[float]:
            for _ in range(3):
                launch()
            self.benchmarks += 1
            return [1.0 / self.benchmarks] * len(quantiles)

        return benchmark

    benchmarks = 0

    @classmethod
    def is_active(cls) -> bool:
        return True


@pytest.fixture
def inductor_triton() -> Iterator[None]:
    """Inductor writes Triton kernels for the CPU."""
    import torch
    import torch._inductor.config

    torch._dynamo.reset()
    # Not from a cache, which would answer with the user's lines of whoever filled it.
    with torch._inductor.config.patch(cpu_backend="triton", fx_graph_cache=False):
        yield
    torch._dynamo.reset()


@pytest.fixture
def x() -> Any:
    import torch

    return torch.randn(N, generator=torch.Generator().manual_seed(1))
