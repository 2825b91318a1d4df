"""gcu's results compared with eager's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from tests.gcu.looking import compile_and_look

NAN, INF = float("nan"), float("inf")
TOLERANCE = {
    torch.float64: (1e-12, 1e-12),
    torch.float32: (2e-6, 1e-6),
    torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (3e-2, 3e-2),
}


def compare(name: str, got: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert got.dtype == expected.dtype, name
    assert got.shape == expected.shape, name
    assert got.stride() == expected.stride(), name
    rtol, atol = TOLERANCE.get(dtype, (0, 0)) if got.dtype.is_floating_point else (0, 0)
    if dtype not in TOLERANCE and got.dtype.is_floating_point:
        rtol, atol = 2e-6, 1e-6
    torch.testing.assert_close(
        got, expected, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{name}: {m}"
    )


def check_all(
    table: dict[str, Callable[..., torch.Tensor]], args: Sequence[torch.Tensor], allowed: Sequence[str] = ()
) -> None:
    """All functions of a table in one graph, against eager.

    Not through oneDNN, which eager uses on x86_64: its gelu(inf) is NaN.
    """

    def everything(*given: torch.Tensor) -> list[torch.Tensor]:
        return [f(*given) for f in table.values()]

    compiled, look = compile_and_look(everything)
    got = compiled(*args)
    with torch.backends.mkldnn.flags(enabled=False):
        expected = everything(*args)
    for name, a, b in zip(table, got, expected, strict=True):
        compare(name, a, b, args[0].dtype)
    stray = {f.target for f in look.fallbacks} - set(allowed)
    assert not stray, f"through ATen: {stray}"
