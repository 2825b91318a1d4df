"""What an everyday model is here: a function that makes a tiny one with random weights, and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from tests.programs.models import working_torchvision  # noqa: F401  # before transformers and timm import it
from torch import nn

Made = tuple[nn.Module, dict[str, Any]]  # the module, and the arguments of its forward
VOCABULARY = 97


@dataclass(frozen=True)
class Model:
    """One architecture."""

    name: str
    family: str
    library: str
    make: Callable[[], Made]
    dynamo: dict[str, Any] = field(default_factory=dict)  # settings of torch._dynamo.config


MODELS: dict[str, Model] = {}


def model(family: str, library: str, **dynamo: Any) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """Add a model under the name of the function that makes it."""

    def add(make: Callable[[], Made]) -> Callable[[], Made]:
        assert make.__name__ not in MODELS, make.__name__
        MODELS[make.__name__] = Model(make.__name__, family, library, make, dynamo)
        return make

    return add


def tokens(length: int = 12, batch: int = 2, vocabulary: int = VOCABULARY) -> torch.Tensor:
    """Random tokens; none is a special one."""
    return torch.randint(5, vocabulary, (batch, length))


def padding(length: int = 12, batch: int = 2, missing: int = 3) -> torch.Tensor:
    """A mask of which the last row is shorter."""
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[-1, length - missing :] = 0
    return mask


def images(size: int = 32, batch: int = 2, channels: int = 3) -> torch.Tensor:
    return torch.randn(batch, channels, size, size)
