"""Training in several dtypes: master weights, scaled losses, autocast, sums of gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .registry import pair, train
from .small_model import Optimizer, data, loss_of, plain, small_model


def _master(dtype: torch.dtype, how: str = "copy", optimizer: str = "AdamW", rate: float = 1e-4) -> Any:
    """Weights in float32 that are trained, and a copy of them in which gradients are computed."""
    model = small_model().to(dtype)
    working = [*model.parameters()]
    if how == "flat":
        flat = torch.cat([p.detach().float().flatten() for p in working]).requires_grad_()
        masters, trained = [*flat.split([p.numel() for p in working])], [flat]
    else:
        masters = trained = [p.detach().clone().float().requires_grad_() for p in working]
    sums = [torch.zeros_like(p, dtype=torch.float32) for p in working]
    chosen = getattr(torch.optim, optimizer)(trained, lr=rate, foreach=False)
    for _ in range(2):
        loss = loss_of(model)
        loss.backward()
        if how == "flat":
            flat.grad = torch.cat([p.grad.float().flatten() for p in working])
        elif how == "sums":
            for master, total, p in zip(masters, sums, working, strict=True):
                total.zero_()
                master.grad = total.add_(p.grad)
        else:
            for master, p in zip(masters, working, strict=True):
                master.grad = p.grad.float()
        chosen.step()
        with torch.no_grad():
            for master, p in zip(masters, working, strict=True):
                p.grad = None
                if how == "data":
                    p.data = master.data.to(dtype)
                else:
                    p.copy_(master.view_as(p))
    return [loss.detach()]


for how in ("copy", "data", "sums", "flat"):
    for name, optimizer, rate in (
        ("SGD", "SGD", 0.1), ("AdamW", "AdamW", 1e-4), ("AdamW that rounding takes back", "AdamW", 1e-6),
    ):  # fmt: skip
        reference = partial(plain, partial(getattr(torch.optim, optimizer), lr=rate, foreach=False))
        low = partial(_master, torch.bfloat16, how, optimizer, rate)
        pair(f"master weights, {how}, {name}", reference, low)
        pair(
            f"master weights, {how}, {name}, in both",
            partial(_master, torch.float32, how, optimizer, rate),
            low,
        )
        pair(
            f"master weights, {how}, {name}, beside bfloat16",
            low,
            partial(_master, torch.bfloat16, "copy", optimizer, rate),
        )


def _scaled(factor: float, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """A loss that is multiplied, and gradients that are divided before they are read."""
    model = small_model().to(dtype)
    chosen = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        loss = loss_of(model)
        (loss * factor).backward()  # wrong: scaled
        for p in model.parameters():
            if error != "scaled":
                p.grad.mul_(1 / factor)
        chosen.step()  # wrong: scaled
        chosen.zero_grad()
    return [loss.detach()]


pair("a scaled loss", plain, lambda error: _scaled(1024.0, error=error), "scaled")
pair("a scaled loss in float16", plain, lambda error: _scaled(1024.0, torch.float16, error), "scaled")


def _with_scaler() -> Any:
    model = small_model().to(torch.float32)
    chosen, scaler = (
        torch.optim.SGD(model.parameters(), lr=0.1),
        torch.amp.GradScaler("cpu", init_scale=256.0),
    )
    for _ in range(2):
        with torch.autocast("cpu", torch.float16):
            loss = loss_of(model)
        scaler.scale(loss).backward()
        scaler.step(chosen)
        scaler.update()
        chosen.zero_grad()
    return [loss.detach()]


pair("autocast and a scaler in float16", plain, _with_scaler)


def _low(optimizer: Optimizer | None = None, dtype: torch.dtype = torch.bfloat16) -> Any:
    return train(small_model().to(dtype), loss_of, optimizer=optimizer)


def _autocast() -> Any:
    def loss(model: nn.Module) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return loss_of(model)

    return train(small_model(), loss)


pair("float32 beside float64", lambda: _low(None, torch.float64), plain)
pair("float64 beside float32", plain, lambda: _low(None, torch.float64))
pair("float32 beside bfloat16", _low, plain)
pair("autocast", plain, _autocast)
pair("autocast beside bfloat16", _autocast, _low)
pair("bfloat16 beside autocast", _low, _autocast)
pair("no autocast as the other", _autocast, plain)


def _own_sums(dtype: torch.dtype, parts: int) -> Any:
    """Gradients of parts of a batch, added up in float32 by the program."""
    model = small_model().to(dtype)
    x, y = data(dtype)
    sums = [torch.zeros_like(p, dtype=torch.float32) for p in model.parameters()]
    for _ in range(2):
        for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True):
            (F.cross_entropy(model(a).float(), b) / parts).backward()
            for total, p in zip(sums, model.parameters(), strict=True):
                total.add_(p.grad)
                p.grad = None
        with torch.no_grad():
            for total, p in zip(sums, model.parameters(), strict=True):
                p.sub_(total.to(dtype), alpha=0.1)
                total.zero_()


pair(
    "gradients of parts in sums of their own",
    lambda: _own_sums(torch.float32, 1),
    lambda: _own_sums(torch.float32, 4),
)
pair(
    "gradients of parts in sums of their own, in bfloat16",
    lambda: _own_sums(torch.float32, 1),
    lambda: _own_sums(torch.bfloat16, 4),
)
pair("sums of one part", lambda: _own_sums(torch.float32, 1), lambda: _own_sums(torch.bfloat16, 1))
