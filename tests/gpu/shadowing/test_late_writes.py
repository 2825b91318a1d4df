"""On a GPU: writes that begin after a graph has been executed without any are found in the same step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.programs.late_writes import NAME, VICTIMS, calm, meddle
from torch._inductor.utils import fresh_cache

import kernelscope
from kernelscope import ShadowResult
from kernelscope.shadowing.writes.digests import DigestQueue, digests

__all__ = ["calm"]  # a fixture for every test here


def found_in_steps(
    fn: Callable[..., object], *given: torch.Tensor, victim: torch.Tensor
) -> tuple[list[str], ShadowResult]:
    found = []
    with fresh_cache(), kernelscope.shadow() as result:
        compiled = torch.compile(fn)
        for step in range(4):
            if step == 2:
                VICTIMS.append(victim)
            compiled(*given)
            writes = [c.reason for c in result if c.verdict == "foreign-write"]
            found.append(writes[0] if writes else "")
            assert bool(result) == bool(writes)
    assert not result.failures, result.details()
    assert found[:2] == ["", ""]
    return found[2:], result


@pytest.mark.parametrize("size", [4, 512])
def test_its_own_input_is_changed(size: int) -> None:
    x = torch.ones(size, size, device="cuda")
    (found, _), _ = found_in_steps(lambda x: meddle(x.sin()) * 2, x, victim=torch.empty(0))
    assert found == f"buf0 changed while {NAME} ran, which does not declare a write to it"


def test_what_only_a_later_kernel_reads() -> None:
    x, y = torch.ones(512, 512, device="cuda"), torch.zeros(512, 512, device="cuda")
    (found, _), result = found_in_steps(lambda x, y: ((meddle(x.sin()) @ x).sin() @ x) + y, x, y, victim=y)
    assert NAME in found
    assert NAME in {c.kernel_name for c in result}  # the fourth execution is watched launch by launch


def test_digests_are_those_of_the_moment_at_which_they_were_asked_for() -> None:
    queue = DigestQueue()
    tensors = [torch.arange(1000, device="cuda"), torch.ones(100, 7, device="cuda").t()]
    first = queue.put(tensors)
    expected = digests(tensors)
    tensors[0].add_(1)
    many = queue.put(tensors * 200)  # more than a log has room for
    assert [queue.value(number) for number in first] == expected
    assert [queue.value(number) for number in many] == digests(tensors) * 200
    assert queue.value(many[0]) != expected[0]


def test_digests_that_another_stream_computes() -> None:
    queue, x = DigestQueue(), torch.ones(1 << 24, device="cuda")
    expected = digests([x])
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        (there,) = queue.put([x])
    (here,) = queue.put([x])
    assert [queue.value(there), queue.value(here)] == expected * 2
