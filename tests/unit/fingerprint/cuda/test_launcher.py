"""Prepared launches through C++, with functions of ours in the driver's place: what do they get?"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from kernelscope.fingerprint.cuda.launcher import LAUNCH_KERNEL, Launcher, Prepared
from kernelscope.native.load import start

CONTEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_size_t))
TWO = [
    Prepared(1, 2, 128, 0, False, (7, 0, 0), ((1, 0, 8),), ((2, 0, 0),)),
    Prepared(2, 3, 128, 16, True, (7, 0, 0), ((1, 0, 16),), ((2, 1, 0),)),
]


class Driver:
    """Remembers what it was asked to launch."""

    def __init__(self) -> None:
        self.launched: list[tuple[int, ...]] = []
        self.errors: list[int] = []
        self.context = 1
        self._functions = LAUNCH_KERNEL(self._launch), CONTEXT(self._current)
        launch, context = (ctypes.cast(f, ctypes.c_void_p).value or 0 for f in self._functions)
        self.functions = launch, context

    def _launch(self, config: Any, function: int, places: Any, extra: Any) -> int:
        given = config[0]
        numbers = (places[i][0] for i in range(5))
        self.launched.append((function, given.grid[0], given.shared, given.stream, given.count, *numbers))
        return self.errors.pop(0) if self.errors else 0

    def _current(self, found: Any) -> int:
        found[0] = self.context
        return 0


class Chunk:
    writes = 0


@pytest.fixture(scope="module")
def launcher() -> Launcher:
    return start(Launcher)[0]


class Setting:
    def __init__(self, launcher: Launcher) -> None:
        self.driver, self.chunk = Driver(), Chunk()
        self.careful: list[Any] = []
        self.refused: list[int] = []
        self.flush: Callable[..., None] = launcher.flush(
            self.driver.functions,
            TWO,
            lambda *given: self.careful.append(given),
            lambda execution, error: self.refused.append(error),
            stream=1,
            counted=(2,),
        )
        self.execution = (1000, 55, self.chunk)
        self.a, self.b = torch.zeros(8), torch.zeros(4)


@pytest.fixture
def setting(launcher: Launcher) -> Setting:
    return Setting(launcher)


def test_each_launch_gets_its_numbers(setting: Setting) -> None:
    setting.flush(setting.execution, setting.a, setting.b)
    assert setting.driver.launched == [
        (1, 2, 0, 55, 0, 7, 1008, setting.a.data_ptr(), 0, 0),
        (2, 3, 16, 55, 1, 7, 1016, setting.b.data_ptr(), 0, 0),
    ]
    assert setting.chunk.writes == 2
    assert not setting.careful
    assert not setting.refused


class Silent(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("a mode of the user's saw us")


def test_what_is_out_of_the_ordinary_is_done_carefully(setting: Setting) -> None:
    given = setting.execution, setting.a, setting.b
    with Silent():
        setting.flush(*given)
    misaligned = setting.execution, setting.a[1:], setting.b
    without_memory = setting.execution, setting.a, torch.zeros(0)
    meta = setting.execution, setting.a, "no tensor"
    for each in (misaligned, without_memory, meta):
        setting.flush(*each)
    setting.driver.context = 0
    setting.flush(*given)
    assert setting.careful == [given, misaligned, without_memory, meta, given]
    assert not setting.driver.launched
    assert setting.chunk.writes == 0


def test_a_launch_that_the_driver_refuses(setting: Setting) -> None:
    setting.driver.errors = [0, 700]
    setting.flush(setting.execution, setting.a, setting.b)
    assert setting.refused == [700]
    assert setting.chunk.writes == 0


def test_what_does_not_fit_together(launcher: Launcher, setting: Setting) -> None:
    missing = Prepared(1, 1, 1, 0, False, (1,), ((1, 0, 0),), ())
    with pytest.raises(ValueError, match="does not have"):
        launcher.flush((1, 1), [missing], print, print, stream=1, counted=())
    with pytest.raises(ValueError, match="at most 64 numbers"):
        launcher.flush(
            (1, 1), [Prepared(1, 1, 1, 0, False, (1,) * 65, (), ())], print, print, stream=1, counted=()
        )


def test_it_is_freed(launcher: Launcher) -> None:
    class Held:
        def __call__(self, *given: Any) -> None: ...

    def count() -> int:
        return sum(type(found) is Held for found in gc.get_objects())

    flushes = [launcher.flush((1, 1), TWO, Held(), Held(), stream=1, counted=(2,)) for _ in range(10)]
    assert count() == 20
    del flushes
    gc.collect()
    assert count() == 0
