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
        self.layer = layer(16, 24, num_layers=2, batch_first=True, dropout=0.1, **options)
        self.head = nn.Linear(24 * (2 if self.layer.bidirectional else 1), VOCABULARY)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(x)
        hidden, _ = self.layer(hidden)  # in a statement of its own, because Dynamo's graph breaks here
        return self.head(hidden)


@model("recurrent", "torch")
def lstm() -> Made:
    return Recurrent(nn.LSTM), {"x": tokens(6)}


@model("recurrent", "torch")
def gru() -> Made:
    return Recurrent(nn.GRU, bidirectional=True), {"x": tokens(6)}


@model("recurrent", "torch", allow_rnn=True)  # each step of each layer is operators of its own
def lstm_in_one_graph() -> Made:
    return Recurrent(nn.LSTM), {"x": tokens(6)}


@model("recurrent", "torch", allow_rnn=True)  # each step of each layer is operators of its own
def gru_in_one_graph() -> Made:
    return Recurrent(nn.GRU, bidirectional=True), {"x": tokens(6)}
