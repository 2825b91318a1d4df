"""User-written Triton kernels on a GPU: compiled by Triton, benchmarked, traced into Inductor's wrapper."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch
import triton
from tests.programs import triton_kernels as kernels
from tests.programs.triton_kernels import BLOCK, CONFIGS, blocks

import kernelscope
from kernelscope.fingerprint import fingerprint

N = 1000  # no multiple of a block


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(N, device="cuda")


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_a_plain_launch_with_everything_about_it(x: torch.Tensor) -> None:
    y = torch.ones_like(x)
    with kernelscope.record(values="hash") as run:
        out = kernels.add(x, y)
    [call] = run.calls
    assert torch.equal(out, x + y)
    assert (call.kernel_name, call.kind, call.producer) == ("add_kernel", "triton", "user")
    assert call.grid == (triton.cdiv(N, BLOCK), 1, 1)
    assert call.config == {"BLOCK": BLOCK}
    assert call.arg_names == ("x_ptr", "y_ptr", "out_ptr", "n")
    assert call.roles == ("in", "in", "out", "scalar")
    assert call.args[3] == N
    assert "def add_kernel(" in call.source
    assert call.device == str(x.device)
    assert call.post_hashes == {i: fingerprint(t).bits for i, t in enumerate((x, y, out))}
    assert (call.origin.file, call.origin.function) == (kernels.__file__, "add")
    assert not run.findings


def test_a_constexpr_before_a_tensor_and_launch_options(x: torch.Tensor) -> None:
    out = torch.empty_like(x)
    with kernelscope.record(values="hash") as run:
        kernels.scale_kernel[blocks(N)](x, BLOCK, out, n=N, num_warps=8)
    [call] = run.calls
    assert torch.equal(out, x * 2)
    assert call.arg_names == ("x_ptr", "out_ptr", "n", "factor")
    assert call.args[2:] == (N, 2.0)
    assert call.config == {"BLOCK": BLOCK, "num_warps": 8}
    assert call.post_hashes == {0: fingerprint(x).bits, 1: fingerprint(out).bits}


def test_the_stream_is_the_one_launched_on(x: torch.Tensor) -> None:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with kernelscope.record() as run, torch.cuda.stream(side):
        kernels.scale(x, 2.0)
    torch.cuda.current_stream().wait_stream(side)
    assert [c.stream for c in run.calls] == [side.cuda_stream]


def test_a_grid_function_is_called_once(x: torch.Tensor) -> None:
    seen = []

    def grid(meta: dict) -> tuple[int]:
        seen.append(dict(meta))
        return blocks(N)(meta)

    with kernelscope.record() as run:
        kernels.scale_kernel[grid](x, BLOCK, torch.empty_like(x), N)
    assert [(meta["BLOCK"], meta["n"], meta["factor"]) for meta in seen] == [(BLOCK, N, 2.0)]
    assert run.calls[0].grid == (triton.cdiv(N, BLOCK), 1, 1)


def test_autotuning_is_not_recorded_and_its_choice_is(x: torch.Tensor) -> None:
    kernels.tuned_scale_kernel.cache.clear()
    with kernelscope.record(values="hash") as run:
        first = kernels.tuned_scale(x, 3.0)
        again = kernels.tuned_scale(x, 3.0)
    tuner = kernels.tuned_scale_kernel
    assert len(tuner.configs_timings) == len(CONFIGS), "every config was benchmarked"
    assert [c.kernel_name for c in run.calls] == ["tuned_scale_kernel"] * 2
    for call, out in zip(run.calls, (first, again), strict=True):
        assert call.config == tuner.best_config.all_kwargs()
        assert call.grid == (triton.cdiv(N, tuner.best_config.kwargs["BLOCK"]), 1, 1)
        assert call.arg_names == ("x_ptr", "out_ptr", "n", "factor")
        assert call.post_hashes == {0: fingerprint(x).bits, 1: fingerprint(out).bits}
    assert torch.equal(first, x * 3)


def test_what_autotuning_resets_is_seen_reset() -> None:
    x = torch.ones(N, device="cuda")  # whole numbers, so that the order of the additions does not matter
    kernels.tuned_accumulate_kernel.cache.clear()
    total = torch.zeros(1, device="cuda")
    with kernelscope.record(values="hash") as run:
        kernels.tuned_accumulate_kernel[blocks(N)](x, total, N)
    [call] = run.calls
    assert total.item() == N
    assert call.roles == ("in", "inout", "scalar")
    assert call.pre_hashes[1] == fingerprint(torch.zeros(1)).bits
    assert call.post_hashes[1] == fingerprint(total).bits


def test_heuristics_are_part_of_the_config(x: torch.Tensor) -> None:
    with kernelscope.record() as run:
        for n in (N, BLOCK):
            kernels.guarded_scale_kernel[blocks(n)](x, torch.empty_like(x), n, 2.0, BLOCK=BLOCK)
    assert [c.config for c in run.calls] == [{"BLOCK": BLOCK, "EVEN": False}, {"BLOCK": BLOCK, "EVEN": True}]


def test_none_for_a_pointer(x: torch.Tensor) -> None:
    out = torch.empty_like(x)
    with kernelscope.record(values="hash") as run:
        kernels.bias_kernel[blocks(N)](x, None, out, N, BLOCK=BLOCK)
    [call] = run.calls
    assert call.arg_names == ("x_ptr", "bias_ptr", "out_ptr", "n")
    assert call.args[1] is None
    assert call.post_hashes == {0: fingerprint(x).bits, 2: fingerprint(x).bits}


def test_warmup_is_not_a_launch(x: torch.Tensor) -> None:
    with kernelscope.record() as run:
        kernels.scale_kernel.warmup(x, BLOCK, torch.empty_like(x), N, grid=(1,))
    assert not run.calls


def test_a_compile_error_passes_through_and_marks_the_call(x: torch.Tensor) -> None:
    with kernelscope.record(values="hash") as run:
        with pytest.raises(Exception, match="refused") as caught:
            kernels.refusing_kernel[(1,)](x, N, BLOCK=BLOCK)
        kernels.scale(x, 2.0)
    failed, after = run.calls
    assert failed.error.startswith(f"{type(caught.value).__name__}: ")
    assert failed.post_hashes == {}
    assert (after.error, after.parent) == ("", None)


def test_compiled_with_a_constexpr_before_a_tensor(x: torch.Tensor) -> None:
    @torch.compile(fullgraph=True)
    def scale(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernels.scale_kernel[blocks(N)](x + 1, BLOCK, out, N, 3.0)
        return out

    with kernelscope.record(values="hash") as run:
        outs = [scale(x) for _ in range(3)]  # the later ones through Inductor's fast launchers
    assert len(run.calls) == 6
    for plus, call, out in zip(run.calls[::2], run.calls[1::2], outs, strict=True):
        torch.testing.assert_close(out, (x + 1) * 3)
        assert (plus.producer, call.producer) == ("inductor", "user")
        assert (call.kernel_name, call.kind, call.parent) == ("scale_kernel", "triton", None)
        assert call.arg_names == ("x_ptr", "out_ptr", "n", "factor")
        assert call.roles == ("in", "out", "scalar", "scalar")
        assert call.args[2:] == (N, 3.0)
        assert call.grid == (triton.cdiv(N, BLOCK), 1, 1)
        assert call.config["BLOCK"] == BLOCK
        assert call.pre_hashes[0] == plus.post_hashes[1] == fingerprint(x + 1).bits
        assert call.post_hashes[1] == fingerprint(out).bits
        assert call.graph is plus.graph
        assert call.origin.file == __file__
    assert not run.findings


def test_compiled_roles_come_from_the_source() -> None:
    @torch.compile(fullgraph=True)
    def compiled(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernels.bias_kernel[blocks(N)](x, None, out, N, BLOCK=BLOCK)
        kernels.accumulate_kernel[blocks(N)](out, total, N, BLOCK=BLOCK)
        kernels.increment_kernel[blocks(N)](out, N, BLOCK=BLOCK)
        return out

    x, total = torch.ones(N, device="cuda"), torch.full((1,), 5.0, device="cuda")
    with kernelscope.record(values="hash") as run:
        out = compiled(x, total)
    assert total.item() == N + 5
    assert torch.equal(out, x + 1)
    biased, summed, incremented = run.select(kernel="*_kernel")
    assert biased.arg_names == ("x_ptr", "bias_ptr", "out_ptr", "n")
    assert biased.roles == ("in", "scalar", "out", "scalar")
    assert summed.arg_names == ("x_ptr", "total_ptr", "n")
    assert summed.roles == ("in", "inout", "scalar")
    assert summed.pre_hashes[1] == fingerprint(torch.full((1,), 5.0)).bits
    assert summed.post_hashes[1] == fingerprint(total).bits
    assert incremented.roles == ("inout", "scalar")
    assert incremented.post_hashes == {0: fingerprint(out).bits}
    assert not run.findings


def test_compiled_autotuning_is_not_recorded(x: torch.Tensor) -> None:
    @torch.compile(fullgraph=True)
    def compiled(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernels.tuned_scale_kernel[blocks(N)](x, out_ptr=out, n=N, factor=3.0)
        return out

    with torch._inductor.utils.fresh_inductor_cache(), kernelscope.record(values="hash") as run:
        outs = [compiled(x) for _ in range(2)]
    first, second = run.calls
    for call, out in zip((first, second), outs, strict=True):
        assert torch.equal(out, x * 3)
        assert (call.kernel_name, call.producer) == ("tuned_scale_kernel", "user")
        assert call.arg_names == ("x_ptr", "out_ptr", "n", "factor")
        assert {"BLOCK": call.config["BLOCK"], "num_warps": call.config["num_warps"]} in [
            config.kwargs | {"num_warps": config.num_warps} for config in CONFIGS
        ]
        assert call.grid == (triton.cdiv(N, call.config["BLOCK"]), 1, 1)
        assert call.post_hashes == {0: fingerprint(x).bits, 1: fingerprint(out).bits}


@torch.library.custom_op("kernelscope_gpu_test::scale", mutates_args=())
def scale_operator(x: torch.Tensor, factor: float) -> torch.Tensor:
    return kernels.scale(x, factor)


@scale_operator.register_fake
def _(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.triton_op("kernelscope_gpu_test::triton_scale", mutates_args={})
def triton_scale_operator(x: torch.Tensor, factor: float) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(kernels.scale_kernel)[blocks(N)](x, BLOCK, out, N, factor)
    return out


def test_a_compiled_operator_is_the_parent_of_what_it_launches(x: torch.Tensor) -> None:
    with kernelscope.record(values="hash") as run:
        out = torch.compile(lambda x: scale_operator(x, 3.0) + 1, fullgraph=True)(x)
    torch.testing.assert_close(out, x * 3 + 1)
    outer, inner, plus = run.calls
    assert (outer.kind, outer.kernel_name) == ("extern", "kernelscope_gpu_test.scale.default")
    assert (inner.kind, inner.producer, inner.kernel_name) == ("triton", "user", "scale_kernel")
    assert (outer.parent, inner.parent, plus.parent) == (None, outer.index, None)
    assert inner.post_hashes[1] == plus.pre_hashes[0]


def test_a_compiled_triton_operator_is_traced_into_the_wrapper(x: torch.Tensor) -> None:
    with kernelscope.record(values="hash") as run:
        out = torch.compile(lambda x: triton_scale_operator(x, 3.0), fullgraph=True)(x)
    [call] = run.calls
    assert torch.equal(out, x * 3)
    assert (call.kernel_name, call.parent) == ("scale_kernel", None)
    assert re.search(r"\bscale_kernel_\d+\.run\(", call.graph.source)
    assert call.arg_names == ("x_ptr", "out_ptr", "n", "factor")


@pytest.mark.parametrize("operator", [scale_operator, triton_scale_operator], ids=["custom_op", "triton_op"])
def test_an_eager_operator_is_the_parent_of_what_it_launches(operator, x: torch.Tensor) -> None:
    with kernelscope.record(ops="all") as run:
        operator(x, 3.0)
    [inner] = run.select(kind="triton")
    [outer] = [c for c in run.calls if c.index == inner.parent]
    assert outer.kind == "op"
    assert outer.kernel_name.startswith("kernelscope_gpu_test.")
