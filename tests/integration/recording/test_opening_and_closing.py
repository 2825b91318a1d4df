"""The block that is recorded: decorators, nesting, exceptions, modes, and what is left in memory after it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from tests.support.mode_logs import OperatorLog

import kernelscope
from kernelscope.config import Config
from kernelscope.probes.bus import BUS
from kernelscope.recording import Recording


def test_users_dispatch_mode_sees_only_the_programs_operators(
    tiny: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    def program() -> list[str]:
        with OperatorLog() as log:
            torch.ones(3).sin().add_(1)
        return log.seen

    bare = program()
    with kernelscope.record(values="hash", ops="all") as run:
        inner = program()
    with OperatorLog() as outer, kernelscope.record(values="hash", ops="all"):
        torch.ones(3).sin().add_(1)
    assert inner == bare == outer.seen
    assert [c.kernel_name for c in run] == bare


def test_exceptions_in_the_users_block(
    tiny: Callable[[torch.Tensor], torch.Tensor], leftovers: Callable[[], list[str]]
) -> None:
    class Own(BaseException):
        pass

    for error in (ValueError("x"), KeyboardInterrupt(), Own(), StopIteration(), GeneratorExit()):
        runs: list[kernelscope.Run] = []

        def program(error: BaseException, runs: list[kernelscope.Run]) -> None:
            with kernelscope.record(ops="all") as run:
                runs.append(run)
                tiny(torch.ones(8))
                raise error

        with pytest.raises(type(error)) as caught:
            program(error, runs)
        assert caught.value is error
        assert runs[0].select(kind="cpp")
        assert not leftovers()


# -- what a recording leaves in memory -----------------------------------------------------------------


def test_a_thousand_recordings_leave_nothing(
    tiny: Callable[[torch.Tensor], torch.Tensor], leftovers: Callable[[], list[str]]
) -> None:
    x = torch.ones(8)
    with kernelscope.record(ops="all"):
        tiny(x)
    gc.collect()
    objects = len(gc.get_objects())
    runs = []
    for i in range(1000):
        with kernelscope.record(values="hash" if i % 2 else "off", ops="all" if i % 3 else "graph") as run:
            if i % 100 == 0:
                tiny(x) + 1
        runs.append(weakref.ref(run))
    del run
    gc.collect()
    assert not [r for r in runs if r() is not None]
    assert len(gc.get_objects()) - objects < 1500  # the weak references themselves are a thousand
    assert BUS.storages.count == 0
    assert not BUS.kernels
    assert not leftovers()


def test_a_recording_keeps_no_tensor_alive(tiny: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with kernelscope.record(values="hash", ops="all") as run:
        x = torch.ones(8)
        y = tiny(x) * 2
        storages = [weakref.ref(t) for t in (x, y)]
        del x, y
        assert [s() for s in storages] == [None, None]
    assert len(run) == 3


def test_a_long_recording_knows_only_living_storages() -> None:
    with kernelscope.record(ops="all", kernel="no-such-kernel") as run:
        for _ in range(9_000):
            torch.empty(1).fill_(1)
        assert BUS.storages.count <= 4096
    assert len(run) == 0


# -- the shape of record() -----------------------------------------------------------------------------


def test_as_a_decorator(tiny: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Each call of the function is a recording of its own; its run is not at hand."""

    @kernelscope.record()
    def program() -> tuple[torch.Tensor, int]:
        return tiny(torch.ones(8)), len(BUS.listeners)

    for _ in range(2):
        out, listening = program()
        assert listening == 1
        assert torch.equal(out, tiny(torch.ones(8)))
    assert not BUS.listeners


def test_one_recording_cannot_be_entered_twice(leftovers: Callable[[], list[str]]) -> None:
    recording = kernelscope.record()
    with recording:
        pass
    with pytest.raises((RuntimeError, AttributeError)), recording:
        pytest.fail("entered again")
    assert not leftovers()


def test_a_dropped_recording_closes_itself(leftovers: Callable[[], list[str]]) -> None:
    manager = kernelscope.record(ops="all")
    manager.__enter__()
    assert leftovers()
    del manager
    gc.collect()
    assert not leftovers()


def test_nested_and_overlapping(
    tiny: Callable[[torch.Tensor], torch.Tensor], leftovers: Callable[[], list[str]]
) -> None:
    x = torch.ones(8)
    opened = [Recording(Config(ops=ops)) for ops in ("graph", "all", "all", "graph")]
    order = [1, 0, 3, 2]
    for recording in opened:
        recording.open()
    for place in order:
        tiny(x).cos()
        opened[place].close()
    assert not leftovers()
    for position, place in enumerate(order):
        run = opened[place].run
        assert len(run.select(kind="cpp")) == position + 1
        eager = run.select(kernel="aten.cos.default")
        assert len(eager) == (position + 1 if opened[place].config.ops == "all" else 0)
        assert [c.index for c in run] == list(range(len(run)))


def test_a_filter_of_one_recording_is_not_that_of_another(
    tiny: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    with (
        kernelscope.record(ops="all") as everything,
        kernelscope.record(kind="cpp") as compiled,
        kernelscope.record(kernel="*nothing*", ops="all") as nothing,
    ):
        tiny(torch.ones(8)).cos()
    assert [c.kind for c in everything] == ["op", "cpp", "op"]
    assert [c.kind for c in compiled] == ["cpp"]
    assert [c.index for c in compiled] == [0]
    assert not nothing.calls


def test_calls_read_while_recording_stay_right(tiny: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with kernelscope.record() as run:
        for count in range(1, 4):
            tiny(torch.ones(8))
            assert len(run.calls) == count
            assert str(run)
    assert [c.index for c in run] == [0, 1, 2]
