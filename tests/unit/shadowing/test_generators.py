"""Random numbers that our own work draws, the program draws again."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest
import torch

from kernelscope.shadowing.result import ShadowResult
from kernelscope.shadowing.session import Session


def shadows_own_work() -> AbstractContextManager[None]:
    return Session(ShadowResult()).apart()


def test_the_cpus_numbers() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with pytest.raises(RuntimeError), shadows_own_work():
        torch.rand(7) @ torch.rand(3)  # an operator may raise after it has drawn
    assert torch.equal(torch.rand(3), expected)


def test_cuda_is_not_initialised_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def initialise() -> None:
        raise AssertionError("a fork of this process could not use the GPU any more")

    monkeypatch.setattr(torch.cuda, "_lazy_init", initialise)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    with shadows_own_work():
        torch.rand(1)


@pytest.mark.parametrize("is_capturing", [False, True])
def test_the_generators_of_all_gpus(monkeypatch: pytest.MonkeyPatch, is_capturing: bool) -> None:
    """Two generators stand where those of two GPUs would; while a graph is captured, none may be read."""
    gpus = tuple(torch.Generator().manual_seed(seed) for seed in (1, 2))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: is_capturing)
    monkeypatch.setattr(torch.cuda, "default_generators", gpus)
    before = [gpu.get_state() for gpu in gpus]
    with shadows_own_work():
        for gpu in gpus:
            torch.rand(3, generator=gpu)
    are_back = [torch.equal(gpu.get_state(), state) for gpu, state in zip(gpus, before, strict=True)]
    assert are_back == [not is_capturing] * 2
