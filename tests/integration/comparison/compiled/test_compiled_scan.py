"""A selective scan, compiled: its kernels use memory of their own again, which is no result."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kernelscope

_WIDTH, _STATES, _TOKENS = 8, 4, 4


class _Scan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.entry, self.chosen = nn.Linear(_WIDTH, 2 * _WIDTH), nn.Linear(_WIDTH, 2 * _STATES + 1)
        self.step, self.exit = nn.Linear(1, _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.decay = nn.Parameter(torch.log(torch.arange(1, _STATES + 1.0).repeat(_WIDTH, 1)))
        self.skip = nn.Parameter(torch.ones(_WIDTH))
        self.near = nn.Conv1d(_WIDTH, _WIDTH, 3, padding=2, groups=_WIDTH)

    def forward(self, x: torch.Tensor, error: str = "") -> torch.Tensor:
        entered, gate = self.entry(x).chunk(2, -1)
        entered = F.silu(self.near(entered.mT)[..., :_TOKENS].mT)
        step, put, get = self.chosen(entered).split([1, _STATES, _STATES], -1)
        step = F.softplus(self.step(step))
        kept = torch.exp(step[..., None] * -torch.exp(self.decay))
        added = step[..., None] * put[:, :, None, :] * entered[..., None]
        state, made = torch.zeros(x.shape[0], _WIDTH, _STATES), []
        for t in range(_TOKENS):
            state = kept[:, t] * state + added[:, t]
            made.append((state * get[:, t, None, :]).sum(-1))
        y = torch.stack(made, 1) + entered * self.skip * (1.1 if error == "skip" else 1.0)
        made_of: torch.Tensor = self.exit(y * (torch.sigmoid(gate) if error == "gate" else F.silu(gate)))
        return made_of


def _train(error: str = "", compiled: bool = False) -> None:
    torch.manual_seed(0)
    model, x = _Scan(), torch.randn(2, _TOKENS, _WIDTH)
    run = torch.compile(lambda x: model(x, error)) if compiled else lambda x: model(x, error)
    run(x).square().mean().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()


@pytest.mark.slow
def test_it_raises_no_alarm() -> None:
    result = kernelscope.compare(_train, lambda: _train(compiled=True))
    assert result.status == 0, result.details()


@pytest.mark.slow
@pytest.mark.parametrize("error", ["skip", "gate"])
def test_the_kernel_of_an_error_is_named(error: str) -> None:
    result = kernelscope.compare(_train, lambda: _train(error, compiled=True))
    assert result.first is not None, result.details()
    assert result.first.call.phase == "forward", result.details()
    assert "cpp_fused" in result.first.call.name or "triton" in result.first.call.name, result.details()
    assert any(frame.function == "forward" for frame in result.first.call.origin), result.details()
