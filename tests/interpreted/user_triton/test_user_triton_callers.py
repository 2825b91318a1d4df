"""Who launched a user-written Triton kernel: origins, phases, parent operators, order."""

from __future__ import annotations

import inspect

import torch
from tests.interpreted.two_blocks import N
from tests.programs import triton_kernels as kernels
from tests.programs.triton_kernels import BLOCK, blocks

import kernelscope
from kernelscope.fingerprint import fingerprint


def line_of(text: str) -> int:
    """The line of the calling test on which this text stands."""
    caller = inspect.stack()[1].frame
    lines, first = inspect.getsourcelines(caller.f_code)
    [found] = [i for i, line in enumerate(lines) if text in line and "line_of" not in line]
    return first + found


def test_each_line_is_its_own_origin(x: torch.Tensor) -> None:
    out = torch.empty(N)
    with kernelscope.record() as run:
        kernels.scale_kernel[(2,)](x, BLOCK, out, N)  # first
        kernels.scale_kernel[(2,)](x, BLOCK, out, N)  # second
        for _ in range(2):
            kernels.scale_kernel[(2,)](x, BLOCK, out, N)  # third
    lines = [line_of("# first"), line_of("# second"), line_of("# third"), line_of("# third")]
    assert [(c.origin.file, c.origin.line) for c in run.calls] == [(__file__, line) for line in lines]
    assert run.calls[0].origin.function == "test_each_line_is_its_own_origin"


def test_the_origin_of_an_autotuned_launch_is_the_users_line(x: torch.Tensor) -> None:
    with kernelscope.record() as run:
        kernels.tuned_scale(x, 2.0)
    [call] = run.calls
    assert call.origin.file == kernels.__file__
    assert call.origin.function == "tuned_scale"
    assert call.stack[1].file == __file__


def test_phase_with_and_without_gradients(x: torch.Tensor) -> None:
    with kernelscope.record() as run:
        kernels.scale(x, 2.0)
        with torch.no_grad():
            kernels.scale(x, 2.0)
    assert [c.phase for c in run.calls] == ["forward", "other"]


def test_calls_come_in_order_and_one_per_launch(x: torch.Tensor) -> None:
    with kernelscope.record() as run:
        kernels.add(kernels.scale(x, 2.0), kernels.scale(x, 3.0))
    assert [c.kernel_name for c in run.calls] == ["scale_kernel", "scale_kernel", "add_kernel"]
    assert [c.index for c in run.calls] == [0, 1, 2]
    assert run.calls[0].storages[1][0] == run.calls[2].storages[0][0], "what was written is what is read"
    assert run.calls[2].storages[0][1] == 1, "written once before"


def test_a_custom_operator_is_the_parent_of_what_it_launches(x: torch.Tensor) -> None:
    @torch.library.custom_op("kernelscope_test::eager_scale", mutates_args=())
    def eager_scale(x: torch.Tensor, factor: float) -> torch.Tensor:
        return kernels.scale(x, factor)

    with kernelscope.record(values="hash", ops="all") as run:
        out = eager_scale(x, 3.0)
    outer = next(c for c in run.calls if "eager_scale" in c.kernel_name)
    [inner] = run.select(kind="triton")
    assert outer.kind == "op"
    assert inner.parent == outer.index
    assert outer.index < inner.index
    assert inner.post_hashes[1] == fingerprint(out).bits
    assert inner.roles == ("in", "out", "scalar", "scalar")


def test_a_triton_operator_is_the_parent_of_what_it_launches(x: torch.Tensor) -> None:
    @torch.library.triton_op("kernelscope_test::eager_triton_scale", mutates_args={})
    def eager_triton_scale(x: torch.Tensor, factor: float) -> torch.Tensor:
        out = torch.empty_like(x)
        torch.library.wrap_triton(kernels.scale_kernel)[blocks(N)](x, BLOCK, out, N, factor)
        return out

    with kernelscope.record(ops="all") as run:
        out = eager_triton_scale(x, 3.0)
    assert torch.equal(out, x * 3.0)
    [outer] = run.select(kernel="*eager_triton_scale*")
    [inner] = run.select(kind="triton")
    assert inner.parent == outer.index


def test_two_recordings_see_one_launch_each(x: torch.Tensor) -> None:
    with kernelscope.record() as outer:
        kernels.scale(x, 2.0)
        with kernelscope.record() as inner:
            kernels.scale(x, 2.0)
    assert (len(outer), len(inner)) == (2, 1)
