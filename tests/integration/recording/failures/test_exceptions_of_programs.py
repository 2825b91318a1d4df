"""Exceptions of a program pass through a recording, keep nothing alive, and leave everything restored."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.integration.recording.loaded_wrappers import contents, wrapper_modules

import kernelscope
from kernelscope.probes.bus import BUS


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    lib = torch.library.Library("kernelscope_not_perturbing", "DEF")
    lib.define("fail_if_negative(Tensor x) -> Tensor")

    def fail_if_negative(x: torch.Tensor) -> torch.Tensor:
        if (x < 0).any():
            raise ArithmeticError("negative")
        return x.clone()

    lib.impl("fail_if_negative", fail_if_negative, "CPU")
    lib.impl("fail_if_negative", lambda x: torch.empty_like(x), "Meta")
    yield torch.ops.kernelscope_not_perturbing
    lib._destroy()


def test_exception_inside_a_compiled_graph(library: Any, leftovers: Callable[[], list[str]]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return library.fail_if_negative(x.neg()) + 1

    compiled = torch.compile(f)
    compiled(-torch.ones(3))
    modules = wrapper_modules()
    before = [contents(m) for m in modules]
    assert before
    with kernelscope.record(values="hash") as run:
        compiled(-torch.ones(3))
        with pytest.raises(ArithmeticError, match="negative"):
            compiled(torch.ones(3))
    assert [c.error for c in run] == ["", "", "", "", "ArithmeticError: negative"]
    assert run.calls[-1].kernel_name.startswith("kernelscope_not_perturbing.fail_if_negative")
    assert [contents(m) for m in modules] == before
    assert not leftovers()
    assert BUS.here.launch is None
    assert BUS.here.in_graph == 0


def test_a_caught_exception_leaves_the_recording_going(library: Any) -> None:
    compiled = torch.compile(lambda x: library.fail_if_negative(x) + 1)
    compiled(torch.ones(3))
    with kernelscope.record(values="hash", ops="all") as run:
        with pytest.raises(ArithmeticError):
            compiled(-torch.ones(3))
        with pytest.raises(ArithmeticError):
            library.fail_if_negative(-torch.ones(3))
        torch.ones(3).sin()
        compiled(torch.ones(3))
    failed = [c for c in run if c.error]
    assert [(c.kind, c.error) for c in failed] == [
        ("extern", "ArithmeticError: negative"),
        ("op", "ArithmeticError: negative"),
    ]
    assert all(not c.post_hashes for c in failed)
    assert all(c.pre_hashes for c in failed)
    assert run.select(kernel="aten.sin.default")
    assert all(c.parent is None for c in run.select(kernel="aten.sin.default"))
    assert [c.kind for c in run][-2:] == ["extern", "cpp"]
    assert not run.findings


def test_the_exception_is_the_users_own_object_and_keeps_nothing_alive(library: Any) -> None:
    gc.collect()
    gc.disable()
    try:
        with kernelscope.record(values="hash", ops="all"):
            x = -torch.ones(3)
            watched = weakref.ref(x)
            with pytest.raises(ArithmeticError) as caught:
                library.fail_if_negative(x)
            assert caught.value.args == ("negative",)
            assert caught.value.__cause__ is None
            del x, caught
            assert watched() is None, "a reference cycle holds the arguments of the failed call"
    finally:
        gc.enable()
