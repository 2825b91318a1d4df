"""Inductor's MultiKernels: several kernels for one job, the fastest of them picked at the first launch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch._inductor.codegen.multi_kernel import MultiKernelCall

import kernelscope
from kernelscope.fingerprint import fingerprint

pytestmark = pytest.mark.usefixtures("inductor_triton")
LOOPED, PERSISTENT = 0, 1  # the order in which Inductor lists them


@pytest.fixture
def multi_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Its cache is keyed by a hash that interpreted kernels do not have.
    monkeypatch.setenv("TORCHINDUCTOR_DISABLE_MULTI_KERNEL_CACHE", "1")
    with torch._inductor.config.patch({"triton.multi_kernel": 1}):
        yield


def row_sums(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    first = (x * 3).sum(1)
    return first, (y * 3).sum(1)


@pytest.mark.usefixtures("multi_kernels")
@pytest.mark.parametrize("picked", [LOOPED, PERSISTENT])
def test_the_picked_one_is_the_launch(picked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmarked: list[str] = []

    def benchmark(self: MultiKernelCall, *args: Any, **kwargs: Any) -> list[float]:
        """As the original does, less the repetitions."""
        from torch._inductor.runtime.benchmarking import benchmarker

        for i, kernel in enumerate(self.kernels):
            clones, _ = kernel.clone_args(*self._get_filtered_args(args, i), **kwargs)
            benchmarked.append(kernel.fn.__name__)
            launch = partial(kernel.run, *clones, **kwargs)
            benchmarker.benchmark_cpu(launch, warmup=1, rep=1)
        return [0.0 if i == picked else 1.0 for i in range(len(self.kernels))]

    monkeypatch.setattr(MultiKernelCall, "benchmark_sub_kernels", benchmark)
    x, y = torch.randn(6, 64), torch.randn(5, 64)
    compiled = torch.compile(row_sums)
    with kernelscope.record(values="hash") as run:
        for _ in range(2):
            sums = compiled(x, y)
    assert len(benchmarked) == 4, "two MultiKernels of two kernels, once each"
    prefix = ("triton_red_", "triton_per_")[picked]
    assert [c.kernel_name for c in run.calls] == [n for n in benchmarked if n.startswith(prefix)] * 2
    for call, given, out in zip(run.calls, (x, y) * 2, sums * 2, strict=True):
        assert call.kind == "triton"
        assert call.arg_names == ("in_ptr0", "out_ptr0", "xnumel", "r0_numel")
        assert call.roles == ("in", "out", "scalar", "scalar")
        assert call.wrapper_names[1].startswith("buf")
        assert call.config.keys() >= ({"XBLOCK", "R0_BLOCK"} if picked == LOOPED else {"XBLOCK"})
        assert call.grid == (-(-len(given) // call.config["XBLOCK"]), 1, 1)
        assert f"def {call.kernel_name}(" in call.source
        assert call.pre_hashes == {0: fingerprint(given).bits}
        assert call.post_hashes == call.pre_hashes | {1: fingerprint(out).bits}
    assert not run.findings


@pytest.mark.usefixtures("multi_kernels")
def test_two_launches_of_one_multi_kernel_have_their_own_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MultiKernelCall, "benchmark_sub_kernels", lambda self, *args, **kwargs: [0.0, 1.0])
    x, y = torch.randn(6, 64), torch.randn(6, 64)
    compiled = torch.compile(row_sums)
    compiled(x, y)
    with kernelscope.record(values="hash") as run:
        sums = compiled(x, y)
    first, second = run.calls
    assert first.kernel_name == second.kernel_name, "equal kernels share one definition"
    assert first.wrapper_line[1] < second.wrapper_line[1]
    assert first.origin.line + 1 == second.origin.line
    assert [c.wrapper_names[1] for c in run.calls] == ["buf0", "buf1"]
    assert [c.post_hashes[1] for c in run.calls] == [fingerprint(out).bits for out in sums]


@pytest.mark.usefixtures("multi_kernels")
def test_the_kernels_are_as_they_were_after_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def benchmark(self: MultiKernelCall, *args: Any, **kwargs: Any) -> list[float]:
        seen.extend(self.kernels)
        return [0.0, 1.0]

    monkeypatch.setattr(MultiKernelCall, "benchmark_sub_kernels", benchmark)
    with kernelscope.record() as run:
        torch.compile(lambda x: x.sum(1))(torch.randn(6, 64))
        assert all("run" in vars(kernel) for kernel in seen), "they are hooked on the object"
    assert len(run) == 1
    assert len(seen) == 2
    assert not any("run" in vars(kernel) for kernel in seen)
