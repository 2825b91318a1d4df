"""The same for windows, remainders, matrices in registers, counters, and the words of the hardware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Case = tuple[list[Any], Any]
Random = np.random.Generator


def _ints(r: Random, *shape: int, low: int = -9, high: int = 10) -> Any:
    return r.integers(low, high, shape, dtype=np.int32)


def _of(shape: tuple[int, ...], result: Callable[[Any], Any]) -> Callable[[Random], Case]:
    def case(r: Random) -> Case:
        x = _ints(r, *shape)
        return [x], result(x)

    return case


def _tied(x: Any) -> Any:
    blocks = [np.pad(b, 1, constant_values=7) for rows in np.split(x, 2) for b in np.split(rows, 2, 1)]
    return np.block([blocks[:2], blocks[2:]])


def _tied_sums(r: Random) -> Case:
    x, w = _ints(r, 6), _ints(r, 2)
    return [x, w], x.reshape(3, 2) @ w


def _every_other(x: Any) -> Any:
    return np.array([[x[2 * a, 6 * b : 6 * b + 5 : 2] for b in range(2)] for a in range(2)])


def _from_element(r: Random) -> Case:
    x = _ints(r, 6, 8)
    return [x, 4, 5], x[4:6, 5:8] - x[:2, :3]


def _small_matmul(r: Random) -> Case:
    a, b = (r.standard_normal(shape).astype(np.float16) for shape in ((32, 24), (24, 16)))
    return [a, b, 0.25], a.astype(np.float64) @ b.astype(np.float64) + 0.25


def _counters(x: Any) -> Any:
    return np.append(np.bincount(x & 3, minlength=4), max(0, x.max()))


def _tickets(r: Random) -> Case:
    x = r.integers(-8, 8, 16).astype(np.float32)
    return [x], np.full(16, x.sum())


def _derived(r: Random) -> Case:
    x, y = _ints(r, 2, 3, 4), _ints(r, 2, 3, 4)
    return [x, y], (x - y).reshape(6, 4)


def _pooled(r: Random) -> Case:
    x = _ints(r, 7, 9)
    found = np.lib.stride_tricks.sliding_window_view(x, (3, 3))[::2, ::2].max((2, 3))
    return [x, 3, 2], np.maximum(found, 0)


def _leftover(r: Random) -> Case:
    x, y = _ints(r, 11, 8), _ints(r, 11, 8)
    return [x, y], x + y


def _named(x: Any) -> Any:
    return 3 * x.sum(0)


def _arrays(r: Random) -> Case:
    a, b = _ints(r, 4, 6), _ints(r, 4, 6)
    return [a, b], a - 2 * b


def _rms_norm(r: Random) -> Case:
    x, w = r.standard_normal((3, 16), dtype=np.float32), r.standard_normal(16, dtype=np.float32)
    wide = x.astype(np.float64)
    return [x, w, 0.5], wide / np.sqrt((wide * wide).mean(1, keepdims=True) + 0.5) * w


def _pad(r: Random) -> Case:
    x = r.standard_normal((3, 5), dtype=np.float32)
    return [x], np.pad(x, ((1, 1), (0, 2)), constant_values=np.float32(9)).T


OF_THE_HARDWARE: dict[str, Callable[[Random], Case]] = {
    "tied_tiles": _of((4, 6), _tied),
    "tied_sums": _tied_sums,
    "remainder_tile": _of((14,), lambda x: np.append(2 * x[:12], -x[12:])),
    "further": _of((14,), lambda x: x + np.arange(14) // 4),
    "windows": _of((12,), lambda x: np.lib.stride_tricks.sliding_window_view(x, 4)[:8:2]),
    "every_other": _of((4, 12), _every_other),
    "from_element": _from_element,
    "small_matmul": _small_matmul,
    "shared_counters": _of((64,), _counters),
    "tickets": _tickets,
    "hardware_copies": _of((6, 4), lambda x: x + np.arange(6)[:, None]),
    "early_returns": lambda r: ([np.array([1.0, 0, 0, 0], np.float32), 9], 5),
    "derived_shapes": _derived,
    "pooled": _pooled,
    "leftover_rows": _leftover,
    "products_of_indices": _of((4, 2, 3), lambda x: x.transpose(2, 0, 1)),
    "host_arrays": _arrays,
    "rows_together": _of((7,), lambda x: x[::-1]),
    "rms_norm": _rms_norm,
    "scan_two_buffers": _of((32,), np.cumsum),
    "pad_then_transpose": _pad,
    "named_kernels": _of((2, 8), _named),
}
