"""Recurrent networks."""

from __future__ import annotations

from typing import Any

import torch
from tests.programs.models.registry import VOCABULARY, Made, model, tokens
from torch import nn


class Recurrent(nn.Module):
    """A language model on a recurrent layer."""

    def __init__(self, layer: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        # Without dropout, which torch loses when it decomposes such a layer: not a clean program.
        self.layer = layer(16, 24, num_layers=2, batch_first=True, **options)
        self.head = nn.Linear(24 * (2 if self.layer.bidirectional else 1), VOCABULARY)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.layer(self.embedding(x))
        return self.head(hidden)


class RecurrentInEager(Recurrent):
    """The same with a recurrent layer that is not compiled."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(x)
        hidden = self.uncompiled(hidden)
        return self.head(hidden)

    @torch.compiler.disable
    def uncompiled(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.layer(hidden)[0]


# Dynamo compiles no function that uses such a layer, unless this is set.
@model("recurrent", "torch", allow_rnn=True)
def lstm() -> Made:
    return Recurrent(nn.LSTM), {"x": tokens(6)}


@model("recurrent", "torch", allow_rnn=True)
def gru() -> Made:
    return Recurrent(nn.GRU, bidirectional=True), {"x": tokens(6)}


@model("recurrent", "torch")
def lstm_in_eager() -> Made:
    return RecurrentInEager(nn.LSTM), {"x": tokens(6)}
