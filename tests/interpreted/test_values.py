"""Values of Triton kernels: the user's own and Inductor's."""

from __future__ import annotations

import io
import math

import pytest
import torch
from tests.programs import triton_kernels as kernels

from kernelscope.values import WatchHit, observe, watch


def test_a_users_kernel_prints_its_arguments() -> None:
    x, stream = torch.arange(4.0), io.StringIO()
    with observe("2", stream=stream, kernels="SCALE*"):
        out = kernels.scale(x, 3.0)
    lines = stream.getvalue().splitlines()
    titles = [line for line in lines if line.startswith("inductor: ")]
    assert titles == [
        "inductor: before_launch - scale_kernel - x_ptr",
        "inductor: before_launch - scale_kernel - out_ptr",
        "inductor: before_launch - scale_kernel - n",
        "inductor: before_launch - scale_kernel - factor",
        "inductor: after_launch - scale_kernel - x_ptr",
        "inductor: after_launch - scale_kernel - out_ptr",
    ]
    assert lines[lines.index(titles[3]) + 1] == "Value:  3.0"
    assert lines[lines.index(titles[5]) + 1] == str(out)


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # the interpreter is numpy
def test_a_users_kernel_that_makes_a_nan() -> None:
    x = torch.tensor([1.0, math.inf])
    with pytest.raises(WatchHit) as stopped, watch("nan"):
        kernels.add(x, -x)
    hit = stopped.value.hit
    assert (hit.kernel, hit.kind, hit.arg, hit.is_producer) == ("add_kernel", "triton", "out_ptr", True)
    assert torch.equal(hit.inputs["x_ptr"], x)
    assert "its input x_ptr holds 1 +inf" in str(hit)


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_what_was_in_fresh_memory_is_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "empty_like", lambda x: torch.full_like(x, math.nan))
    x = torch.tensor([1.0, math.inf])
    with pytest.raises(WatchHit) as stopped, watch("nan"):
        kernels.add(x, -x)
    assert stopped.value.hit.is_producer
    assert "this call produced it, unless it leaves part of out_ptr" in str(stopped.value.hit)
    with pytest.raises(WatchHit) as stopped, watch("nan"):
        kernels.add(x * math.nan, x)
    assert not stopped.value.hit.is_producer


@pytest.mark.usefixtures("inductor_triton")
def test_inductors_kernels() -> None:
    function = torch.compile(lambda x: (x - 1) * 2)
    x, stream = torch.arange(4.0), io.StringIO()
    with observe("2", stream=stream) as run:
        out = function(x)
    [call] = run.calls
    text = stream.getvalue()
    assert call.kind == "triton"
    assert f"inductor: after_launch - {call.kernel_name} - buf0\nArgument:  out_ptr0 (out)\n{out}\n" in text
    assert "uninitialised" in text
    assert text.startswith("aoti_model_inputs - arg0_1\n")


@pytest.mark.usefixtures("inductor_triton")
def test_multi_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stock refuses these."""
    monkeypatch.setenv("TORCHINDUCTOR_DISABLE_MULTI_KERNEL_CACHE", "1")
    stream, x = io.StringIO(), torch.arange(64.0).view(1, 64)
    with torch._inductor.config.patch({"triton.multi_kernel": 1}):
        function = torch.compile(lambda x: (x * 3).sum(1))
        with observe("2", stream=stream) as run:
            out = function(x)
    [call] = run.calls
    assert "multi_kernel" in call.graph.source
    assert f"inductor: after_launch - {call.kernel_name} - buf0\n" in stream.getvalue()
    assert f"(out)\n{out}\n" in stream.getvalue()
