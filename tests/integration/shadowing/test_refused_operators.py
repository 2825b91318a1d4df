"""One kernel computes what eager refuses and what it does not: the second is judged all the same."""

from __future__ import annotations

import torch
from tests.integration.faults.planting import Fault, in_kernel, look_for

import kernelscope


def program() -> None:
    def fn(mask: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        refused = mask.to(torch.int8) - mask  # eager subtracts no booleans
        return refused + 1, (x * 3).cos(), x + 2

    torch.compile(fn)(torch.arange(40) % 3 > 0, torch.linspace(0, 1, 40))


def test_only_what_depends_on_it_is_left_out() -> None:
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        program()
    assert not result.culprits, str(result)
    assert not result.failures, result.details()
    assert result.counts.buffers == 2, result.details()
    reasons = [each.reason for each in result.unchecked if each.kernel_name.startswith("cpp_")]
    assert len(reasons) == 1, result.details()
    assert "aten.sub.Tensor cannot be evaluated" in reasons[0]
    assert result.status == 2, "what eager refuses is not clean"


def test_a_fault_beside_it_is_named() -> None:
    wrong = in_kernel(r"std::cos", "std::sin")
    result, _ = look_for(Fault("beside", "refused operator", program, wrong, "cos"))
    assert result.culprit is not None, str(result)
    assert result.culprit.node == "cos", str(result)
