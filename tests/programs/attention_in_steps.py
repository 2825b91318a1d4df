"""Attention over a whole sequence, or token by token: in a window, after another sequence, or with a cap.

The lines of errors that can be switched on end with `# planted`.
"""

from __future__ import annotations

import math

import torch
from torch import nn

State = list[torch.Tensor]


class Attention(nn.Module):
    """One head, and a part that follows in which one line computes with three weights of different sizes."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.up, self.down, self.head = nn.Linear(width, 24), nn.Linear(24, width), nn.Linear(width, 20)

    def finish(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x + self.down(torch.relu(self.up(x))))

    def whole(self, x: torch.Tensor, window: int = 99, cap: float = 2.0) -> torch.Tensor:
        scores = self.q(x) @ self.k(x).mT / math.sqrt(x.shape[-1])
        scores = torch.tanh(scores / cap) * cap
        place = torch.arange(x.shape[1])
        distance = place[:, None] - place
        scores = scores.masked_fill((distance < 0) | (distance >= window), -math.inf)
        return self.finish(x + scores.softmax(-1) @ self.v(x))

    def step(self, x: torch.Tensor, state: State, window: int = 99, cap: float = 2.0) -> torch.Tensor:
        k, v = self.k(x), self.v(x)
        if state:
            k, v = torch.cat([state[0], k], 1), torch.cat([state[1], v], 1)
        k, v = k[:, -window:], v[:, -window:]
        state[:] = [k, v]
        scores = self.q(x) @ k.mT / math.sqrt(x.shape[-1])  # planted: window # planted: reset
        scores = torch.tanh(scores / cap) * cap  # planted: cap
        return self.finish(x + scores.softmax(-1) @ v)


@torch.no_grad()
def at_once(model: Attention, sequences: list[torch.Tensor], window: int = 99) -> list[torch.Tensor]:
    return [model.whole(x, window) for x in sequences]


@torch.no_grad()
def in_steps(
    model: Attention, sequences: list[torch.Tensor], window: int = 99, bug: str = ""
) -> list[list[torch.Tensor]]:
    state: State = []
    found = []
    for x in sequences:
        state = state if bug == "reset" else []
        width, cap = window - (bug == "window"), 5.0 if bug == "cap" else 2.0
        found.append([model.step(x[:, t : t + 1], state, width, cap) for t in range(x.shape[1])])
    return found
