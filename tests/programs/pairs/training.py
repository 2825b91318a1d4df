"""Loops of training: optimizers, checkpoints, clipped gradients, averages, halves of a batch."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .registry import pair, train
from .small_model import data, loss_of, plain, small_model

_OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "Adam": (torch.optim.Adam, {"lr": 1e-2, "amsgrad": True}),
    "AdamW": (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}),
    "NAdam": (torch.optim.NAdam, {"lr": 1e-2}),
    "RAdam": (torch.optim.RAdam, {"lr": 1e-2}),
    "Adamax": (torch.optim.Adamax, {"lr": 1e-2}),
    "Adagrad": (torch.optim.Adagrad, {"lr": 1e-2}),
    "Adadelta": (torch.optim.Adadelta, {"lr": 1.0}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 1e-2, "centered": True, "momentum": 0.9}),
    "Rprop": (torch.optim.Rprop, {"lr": 1e-2}),
    "ASGD": (torch.optim.ASGD, {"lr": 1e-2}),
}
for name, (kind, options) in _OPTIMIZERS.items():
    one, other = (partial(plain, partial(kind, **options, foreach=foreach)) for foreach in (False, True))
    pair(f"{name} with foreach", one, other)
    pair(f"{name} without foreach", other, one)
for name in ("SGD", "Adam", "AdamW", "Adagrad"):
    kind, options = _OPTIMIZERS[name]
    pair(
        f"{name} fused", partial(plain, partial(kind, **options, foreach=False)),
        partial(plain, partial(kind, **options, fused=True)),
    )  # fmt: skip


def _adam_by_hand(error: str = "") -> Any:
    model = small_model()
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in model.parameters()]
    for step in range(1, 3):
        loss = loss_of(model)
        loss.backward()
        with torch.no_grad():
            for p, (m, v) in zip(model.parameters(), moments, strict=True):
                grad = p.grad
                if error == "coupled":
                    grad = grad + 0.1 * p  # wrong: coupled
                else:
                    p.mul_(1 - 1e-2 * 0.1)
                m.mul_(0.9).add_(grad, alpha=0.1)  # wrong: coupled
                v.mul_(0.999).addcmul_(grad, grad, value=0.001)
                known = 1 if error == "correction" else 1 - 0.999**step
                denominator = (v / known).sqrt() + 1e-8  # wrong: correction
                p.sub_(1e-2 / (1 - 0.9**step) * m / denominator)  # wrong: correction
                p.grad = None
    return [loss.detach()]


pair(
    "AdamW by hand", partial(plain, partial(torch.optim.AdamW, lr=1e-2, weight_decay=0.1)), _adam_by_hand,
    "coupled", "correction",
)  # fmt: skip


def _checkpointed(how: str) -> Any:
    model = small_model()
    x, y = data()
    x.requires_grad_()

    def loss(run: Any) -> torch.Tensor:
        if not how:
            return F.cross_entropy(run(x), y)
        h = checkpoint(run[:3], x, use_reentrant=how == "reentrant")
        return F.cross_entropy(run[3:](h), y)

    return train(model, loss)


for how in ("reentrant", "saved"):
    pair(f"checkpoint, {how}", lambda: _checkpointed(""), partial(_checkpointed, how))
    pair(f"no checkpoint as the other, {how}", partial(_checkpointed, how), lambda: _checkpointed(""))


def _clipped(how: str, error: str = "") -> Any:
    model = small_model()
    chosen = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        loss = loss_of(model)
        loss.backward()
        parts = [p.grad for p in model.parameters()]
        if how == "hand":
            used = parts[:-1] if error == "left out" else parts
            norm = torch.sqrt(sum(g.square().sum() for g in used))  # wrong: left out
            for g in parts:
                g.mul_((0.1 / (norm + 1e-6)).clamp(max=1.0))  # wrong: left out
        else:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1, foreach=how == "foreach")
        chosen.step()
        chosen.zero_grad()
    return [loss.detach()]


pair("clipped gradients with foreach", lambda: _clipped(""), lambda: _clipped("foreach"))
pair("clipped gradients by hand", lambda: _clipped(""), lambda error: _clipped("hand", error), "left out")


def _averaged(how: str, error: str = "") -> Any:
    model = small_model()
    average = copy.deepcopy(model)
    chosen = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        loss_of(model).backward()
        chosen.step()
        chosen.zero_grad()
        with torch.no_grad():
            for a, p in zip(average.parameters(), model.parameters(), strict=True):
                if how == "lerp":
                    a.lerp_(p, 0.1)
                else:
                    a.mul_(0.99 if error == "decay" else 0.9).add_(p, alpha=0.1)  # wrong: decay
    return [p.detach() for p in average.parameters()]


pair(
    "an average of weights in other steps",
    lambda: _averaged("lerp"),
    lambda error: _averaged("sum", error),
    "decay",
)


def _functional(how: str) -> Any:
    model = small_model()
    x, y = data()
    names = [name for name, _ in model.named_parameters()]
    for _ in range(2):
        weights = dict(model.named_parameters())
        if how == "grad":
            plain = {name: p.detach() for name, p in weights.items()}
            parts = torch.func.grad(lambda w: F.cross_entropy(torch.func.functional_call(model, w, (x,)), y))(
                plain
            )
            found = [parts[name] for name in names]
        elif how == "autograd":
            found = torch.autograd.grad(F.cross_entropy(model(x), y), [*weights.values()])
        elif how == "rows":
            plain = {name: p.detach() for name, p in weights.items()}

            def one(w: Any, row: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
                return F.cross_entropy(torch.func.functional_call(model, w, (row[None],)), target[None])

            rows = torch.func.vmap(torch.func.grad(one), (None, 0, 0))(plain, x, y)
            found = [rows[name].mean(0) for name in names]
        else:
            F.cross_entropy(model(x), y).backward()
            found = [p.grad for p in model.parameters()]
            model.zero_grad()
        with torch.no_grad():
            for p, g in zip(model.parameters(), found, strict=True):
                p.sub_(g, alpha=0.1)


for how in ("autograd", "grad", "rows"):
    pair(f"gradients by {how}", lambda: _functional(""), partial(_functional, how))


def _halves_of_a_batch(how: str) -> Any:
    """Two replicas with a half each, and the mean of their gradients."""
    model = small_model()
    x, y = data()
    chosen = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        if how == "whole":
            F.cross_entropy(model(x), y).backward()
        else:
            sums = [torch.zeros_like(p) for p in model.parameters()]
            for a, b in zip(x.chunk(2), y.chunk(2), strict=True):
                parts = torch.autograd.grad(F.cross_entropy(model(a), b), [*model.parameters()])
                for total, part in zip(sums, parts, strict=True):
                    total.add_(part, alpha=0.5)
            for p, total in zip(model.parameters(), sums, strict=True):
                p.grad = total
        chosen.step()
        chosen.zero_grad()


pair(
    "gradients of halves, averaged", lambda: _halves_of_a_batch("whole"), lambda: _halves_of_a_batch("halves")
)


def _compiled(dynamic: bool = False, dtype: torch.dtype = torch.float32) -> Any:
    model = small_model().to(dtype)
    run = torch.compile(model, dynamic=dynamic)
    x, y = data(dtype)
    return train(model, lambda _: F.cross_entropy(run(x).float(), y))


pair("compiled", plain, _compiled)
pair("compiled with dynamic shapes", plain, lambda: _compiled(True))
pair("compiled in bfloat16", plain, lambda: _compiled(False, torch.bfloat16))
