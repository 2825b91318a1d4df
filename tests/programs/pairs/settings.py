"""A small model of language and one of images: other dtypes, backends, optimizers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .registry import pair, seeded

_WIDTH, _HEADS, _TOKENS, _LENGTH = 32, 4, 30, 12


_adam = partial(torch.optim.AdamW, lr=1e-2)


@dataclass(frozen=True)
class _Setting:
    dtype: torch.dtype = torch.float32
    backend: str = ""
    autocast: torch.dtype | None = None
    attention: str = "one"
    optimizer: Callable[[Any], torch.optim.Optimizer] = _adam
    is_dynamic: bool = False


class _Block(nn.Module):
    def __init__(self, attention: str) -> None:
        super().__init__()
        self.attention = attention
        self.norm, self.norm2 = nn.LayerNorm(_WIDTH), nn.RMSNorm(_WIDTH)
        self.qkv, self.out = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.up, self.down = nn.Linear(_WIDTH, 2 * _WIDTH), nn.Linear(2 * _WIDTH, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        q, k, v = (
            each.view(rows, length, _HEADS, -1).transpose(1, 2)
            for each in self.qkv(self.norm(x)).chunk(3, -1)
        )
        if self.attention == "one":
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            later = torch.ones(length, length, dtype=torch.bool).triu(1)
            if self.attention == "hand":
                scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(later, -torch.inf)
                mixed = scores.float().softmax(-1).to(v.dtype) @ v
            else:
                scores = torch.einsum("bhqd,bhkd->bhqk", q * q.shape[-1] ** -0.5, k)
                scores = scores + torch.zeros_like(scores).masked_fill(later, -torch.inf)
                mixed = torch.einsum("bhqk,bhkd->bhqd", torch.softmax(scores, -1), v)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, -1))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class _Language(nn.Module):
    def __init__(self, attention: str) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(_TOKENS, _WIDTH), nn.Embedding(_LENGTH, _WIDTH)
        self.blocks = nn.ModuleList([_Block(attention) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, _TOKENS, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def _steps(setting: _Setting, model: nn.Module, loss_of: Callable[[Any, int], torch.Tensor]) -> Any:
    model = model.to(setting.dtype)
    run: Any = model
    if setting.backend:
        run = torch.compile(model, backend=setting.backend, dynamic=setting.is_dynamic)
    optimizer = setting.optimizer(model.parameters())
    losses = []
    for step in range(2):
        with torch.autocast("cpu", setting.autocast or torch.bfloat16, enabled=setting.autocast is not None):
            loss = loss_of(run, step)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses


def language(setting: _Setting) -> Any:
    seeded(1)
    model = _Language(setting.attention)
    ids = torch.randint(0, _TOKENS, (2, 3, _LENGTH + 1), generator=torch.Generator().manual_seed(2))

    def loss_of(run: Any, step: int) -> torch.Tensor:
        logits = run(ids[step, :, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), ids[step, :, 1:].flatten())

    return _steps(setting, model, loss_of)


def images(setting: _Setting, layout: torch.memory_format = torch.contiguous_format) -> Any:
    seeded(3)
    model: nn.Module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, stride=2, groups=2), nn.GroupNorm(4, 16), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(16, 5),
    )  # fmt: skip
    model = model.to(memory_format=layout)
    drawn = torch.Generator().manual_seed(4)
    x, y = torch.randn(4, 3, 12, 12, generator=drawn), torch.randint(0, 5, (4,), generator=drawn)
    given = x.to(setting.dtype).to(memory_format=layout)
    return _steps(setting, model, lambda run, step: F.cross_entropy(run(given).float(), y))


_BF16, _F16, _LAST = torch.bfloat16, torch.float16, torch.channels_last
_SETTINGS = {
    "inductor": _Setting(backend="inductor"),
    "inductor, dynamic": _Setting(backend="inductor", is_dynamic=True),
    "aot_eager": _Setting(backend="aot_eager"),
    "gcu": _Setting(backend="gcu"),
    "bfloat16": _Setting(_BF16),
    "bfloat16, inductor": _Setting(_BF16, "inductor"),
    "bfloat16, aot_eager": _Setting(_BF16, "aot_eager"),
    "float16": _Setting(_F16, optimizer=partial(torch.optim.AdamW, lr=1e-2, eps=1e-4)),
    "autocast": _Setting(autocast=_BF16),
    "autocast, inductor": _Setting(autocast=_BF16, backend="inductor"),
    "float64": _Setting(torch.float64),
}
for _name, _setting in _SETTINGS.items():
    _reference = _Setting(optimizer=_setting.optimizer)
    pair(f"language, {_name}", partial(language, _reference), partial(language, _setting))
    pair(f"images, {_name}", partial(images, _reference), partial(images, _setting))
pair(
    "language, attention by hand",
    partial(language, _Setting()),
    partial(language, _Setting(attention="hand")),
)
pair(
    "language, attention by hand in bfloat16", partial(language, _Setting()),
    partial(language, _Setting(_BF16, attention="hand")),
)  # fmt: skip
pair(
    "language, attention by einsum in bfloat16", partial(language, _Setting(attention="hand")),
    partial(language, _Setting(_BF16, attention="einsum")),
)  # fmt: skip
pair(
    "language, attention by einsum, compiled", partial(language, _Setting()),
    partial(language, _Setting(backend="inductor", attention="einsum")),
)  # fmt: skip
pair(
    "images, channels last in bfloat16", partial(images, _Setting()), partial(images, _Setting(_BF16), _LAST)
)
pair(
    "images, channels last, compiled", partial(images, _Setting()),
    partial(images, _Setting(backend="inductor"), _LAST),
)  # fmt: skip

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD, decay": partial(torch.optim.SGD, lr=0.05, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "SGD, maximize": partial(torch.optim.SGD, lr=0.05, maximize=True, momentum=0.5),
    "Adam, decay": partial(torch.optim.Adam, lr=1e-2, weight_decay=0.1),
    "Adam, maximize": partial(torch.optim.Adam, lr=1e-2, amsgrad=True, maximize=True),
    "AdamW, amsgrad": partial(torch.optim.AdamW, lr=1e-2, amsgrad=True),
    "NAdam, decoupled": partial(torch.optim.NAdam, lr=1e-2, weight_decay=0.1, decoupled_weight_decay=True),
    "NAdam, decay": partial(torch.optim.NAdam, lr=1e-2, weight_decay=0.1),
    "RAdam, decoupled": partial(torch.optim.RAdam, lr=1e-2, weight_decay=0.1, decoupled_weight_decay=True),
    "Adamax, decay": partial(torch.optim.Adamax, lr=1e-2, weight_decay=0.1),
    "Adagrad, decay": partial(torch.optim.Adagrad, lr=1e-2, lr_decay=0.1, weight_decay=0.01),
    "Adadelta, decay": partial(torch.optim.Adadelta, lr=0.5, weight_decay=0.01),
    "RMSprop, decay": partial(torch.optim.RMSprop, lr=1e-3, weight_decay=0.01),
    "RMSprop, momentum": partial(torch.optim.RMSprop, lr=1e-3, momentum=0.8),
    "Rprop, etas": partial(torch.optim.Rprop, lr=1e-3, etas=(0.4, 1.3)),
    "ASGD, decay": partial(torch.optim.ASGD, lr=1e-2, weight_decay=0.01, t0=0),
}
_FUSED = ("SGD, decay", "Adam, decay", "AdamW, amsgrad", "SGD, maximize", "Adam, maximize")
for _name, _kind in _OPTIMIZERS.items():
    _ways: dict[str, dict[str, bool]] = {"a loop": {"foreach": False}, "foreach": {"foreach": True}}
    if _name in _FUSED:
        _ways["fused"] = {"fused": True}
    for _first, _one in _ways.items():
        for _second, _other in _ways.items():
            if _first != _second:
                pair(
                    f"images, {_name}, {_second} beside {_first}",
                    partial(images, _Setting(optimizer=partial(_kind, **_one))),
                    partial(images, _Setting(optimizer=partial(_kind, **_other))),
                )  # fmt: skip
for _name in ("Adam, decay", "NAdam, decay", "RMSprop, momentum", "Adamax, decay", "SGD, decay"):
    _kind = _OPTIMIZERS[_name]
    pair(
        f"images, {_name}, foreach in bfloat16",
        partial(images, _Setting(optimizer=partial(_kind, foreach=False))),
        partial(images, _Setting(_BF16, optimizer=partial(_kind, foreach=True))),
    )  # fmt: skip
