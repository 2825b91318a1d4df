"""User-written Triton kernels in compiled code: traced into Inductor's wrapper, or inside an operator.

Dynamo traces only `JITFunction`s, which an interpreting process does not make, and Inductor's interpreted
launch knows no constants. The fixture fills both gaps below the wrapper, where nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.programs import triton_kernels as kernels
from tests.programs.triton_kernels import BLOCK, CONFIGS, blocks
from torch._dynamo.device_interface import CpuInterface
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from triton.compiler import compiler
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

import kernelscope
from kernelscope.fingerprint import fingerprint
from kernelscope.probes.triton.kernel_signatures import declared_constexprs

pytestmark = pytest.mark.usefixtures("inductor_triton")
N = 100


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    """Makes of an interpreted kernel one that Dynamo traces and that Inductor then runs interpreted."""
    monkeypatch.setattr("torch.utils._triton.has_triton", lambda **kwargs: True)
    # Since 2.15 a user's kernel on the CPU needs a Triton that compiles for it; here it is interpreted.
    monkeypatch.setattr(CpuInterface, "raise_if_triton_unavailable", lambda device=None: None)
    as_triton = compiler.make_backend

    def make_backend(target: Any) -> Any:
        return as_triton(driver.active.get_current_target() if target.backend == "cpu" else target)

    monkeypatch.setattr(compiler, "make_backend", make_backend)
    as_inductor = CachingAutotuner.run

    def run(self: CachingAutotuner, *args: Any, stream: int, **kwargs: Any) -> Any:
        if not self.custom_kernel:
            return as_inductor(self, *args, stream=stream, **kwargs)
        [config] = self.configs[-1:]
        declared = self.inductor_meta.get("declared_constexpr_names")  # torch 2.11 does not tell
        constants = dict.fromkeys(declared or declared_constexprs(self.fn)) | config.kwargs
        names = [name for name in self.triton_meta["signature"] if name not in constants]
        *passed, grid = *args[: len(names)], args[len(names) :]
        given = dict(zip(names, passed, strict=True)) | self.triton_meta["constants"] | config.kwargs
        return self.fn[grid](**given)

    monkeypatch.setattr(CachingAutotuner, "run", run)
    return traced_kernel


def traced_kernel(kernel: Any) -> Any:
    if isinstance(kernel, Autotuner):
        inner = JITFunction(kernel.fn.fn)
        return Autotuner(inner, inner.arg_names, kernel.configs, kernel.keys, None, None)
    return JITFunction(kernel.fn)


def test_a_constexpr_before_a_tensor(traced: Callable[[Any], Any]) -> None:
    scale_kernel = traced(kernels.scale_kernel)

    @torch.compile(fullgraph=True)
    def scale(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        scale_kernel[blocks(N)](x + 1, BLOCK, out, N, 3.0)  # here
        return out

    x = torch.randn(N)
    with kernelscope.record(values="hash") as run:
        out = scale(x)
    plus, call = run.calls
    torch.testing.assert_close(out, (x + 1) * 3)
    assert (plus.producer, call.producer) == ("inductor", "user")
    assert (call.kernel_name, call.kind) == ("scale_kernel", "triton")
    assert call.arg_names == ("x_ptr", "out_ptr", "n", "factor")
    assert call.roles == ("in", "out", "scalar", "scalar")
    assert call.args[2:] == (N, 3.0)
    assert call.grid == (2, 1, 1)
    assert call.config["BLOCK"] == BLOCK
    assert call.pre_hashes == {0: plus.post_hashes[1]}
    assert call.post_hashes == {0: fingerprint(x + 1).bits, 1: fingerprint(out).bits}
    assert call.graph is plus.graph
    assert call.origin.file == __file__
    assert "def scale_kernel(" in call.source
    assert not run.findings


def test_none_and_a_default_and_roles_from_the_source(traced: Callable[[Any], Any]) -> None:
    scale_kernel, bias_kernel = traced(kernels.scale_kernel), traced(kernels.bias_kernel)
    accumulate_kernel = traced(kernels.accumulate_kernel)

    @torch.compile(fullgraph=True)
    def compiled(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        doubled, out = torch.empty_like(x), torch.empty_like(x)
        scale_kernel[(2,)](x, BLOCK, doubled, N)
        bias_kernel[(2,)](doubled, None, out, N, BLOCK=BLOCK)
        accumulate_kernel[(2,)](out, total, N, BLOCK=BLOCK)
        return out

    x, total = torch.randn(N), torch.full((1,), 5.0)
    with kernelscope.record(values="hash") as run:
        out = compiled(x, total)
    torch.testing.assert_close(total, 5.0 + out.sum().reshape(1))
    scaled, biased, summed = run.select(kernel="*_kernel")
    assert torch.equal(out, x * 2)
    assert scaled.arg_names == ("x_ptr", "out_ptr", "n")
    assert biased.arg_names == ("x_ptr", "bias_ptr", "out_ptr", "n")
    assert biased.roles == ("in", "scalar", "out", "scalar")
    assert summed.arg_names == ("x_ptr", "total_ptr", "n")
    assert summed.roles == ("in", "inout", "scalar")
    assert summed.pre_hashes == {0: fingerprint(out).bits, 1: fingerprint(torch.full((1,), 5.0)).bits}
    assert summed.post_hashes == {0: fingerprint(out).bits, 1: fingerprint(total).bits}
    assert [c.grid for c in run.calls] == [(2, 1, 1)] * len(run.calls)
    assert not run.findings


def test_an_autotuned_kernel(traced: Callable[[Any], Any]) -> None:
    tuned_scale_kernel = traced(kernels.tuned_scale_kernel)

    @torch.compile(fullgraph=True)
    def compiled(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        tuned_scale_kernel[blocks(N)](x, out_ptr=out, n=N, factor=3.0)
        return out

    x = torch.randn(N)
    with kernelscope.record(values="hash") as run:
        out = compiled(x)
    assert torch.equal(out, x * 3)
    [call] = run.calls
    assert call.kernel_name == "tuned_scale_kernel"
    assert call.arg_names == ("x_ptr", "out_ptr", "n", "factor")
    assert call.config["BLOCK"] in {config.kwargs["BLOCK"] for config in CONFIGS}
    assert call.grid == (-(-N // call.config["BLOCK"]), 1, 1)
    assert call.post_hashes == {0: fingerprint(x).bits, 1: fingerprint(out).bits}
    assert not run.findings


def test_a_kernel_that_calls_another_function(
    traced: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source then holds two functions, and it is the kernel's own that tells the roles."""
    monkeypatch.setattr(kernels, "increment", traced(kernels.increment))
    increment_kernel = traced(kernels.increment_kernel)

    @torch.compile(fullgraph=True)
    def compiled(x: torch.Tensor) -> torch.Tensor:
        increment_kernel[(2,)](x, N, BLOCK=BLOCK)
        return x

    x = torch.zeros(N)
    with kernelscope.record(values="hash") as run:
        compiled(x)
    assert torch.equal(x, torch.ones(N))
    [call] = run.select(kernel="increment_kernel")
    assert call.source.count("@triton.jit") == 2
    assert call.roles == ("inout", "scalar")
    assert call.pre_hashes == {0: fingerprint(torch.zeros(N)).bits}
    assert call.post_hashes == {0: fingerprint(x).bits}


def test_tensors_in_descriptors_that_the_wrapper_makes(
    traced: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments for a GPU's tensor memory accelerator: what a descriptor describes is the argument."""
    monkeypatch.setattr("torch.utils._triton.has_triton_tensor_descriptor_host_tma", lambda: True)
    rows_kernel = traced(kernels.doubled_rows_kernel)

    @torch.compile(fullgraph=True)
    def compiled(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        out = torch.empty_like(y)
        source, target = (TensorDescriptor.from_tensor(t, [4, 16]) for t in (y, out))
        rows_kernel[(2,)](source, target, ROWS=4)
        return out * 3

    x = torch.randn(8, 16)
    with kernelscope.record(values="hash") as run:
        for _ in range(3):
            result = compiled(x)
    torch.testing.assert_close(result, (x + 1) * 6)
    assert len(run) == 9
    assert not run.findings
    for i in range(0, 9, 3):
        plus, call, times = run.calls[i : i + 3]
        assert call.arg_names == ("source", "target")
        assert call.roles == ("in", "out")
        assert call.pre_hashes == {0: plus.post_hashes[1]}
        assert call.post_hashes == {0: plus.post_hashes[1], 1: times.pre_hashes[0]}


@torch.library.custom_op("kernelscope_test::scale", mutates_args=())
def scale_operator(x: torch.Tensor, factor: float) -> torch.Tensor:
    return kernels.scale(x, factor)


@scale_operator.register_fake
def _(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.empty_like(x)


def test_an_operator_in_a_compiled_graph_is_the_parent_of_what_it_launches() -> None:
    x = torch.randn(N)
    with kernelscope.record(values="hash") as run:
        out = torch.compile(lambda x: scale_operator(x, 3.0) + 1, fullgraph=True)(x)
    outer, inner, plus = run.calls
    assert (outer.kind, outer.kernel_name) == ("extern", "kernelscope_test.scale.default")
    assert (inner.kind, inner.producer, inner.kernel_name) == ("triton", "user", "scale_kernel")
    assert inner.parent == outer.index
    assert inner.graph is outer.graph
    assert (outer.parent, plus.parent) == (None, None)
    assert inner.post_hashes[1] == plus.pre_hashes[0] == fingerprint(x * 3).bits
    assert fingerprint(out).bits in plus.post_hashes.values()


def test_a_kernel_that_breaks_the_graph_is_recorded_between_its_halves() -> None:
    scale = torch.compiler.disable(kernels.scale)

    @torch.compile
    def compiled(x: torch.Tensor) -> torch.Tensor:
        return scale(x + 1, 3.0) + 1

    x = torch.randn(N)
    with kernelscope.record(values="hash") as run:
        out = compiled(x)
    torch.testing.assert_close(out, (x + 1) * 3 + 1)
    assert [c.producer for c in run.calls] == ["inductor", "user", "inductor"]
    before, call, after = run.calls
    assert call.graph is None
    assert call.arg_names == ("x_ptr", "out_ptr", "n", "factor")
    assert call.pre_hashes[0] == before.post_hashes[1]
    assert call.post_hashes[1] == after.pre_hashes[0]
