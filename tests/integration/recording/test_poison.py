"""verify="poison": declared outputs that a kernel never writes are found, and nothing else is disturbed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import kernelscope


@torch.library.custom_op("kernelscope_poison::fill", mutates_args={"out"})
def fill(x: torch.Tensor, out: torch.Tensor, really: bool) -> None:
    if really:
        out.copy_(x)


def test_an_output_that_is_never_written() -> None:
    @torch.compile
    def f(x: torch.Tensor, really: bool) -> torch.Tensor:
        out = torch.empty_like(x)
        torch.ops.kernelscope_poison.fill(x.sin(), out, really)
        return out.clone()

    x = torch.randn(40)
    for really in (True, False):
        f(x, really)
        with kernelscope.record(values="hash", verify="poison") as run:
            f(x, really)
        found = [(f.kind, f.kernel, f.arg) for f in run.findings]
        assert found == ([] if really else [("never-written", "kernelscope_poison.fill.default", "out")])


def test_the_program_does_not_notice() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    compiled = torch.compile(model)
    x = torch.randn(5, 8)

    def step() -> list[torch.Tensor]:
        model.zero_grad()
        out = compiled(torch.cat([x, x]))
        out.sum().backward()
        return [out, *(p.grad for p in model.parameters() if p.grad is not None)]

    step()
    bare = step()
    with kernelscope.record(values="hash", verify="poison") as run:
        poisoned = step()
        again = step()
    assert any(c.poison_hashes for c in run.calls)
    assert not run.findings
    assert all(torch.equal(a, b) for a, b in zip(bare, poisoned, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(bare, again, strict=True))
    with kernelscope.record(values="hash") as plain:
        step()
        step()
    assert [c.post_hashes for c in plain.calls] == [c.post_hashes for c in run.calls]


def test_memory_that_somebody_else_may_have_filled_is_left_alone() -> None:
    """A tensor from outside the graph is never filled, even if nobody was seen writing to it."""

    @torch.compile
    def f(x: torch.Tensor, out: torch.Tensor) -> None:
        torch.ops.kernelscope_poison.fill(x.sin(), out, False)

    x = torch.randn(16)
    f(x, torch.zeros(16))
    with kernelscope.record(values="hash", ops="all", verify="poison"):
        out = torch.empty(16)
        out.data.numpy()[:] = 7  # behind the recorder's back
        f(x, out)
    assert out.tolist() == [7.0] * 16


def test_it_needs_hashes() -> None:
    with pytest.raises(ValueError, match="values='hash'"):
        kernelscope.record(verify="poison")
