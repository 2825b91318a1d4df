"""User-written Triton kernels, launched from Python: what is recorded of a launch."""

from __future__ import annotations

import pytest
import torch
import triton
from tests.interpreted.two_blocks import N
from tests.programs import triton_kernels as kernels
from tests.programs.triton_kernels import BLOCK, blocks

import kernelscope
from kernelscope.fingerprint import fingerprint
from kernelscope.probes.triton import user_kernels as user_triton


def test_a_plain_launch_with_everything_about_it(x: torch.Tensor) -> None:
    y = torch.ones(N)
    with kernelscope.record(values="hash") as run:
        out = kernels.add(x, y)
    [call] = run.calls
    assert torch.equal(out, x + y)
    assert (call.kernel_name, call.kind, call.producer) == ("add_kernel", "triton", "user")
    assert call.grid == (2, 1, 1)
    assert call.config == {"BLOCK": BLOCK}
    assert call.arg_names == ("x_ptr", "y_ptr", "out_ptr", "n")
    assert call.roles == ("in", "in", "out", "scalar")
    assert call.args[3] == N
    assert call.source.lstrip().startswith("@triton.jit\ndef add_kernel(")
    assert call.device == "cpu"
    assert call.post_hashes == {i: fingerprint(t).bits for i, t in enumerate((x, y, out))}
    assert call.pre_hashes.keys() >= {0, 1}
    assert call.changed_args <= {2}
    assert call.modified_args == {2}
    assert not run.findings


def test_a_constexpr_before_a_tensor_does_not_shift_the_names(x: torch.Tensor) -> None:
    with kernelscope.record(values="hash") as run:
        out = kernels.scale(x, 3.0)
    [call] = run.calls
    assert call.arg_names == ("x_ptr", "out_ptr", "n", "factor")
    assert call.roles == ("in", "out", "scalar", "scalar")
    assert call.args[2:] == (N, 3.0)
    assert call.config == {"BLOCK": BLOCK}
    assert call.post_hashes == {0: fingerprint(x).bits, 1: fingerprint(out).bits}


def test_keywords_in_any_order_and_a_default(x: torch.Tensor) -> None:
    out = torch.zeros(N)
    with kernelscope.record(values="hash") as run:
        kernels.scale_kernel[(2,)](n=N, out_ptr=out, BLOCK=BLOCK, x_ptr=x)
    [call] = run.calls
    assert torch.equal(out, x * 2.0)
    assert call.arg_names == ("x_ptr", "out_ptr", "n", "factor")
    assert call.args[2:] == (N, 2.0)
    assert call.pre_hashes == {0: fingerprint(x).bits, 1: fingerprint(torch.zeros(N)).bits}
    assert call.post_hashes == {0: fingerprint(x).bits, 1: fingerprint(out).bits}


def test_launch_options_are_part_of_the_config(x: torch.Tensor) -> None:
    with kernelscope.record() as run:
        kernels.scale_kernel[(2, 1)](x, BLOCK, torch.empty(N), N, num_warps=8)
    [call] = run.calls
    assert call.grid == (2, 1, 1)
    assert call.config == {"BLOCK": BLOCK, "num_warps": 8}


def test_a_grid_function_is_called_once_with_the_parameters(x: torch.Tensor) -> None:
    seen = []

    def grid(meta: dict) -> tuple[int]:
        seen.append(dict(meta))
        return blocks(N)(meta)

    with kernelscope.record() as run:
        kernels.scale_kernel[grid](x, BLOCK, torch.empty(N), N)
    [meta] = seen
    assert meta["BLOCK"] == BLOCK
    assert meta["n"] == N
    assert meta["factor"] == 2.0
    assert run.calls[0].grid == (2, 1, 1)


def test_an_autotuned_kernel_is_recorded_as_chosen_and_never_while_tuning(x: torch.Tensor) -> None:
    kernels.tuned_scale_kernel.cache.clear()
    with kernelscope.record(values="hash") as run:
        first = kernels.tuned_scale(x, 3.0)
        again = kernels.tuned_scale(x, 3.0)
    chosen = kernels.tuned_scale_kernel.best_config
    assert chosen is kernels.CONFIGS[-1], "the benchmarker makes the last one win, so tuning did happen"
    assert [c.kernel_name for c in run.calls] == ["tuned_scale_kernel"] * 2
    for call, out in zip(run.calls, (first, again), strict=True):
        assert call.config == chosen.all_kwargs()
        assert call.grid == (triton.cdiv(N, chosen.kwargs["BLOCK"]), 1, 1)
        assert call.arg_names == ("x_ptr", "out_ptr", "n", "factor")
        assert call.post_hashes == {0: fingerprint(x).bits, 1: fingerprint(out).bits}


def test_what_autotuning_resets_is_seen_reset(x: torch.Tensor) -> None:
    kernels.tuned_accumulate_kernel.cache.clear()
    total = torch.zeros(1)
    with kernelscope.record(values="hash") as run:
        kernels.tuned_accumulate_kernel[blocks(N)](x, total, N)
    [call] = run.calls
    assert torch.allclose(total, x.sum(), atol=1e-4)
    assert call.roles == ("in", "inout", "scalar")
    assert call.pre_hashes[1] == fingerprint(torch.zeros(1)).bits
    assert call.post_hashes[1] == fingerprint(total).bits


def test_the_pre_hook_of_a_config_has_run_before_the_launch_is_seen(x: torch.Tensor) -> None:
    def fill(args: dict) -> None:
        args["total_ptr"].fill_(5.0)

    config = triton.Config({"BLOCK": BLOCK}, pre_hook=fill)
    kernel = triton.autotune(configs=[config], key=["n"])(kernels.accumulate_kernel)
    total = torch.zeros(1)
    with kernelscope.record(values="hash") as run:
        kernel[blocks(N)](x, total, N)
    [call] = run.calls
    assert call.pre_hashes[1] == fingerprint(torch.full((1,), 5.0)).bits
    assert call.config["BLOCK"] == BLOCK


def test_heuristics_are_part_of_the_config(x: torch.Tensor) -> None:
    with kernelscope.record() as run:
        kernels.guarded_scale_kernel[blocks(N)](x, torch.empty(N), N, 2.0, BLOCK=BLOCK)
        kernels.guarded_scale_kernel[blocks(64)](x, torch.empty(N), 64, 2.0, BLOCK=BLOCK)
    assert [c.config for c in run.calls] == [{"BLOCK": BLOCK, "EVEN": False}, {"BLOCK": BLOCK, "EVEN": True}]
    assert run.calls[0].arg_names == ("x_ptr", "out_ptr", "n", "factor")


def test_none_and_a_tensor_for_the_same_parameter(x: torch.Tensor) -> None:
    out = torch.empty(N)
    with kernelscope.record(values="hash") as run:
        for bias in (None, torch.ones(N)):
            kernels.bias_kernel[blocks(N)](x, bias, out, N, BLOCK=BLOCK)
    without, with_bias = run.calls
    assert without.arg_names == with_bias.arg_names == ("x_ptr", "bias_ptr", "out_ptr", "n")
    assert without.args[1] is None
    assert without.roles == ("in", "scalar", "out", "scalar")
    assert without.post_hashes.keys() == {0, 2}
    assert without.post_hashes[2] == fingerprint(x).bits
    assert with_bias.roles == ("in", "in", "out", "scalar")
    assert with_bias.post_hashes[2] == fingerprint(out).bits == fingerprint(x + 1).bits


class Named(torch.Tensor):
    """A subclass without a dispatch of its own."""


def test_a_parameter_and_a_subclass(x: torch.Tensor) -> None:
    parameter = torch.nn.Parameter(x.clone())
    named = x.clone().as_subclass(Named)
    with torch.no_grad(), kernelscope.record(values="hash") as run:
        kernels.add_kernel[blocks(N)](parameter, named, torch.empty(N), N, BLOCK=BLOCK)
    [call] = run.calls
    assert [a.tensor.type for a in call.arguments[:3]] == ["Tensor", "Named", "Tensor"]
    assert call.pre_hashes[0] == call.pre_hashes[1] == fingerprint(x).bits
    assert call.post_hashes[2] == fingerprint(x + x).bits


def test_a_transposed_tensor_is_hashed_in_its_logical_order() -> None:
    x = torch.arange(12.0).reshape(3, 4).t()
    out = torch.empty(4)
    with kernelscope.record(values="hash") as run:
        kernels.row_sum_kernel[(4,)](x, out, x.stride(0), 3, BLOCK=BLOCK)
    [call] = run.calls
    spec = call.arguments[0].tensor
    assert (spec.shape, spec.stride) == ((4, 3), (1, 4))
    assert call.pre_hashes[0] == fingerprint(x).bits == fingerprint(x.contiguous()).bits


def test_a_slice_has_its_own_hash_and_offset(x: torch.Tensor) -> None:
    with kernelscope.record(values="hash") as run:
        kernels.scale_kernel[(1,)](x[10:20], BLOCK, torch.empty(10), 10)
    [call] = run.calls
    assert call.pre_hashes[0] == fingerprint(x[10:20]).bits
    assert call.storages[0][2] == 10


def test_warmup_is_not_a_launch(x: torch.Tensor) -> None:
    with kernelscope.record() as run:
        kernels.scale_kernel.warmup(x, BLOCK, torch.empty(N), N, grid=(2,))
    assert not run.calls


def test_an_exception_passes_through_and_marks_the_call(x: torch.Tensor) -> None:
    def refused() -> Exception:
        with pytest.raises(Exception, match="refused") as caught:
            kernels.refusing_kernel[(1,)](x, N, BLOCK=BLOCK)
        return caught.value

    bare = refused()
    with kernelscope.record(values="hash") as run:
        recorded = refused()
        kernels.scale(x, 2.0)
    assert type(recorded) is type(bare)
    assert str(recorded) == str(bare)
    failed, after = run.calls
    assert failed.error.startswith(f"{type(bare).__name__}: ")
    assert "refused" in failed.error
    assert failed.pre_hashes == {0: fingerprint(x).bits}
    assert failed.post_hashes == {}
    assert after.error == ""
    assert after.parent is None, "the failed call is over"


def test_an_exception_of_the_grid_function_passes_through(x: torch.Tensor) -> None:
    def grid(meta: dict) -> tuple[int]:
        raise LookupError("no grid today")

    with kernelscope.record() as run:
        with pytest.raises(LookupError, match="no grid today"):
            kernels.scale_kernel[grid](x, BLOCK, torch.empty(N), N)
        kernels.scale(x, 2.0)
    assert [c.error for c in run.calls] == [""]


@pytest.mark.parametrize("ours", ["_bind", "_split"])
def test_a_fault_of_ours_does_not_reach_the_program(
    x: torch.Tensor, monkeypatch: pytest.MonkeyPatch, ours: str
) -> None:
    """The kernel is launched once, and its own errors still pass through."""

    def fail(*_: object) -> None:
        raise LookupError("a fault of ours")

    monkeypatch.setattr(user_triton, ours, fail)
    total, grids = torch.zeros(1), []

    def grid(meta: dict[str, int]) -> tuple[int]:
        grids.append(blocks(N)(meta))
        return grids[-1]

    with kernelscope.record() as run:
        kernels.accumulate_kernel[grid](x, total, N, BLOCK=BLOCK)
        with pytest.raises(ZeroDivisionError):
            kernels.accumulate_kernel[lambda meta: (1 // 0,)](x, total, N, BLOCK=BLOCK)
    torch.testing.assert_close(total, x.sum().reshape(1))  # added once
    assert grids == [(2,)]
    assert not run.calls
    [finding] = run.findings
    assert finding.kind == "recorder-error"
    assert "accumulate_kernel" in finding.message
    assert "a fault of ours" in finding.message


@pytest.mark.parametrize(
    ("launch", "roles"),
    [
        pytest.param(
            lambda x: kernels.accumulate_kernel[(2,)](x, torch.zeros(1), N, BLOCK),
            ("in", "inout", "scalar"),
            id="atomic",
        ),
        pytest.param(
            lambda x: kernels.row_sum_kernel[(1,)](x, torch.zeros(1), N, N, BLOCK),
            ("in", "out", "scalar", "scalar"),
            id="loop",
        ),
        pytest.param(
            lambda x: kernels.increment_kernel[(2,)](x, N, BLOCK), ("inout", "scalar"), id="other-function"
        ),
    ],
)
def test_roles_come_from_the_source(launch, roles, x: torch.Tensor) -> None:
    with kernelscope.record(values="hash") as run:
        launch(x)
    [call] = run.calls
    assert call.roles == roles
    assert call.changed_args == {i for i, role in enumerate(roles) if role in ("out", "inout")}
    assert not run.findings


def test_fresh_memory_is_an_output_without_a_before(x: torch.Tensor) -> None:
    with kernelscope.record(values="hash", ops="all") as run:
        out = kernels.scale(x, 3.0)
        kernels.scale_kernel[(2,)](x, BLOCK, out, N)
    fresh, rewritten = run.select(kind="triton")
    assert fresh.uninitialised == (1,)
    assert fresh.pre_hashes.keys() == {0}
    assert rewritten.uninitialised == ()
    assert rewritten.pre_hashes[1] == fresh.post_hashes[1]
