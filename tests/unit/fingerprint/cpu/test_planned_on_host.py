"""Planned fingerprints of CPU tensors are taken by C++, and are those of looking at each tensor."""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from kernelscope.events import TensorSpec
from kernelscope.fingerprint import fingerprint
from kernelscope.fingerprint.cpu.in_wrappers import planned as cpu_planned
from kernelscope.fingerprint.cpu.in_wrappers.runs import Runs, runs_of
from kernelscope.fingerprint.fingerprinter import Fingerprinter
from kernelscope.fingerprint.plans import plan

BASE = torch.randn(4, 96, 40)
LARGE = torch.randn(3, 257, 300)
TENSORS = {
    "contiguous": BASE,
    "transposed": BASE.transpose(1, 2),
    "a slice": BASE[:, 8:40, 4:20],
    "every second": BASE[..., ::2],
    "expanded": BASE[:1].expand(5, 96, 40),
    "one number": torch.tensor(2.5),
    "one element of a view": BASE[:1, 3:4, 5:6],
    "bfloat16": BASE.bfloat16(),
    "odd bytes": torch.arange(13, dtype=torch.uint8),
    "booleans": BASE > 0,
    "complex": torch.complex(BASE, BASE.flip(0)),
    "float8": BASE.to(torch.float8_e4m3fn),
    "no numbers": torch.zeros(16, dtype=torch.bits8),
    "nan and infinities": torch.tensor([math.nan, math.inf, -math.inf, 1.0]),
    "large": LARGE,
    "large and transposed": LARGE.transpose(0, 2),
    "empty": torch.zeros(0, 3),
}


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tensor.stride(), "cpu")


class Planned:
    """A plan whose only flush takes all of these tensors."""

    def __init__(self, tensors: Sequence[torch.Tensor], level: Any) -> None:
        self.taken, self.failures = Fingerprinter(level=level), 0
        self.plan = plan(self.taken, [spec_of(t) for t in tensors], [range(len(tensors))], {}, self._failed)

    def _failed(self) -> None:
        self.failures += 1

    def execute(self, tensors: Sequence[torch.Tensor]) -> range:
        execution, first = self.plan.begin()
        self.plan.flushes[0](execution, *tensors)
        self.plan.ended(execution, broken_off=False)
        return range(first, first + self.plan.rows)


@pytest.fixture
def careful(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What was left to Python: how many tensors each time."""
    assert cpu_planned.LIBRARY.get() is not None  # before: it is tried out when it is loaded
    left: list[int] = []
    take = cpu_planned.PlannedLibrary.take

    def watched(
        self: Any, pieces: Any, functions: Any, log: Any, carefully: Callable[..., None]
    ) -> Callable[..., None]:
        def counted(execution: Any, *tensors: Any) -> None:
            left.append(len(tensors))
            carefully(execution, *tensors)

        return take(self, pieces, functions, log, counted)

    monkeypatch.setattr(cpu_planned.PlannedLibrary, "take", watched)
    return left


@pytest.mark.parametrize("level", ["hash", "stats"])
@pytest.mark.parametrize("threads", [1, 2])
def test_every_layout_and_dtype(level: str, threads: int, careful: list[int]) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        tensors = list(TENSORS.values())
        planned = Planned(tensors, level)
        for _ in range(2):
            slots = planned.execute(tensors)
    finally:
        torch.set_num_threads(before)
    assert not careful
    assert not planned.failures
    for slot, (name, tensor) in zip(slots, TENSORS.items(), strict=True):
        looked = fingerprint(tensor)
        assert planned.taken.read(slot) == looked.bits, name
        if level == "stats":
            assert repr(planned.taken.stats(slot)) == repr(looked.stats), name


@pytest.mark.parametrize("level", ["hash", "stats"])
def test_as_many_tensors_as_an_optimizer_has(level: str, careful: list[int]) -> None:
    tensors = [*TENSORS.values()] * 20
    planned = Planned(tensors, level)
    slots = planned.execute(tensors)
    assert type(planned.plan.flushes[0]).__name__ == "Take", "C++ takes them"
    assert not careful
    looked = [fingerprint(tensor) for tensor in TENSORS.values()] * 20
    assert [planned.taken.read(slot) for slot in slots] == [each.bits for each in looked]
    if level == "stats":
        assert repr([planned.taken.stats(slot) for slot in slots]) == repr([each.stats for each in looked])


def test_the_rows_of_others_are_left_alone() -> None:
    tensors = [BASE, BASE[0]]
    planned = Planned(tensors, "stats")
    [before] = planned.taken.take([LARGE])
    slots = planned.execute(tensors)
    [after] = planned.taken.take([LARGE])
    assert [*slots] == [before + 1, before + 2]
    assert after == before + 3
    read = [planned.taken.read(slot) for slot in (before, *slots, after)]
    assert read == [fingerprint(t).bits for t in (LARGE, *tensors, LARGE)]


def test_rows_that_are_not_kept_any_more_are_left_out(careful: list[int]) -> None:
    planned = Planned([BASE], "stats")
    execution, _first = planned.plan.begin()
    planned.plan.ended(execution, broken_off=False)
    [slot] = planned.taken.take([LARGE])
    planned.taken.forget(slot)
    planned.plan.flushes[0](execution, BASE)
    assert not careful
    assert not planned.failures
    assert planned.taken.read(slot) == fingerprint(LARGE).bits


def test_what_is_out_of_the_ordinary_goes_through_python(careful: list[int]) -> None:
    """A mode of the user's does not see what is asked of its tensors, and a freed tensor is reported."""
    seen = []

    class Watching(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    planned = Planned([BASE], "hash")
    with Watching():
        [slot] = planned.execute([BASE])
    assert careful == [1]
    assert not seen
    assert planned.taken.read(slot) == fingerprint(BASE).bits
    freed = BASE.clone()
    freed.untyped_storage().resize_(0)
    [slot] = planned.execute([freed])
    assert careful == [1, 1]
    assert "freed" in str(planned.taken.read(slot))


def test_an_error_of_ours_does_not_reach_the_program() -> None:
    planned = Planned([BASE], "hash")
    [slot] = planned.execute(["not a tensor"])  # type: ignore[list-item]
    assert planned.failures == 1
    assert "data_ptr" in str(planned.taken.read(slot))


def test_ctrl_c_goes_on() -> None:
    class Interrupted:
        def data_ptr(self) -> int:
            raise KeyboardInterrupt

    planned = Planned([BASE], "hash")
    with pytest.raises(KeyboardInterrupt):
        planned.execute([Interrupted()])  # type: ignore[list-item]


def test_a_forked_child_uses_one_thread() -> None:
    planned = Planned([LARGE], "stats")
    planned.execute([LARGE])
    expected = fingerprint(LARGE).bits
    child = os.fork()
    if not child:
        [slot] = planned.execute([LARGE])
        os._exit(0 if planned.taken.read(slot) == expected else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("name", TENSORS)
def test_runs_hold_every_byte_of_a_tensor(name: str) -> None:
    tensor = TENSORS[name]
    runs = runs_of(tensor.shape, tensor.stride(), tensor.itemsize)
    ours = {0} if runs.nbytes else set()
    for count, step in runs.levels:
        ours = {at + i * step for at in ours for i in range(count)}
    ours = {at + i for at in ours for i in range(runs.nbytes)}
    elements = array("q", [0]) if tensor.numel() else array("q")
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements = array("q", [at + i * stride for at in elements for i in range(size)])
    assert ours == {at * tensor.itemsize + i for at in elements for i in range(tensor.itemsize)}
    assert runs.extent == max(ours, default=-1) + 1


def test_neighbours_are_one_run() -> None:
    assert runs_of((2, 3, 4), (12, 1, 3), 4) == Runs(96, ())
    assert runs_of((2, 3, 4), (24, 4, 1), 4) == Runs(48, ((2, 96),))
    assert runs_of((5, 4), (0, 1), 2) == Runs(8, ())
