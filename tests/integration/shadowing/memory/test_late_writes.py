"""Writes that begin after a graph has been executed without any: found in the same step, and then named."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tests.programs.late_writes import NAME, VICTIMS, calm, meddle

import kernelscope
from kernelscope import ShadowResult

__all__ = ["calm"]  # a fixture for every test here


def reasons(
    fn: Callable[..., object], *given: torch.Tensor, victim: torch.Tensor
) -> tuple[list[str], ShadowResult]:
    """What is known after each of four steps; the operator meddles from the third on."""
    found = []
    with kernelscope.shadow() as result:
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


def test_its_own_input_is_changed() -> None:
    (found, _), _ = reasons(lambda x: meddle(x.sin()) * 2, torch.ones(4, 4), victim=torch.empty(0))
    assert found == f"buf0 changed while {NAME} ran, which does not declare a write to it"


def test_what_only_a_later_kernel_reads() -> None:
    x, y = torch.ones(4, 4), torch.zeros(4, 4)
    (found, _), result = reasons(lambda x, y: ((meddle(x.sin()) @ x).sin() @ x) + y, x, y, victim=y)
    assert " changed before " in found
    assert "while one of these kernels ran: cpp_fused_" in found
    assert NAME in found
    assert NAME in {c.kernel_name for c in result}  # the fourth execution is watched launch by launch


def test_what_no_kernel_reads_any_more() -> None:
    """A result of the graph: it is looked at for the last time after the last launch."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first = x.sin()
        return first, (meddle(first) @ x).cos()

    (found, _), result = reasons(fn, torch.ones(4, 4), victim=torch.empty(0))
    assert found.startswith(f"buf0 changed, while one of these kernels ran: {NAME}, ")
    assert found.endswith("; none of them declares a write to it")
    assert NAME in {c.kernel_name for c in result}
