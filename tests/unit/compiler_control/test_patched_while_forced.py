"""A program that patches a setting while it is forced has its own value afterwards, whichever ends first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from unittest import mock

import pytest
import torch._inductor.config as inductor

from kernelscope.compiler_control.forced_settings import ForcedSettings
from kernelscope.probes.compilation.compile_settings import INDUCTOR

DEFAULT, SET, FORCED, PATCHED = 64, 5, 1, 7  # values of `max_fusion_size`, by who set them

Patching = Callable[[], AbstractContextManager[object]]
WAYS: dict[str, Patching] = {
    "config.patch": lambda: inductor.patch(max_fusion_size=PATCHED),
    "mock.patch.object": lambda: mock.patch.object(inductor, "max_fusion_size", PATCHED),
    "mock.patch": lambda: mock.patch("torch._inductor.config.max_fusion_size", PATCHED),
}


@pytest.fixture(params=[None, SET], ids=["unset", "set"], autouse=True)
def set_before(request: pytest.FixtureRequest) -> Iterator[int]:
    """What the program has set before, or the default."""
    assert inductor.max_fusion_size == DEFAULT
    if request.param is None:
        yield DEFAULT
        return
    with inductor.patch(max_fusion_size=request.param):
        yield request.param


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
def patching(request: pytest.FixtureRequest) -> Patching:
    way: Patching = request.param
    return way


def forcing(value: int = FORCED) -> ForcedSettings:
    forced = ForcedSettings([(INDUCTOR, "max_fusion_size", value)])
    assert forced.install() == []
    return forced


def test_a_patch_inside(patching: Patching, set_before: int) -> None:
    forced = forcing()
    with patching():
        assert inductor.max_fusion_size == FORCED
    assert inductor.max_fusion_size == FORCED
    forced.remove()
    assert inductor.max_fusion_size == set_before


def test_a_patch_that_was_made_before_and_is_entered_inside(patching: Patching, set_before: int) -> None:
    made = patching()
    forced = forcing()
    with made:
        pass
    forced.remove()
    assert inductor.max_fusion_size == set_before


def test_a_patch_entered_before_and_left_inside(patching: Patching, set_before: int) -> None:
    with patching():
        forced = forcing()
    forced.remove()
    assert inductor.max_fusion_size == set_before


def test_a_patch_entered_inside_and_left_after(patching: Patching, set_before: int) -> None:
    forced = forcing()
    with patching():
        forced.remove()
        assert inductor.max_fusion_size == PATCHED
    assert inductor.max_fusion_size == set_before


def test_patches_inside_each_other(patching: Patching, set_before: int) -> None:
    forced = forcing()
    with patching():
        again = forcing(3)
        with patching(), inductor.patch(max_fusion_size=9):
            again.remove()
        forced.remove()
        assert inductor.max_fusion_size == PATCHED
    assert inductor.max_fusion_size == set_before


def test_a_patch_to_the_forced_value(set_before: int) -> None:
    forced = forcing()
    with inductor.patch(max_fusion_size=FORCED):
        pass
    forced.remove()
    assert inductor.max_fusion_size == set_before


def test_a_program_that_had_set_the_forced_value(patching: Patching) -> None:
    with inductor.patch(max_fusion_size=FORCED):
        with patching():
            forced = forcing()
        with patching():
            pass
        forced.remove()
        assert inductor.max_fusion_size == FORCED


def test_a_program_that_sets_the_forced_value_keeps_it() -> None:
    with inductor.patch(max_fusion_size=SET):
        forced = forcing()
        inductor.max_fusion_size = FORCED
        with inductor.patch(max_fusion_size=PATCHED):
            pass
        forced.remove()
        assert inductor.max_fusion_size == FORCED


def test_a_decorator_that_calls_itself(set_before: int) -> None:
    @inductor.patch(max_fusion_size=PATCHED)  # type: ignore[untyped-decorator]
    def run(depth: int) -> None:
        if depth:
            run(depth - 1)

    forced = forcing()
    run(2)
    forced.remove()
    assert inductor.max_fusion_size == set_before


def test_a_setting_of_a_part(set_before: int) -> None:
    before = inductor.cpp.simdlen
    forced = ForcedSettings([(INDUCTOR, "cpp.simdlen", 1)])
    assert forced.install() == []
    with inductor.patch({"cpp.simdlen": 8}), mock.patch.object(inductor.cpp, "simdlen", 4):
        assert inductor.cpp.simdlen == 1
    forced.remove()
    assert inductor.cpp.simdlen is before


def test_another_thread() -> None:
    found: list[object] = []
    entered, removed = threading.Event(), threading.Event()

    def run() -> None:
        with inductor.patch(max_fusion_size=PATCHED):
            entered.set()
            removed.wait()
        found.append(inductor.max_fusion_size)

    forced = forcing()
    thread = threading.Thread(target=run)
    thread.start()
    entered.wait()
    forced.remove()
    removed.set()
    thread.join()
    assert found == [DEFAULT]


def test_a_default_is_not_handed_out() -> None:
    """Torch gives each reader of a list a copy, so that nobody changes the default."""
    forced = ForcedSettings([(INDUCTOR, "custom_should_partition_ops", ["aten::add"])])
    assert forced.install() == []
    with inductor.patch(custom_should_partition_ops=["aten::mul"]):
        pass
    forced.remove()
    assert inductor.custom_should_partition_ops == []
    assert (
        inductor.custom_should_partition_ops
        is not vars(inductor)["_config"]["custom_should_partition_ops"].default
    )


def test_a_value_that_the_environment_forces(set_before: int) -> None:
    entry = vars(inductor)["_config"]["max_fusion_size"]
    unset, entry.env_value_force = entry.env_value_force, 30
    try:
        forced = forcing()
        with inductor.patch(max_fusion_size=PATCHED):
            pass
        forced.remove()
        assert inductor.max_fusion_size == 30
    finally:
        entry.env_value_force = unset
        inductor.max_fusion_size = set_before
