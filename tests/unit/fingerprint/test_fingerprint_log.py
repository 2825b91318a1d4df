"""The log of fingerprints: kinds, callables, slots, threads, failures on the device."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from tests.unit.fingerprint.references import bits, expected

from kernelscope.fingerprint import (
    Fingerprinter,
    HashFailure,
)
from kernelscope.fingerprint import torch_bits as hashes
from kernelscope.fingerprint.log import CHUNK_ROWS, DeviceLog

pytestmark = pytest.mark.usefixtures("_torch_operations_only")


def test_unknown_kinds_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'sha'.*bits, norm"):
        Fingerprinter(["bits", "sha"])
    with pytest.raises(ValueError, match="at least one"):
        Fingerprinter([])


def test_callables_and_their_failures() -> None:
    x = torch.tensor([3.0, -4.0], requires_grad=True)

    def broken(t: torch.Tensor) -> float:
        raise RuntimeError("no such luck")

    def grad(t: torch.Tensor) -> bool:
        return torch.is_grad_enabled()

    def shaped(t: torch.Tensor) -> torch.Tensor:
        return t.view(2, 1)

    taken = Fingerprinter([lambda t: t[0], "norm", broken, grad, shaped, lambda t: "text", "norm"])
    [slot] = taken.take([x])
    with torch.no_grad():
        x.zero_()
    first, seven, failure, enabled, shape, text, again = taken.read(slot)  # type: ignore[misc]
    assert (first, seven, enabled, text, again) == (3.0, 7.0, False, "text", 7.0)
    assert failure == HashFailure("broken", "RuntimeError: no such luck")
    assert str(failure) == "<broken failed: RuntimeError: no such luck>"
    assert shape.message == "returned a tensor of shape (2, 1); return a number or a string"
    assert taken.read(slot) == (first, seven, failure, enabled, shape, text, again)


def test_slots_keep_their_values_as_the_log_grows() -> None:
    taken = Fingerprinter(["bits", "norm"])
    x = torch.zeros(3)
    want = {}
    for value in range(11):
        x.fill_(value)
        [slot] = taken.take([x])
        want[slot] = (expected(x), 3.0 * value)
    assert list(want) == list(range(11))
    assert {slot: taken.read(slot) for slot in reversed(want)} == want
    for slot in (-1, 11, 1 << 40):
        with pytest.raises(IndexError, match="no fingerprint"):
            taken.read(slot)


class LogWithoutDevice(Fingerprinter):
    """Logs CPU tensors as if they lay on a device: nothing but the engines would differ on a real one."""

    def log_of(self, device: torch.device) -> tuple[int, DeviceLog]:
        if not self._devices:
            self._devices.append(DeviceLog(torch.device("cpu")))
        return 1, self._devices[0]


def test_more_tensors_at_once_than_a_piece_of_the_log_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device: None)
    tensors = [torch.tensor([i]) for i in range(CHUNK_ROWS + 5)]
    taken = LogWithoutDevice()
    slots = taken._take_on(torch.device("meta"), tensors[:3])
    slots += taken._take_on(torch.device("meta"), tensors)
    assert len(set(slots)) == len(slots) == len(tensors) + 3
    some = [0, 2, 3, 4, CHUNK_ROWS, CHUNK_ROWS + 2, CHUNK_ROWS + 3, CHUNK_ROWS + 7]
    assert [taken.read(slots[i]) for i in some] == [bits([*tensors[:3], *tensors][i]) for i in some]
    log = taken._devices[0]
    first = log.reserve([0] * (CHUNK_ROWS + 1))  # neighbours, in two pieces of memory
    assert (first % CHUNK_ROWS, log.rows) == (0, first + CHUNK_ROWS + 1)


def test_a_failure_on_the_device_does_not_hold_up_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*args: Any) -> None:
        raise torch.OutOfMemoryError("no memory for temporaries")

    taken = LogWithoutDevice()
    monkeypatch.setattr(hashes, "sum_into", out_of_memory)
    with pytest.raises(torch.OutOfMemoryError):
        taken._take_on(torch.device("meta"), [torch.ones(3)])
    assert taken._devices[0]._unfinished == 0, "what comes later can be drained"


def test_threads_do_not_share_slots() -> None:
    taken = Fingerprinter()
    found: dict[int, int] = {}

    def work(start: int) -> None:
        for value in range(start, start + 25):
            [slot] = taken.take([torch.tensor([value])])
            found[slot] = value

    threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(100))
    assert all(taken.read(slot) == expected(torch.tensor([value])) for slot, value in found.items())
