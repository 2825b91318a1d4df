"""What the functions of the corpus must compute, from NumPy: arguments and the expected result of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Case = tuple[list[Any], Any]
Random = np.random.Generator


def _ints(r: Random, *shape: int, low: int = -9, high: int = 10) -> Any:
    return r.integers(low, high, shape, dtype=np.int32)


def _floats(r: Random, *shape: int) -> Any:
    return r.standard_normal(shape, dtype=np.float32)


def _of(make: Callable[[Random], Any], result: Callable[[Any], Any]) -> Callable[[Random], Case]:
    def case(r: Random) -> Case:
        x = make(r)
        return [x], result(x)

    return case


def _both(make: Callable[[Random], Any], result: Callable[[Any, Any], Any]) -> Callable[[Random], Case]:
    def case(r: Random) -> Case:
        x, y = make(r), make(r)
        return [x, y], result(x, y)

    return case


def _matmul(m: int, k: int, n: int) -> Callable[[Random], Case]:
    def case(r: Random) -> Case:
        a, b = _floats(r, m, k), _floats(r, k, n)
        return [a, b], (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)

    return case


def _masks(r: Random) -> Case:
    out = np.zeros((3, 4), np.int32)
    for p in range(3):
        out[p, 0] = 100 * p + 1 if p < 2 else 0
        out[p, 1] = 100 * p + 2
        out[p, 2:] = out[p, 1] + np.array([2, 3])
    return [], out


def _producer(x: Any) -> Any:
    return x * 10 + 1 + np.arange(12) // 4


def _device(x: Any) -> Any:
    out = np.where(x % 2 == 0, 3 * x + 1, -x)
    out[5] = (x % 2 == 0).sum()
    return out


def _macros(x: Any) -> Any:
    out = 2 * (x + 1) ** 2
    out[0] = 100
    return out


def _parameter(x: Any) -> Any:
    out = x.copy()
    out[0, 0] = 7
    return out


EXPECTED: dict[str, Callable[[Random], Case]] = {
    "add_blocks_threads": _both(lambda r: _ints(r, 12, 32), np.add),
    "matmul_tiles": _matmul(16, 32, 24),
    "double_buffered_add": _both(lambda r: _ints(r, 6, 17, 128), np.add),
    "odd_double_buffering": _of(lambda r: _ints(r, 20), lambda x: 3 * x),
    "triple_buffering": _of(lambda r: _floats(r, 32), lambda x: x + 1),
    "array_of_buffers": _of(lambda r: _ints(r, 24), lambda x: 2 * x + np.arange(24) // 4),
    "chained_copies": _of(lambda r: _floats(r, 8, 16), lambda x: x),
    "select_target": _of(lambda r: _ints(r, 16), lambda x: x[1::4]),
    "producer_consumer": _of(lambda r: _ints(r, 6, 12), _producer),
    "event_handoff": _of(lambda r: _ints(r, 256), lambda x: (x + 10)[::-1]),
    "masked_remainder": _of(lambda r: _ints(r, 13), lambda x: x * x),
    "two_level_masks": _masks,
    "tree_reduction": _of(lambda r: _floats(r, 64), lambda x: x.astype(np.float64).sum(keepdims=True)),
    "global_events": _of(lambda r: _ints(r, 5), np.cumsum),
    "three": lambda r: ([], 3),
    "add_up": lambda r: ([4, -9], -5),
    "same_number": lambda r: ([2.5], 2.5),
    "sign_of": _of(lambda r: _ints(r, 1), lambda x: np.sign(x[0])),
    "count": lambda r: ([torch.zeros(3, 5, dtype=torch.bfloat16)], 15),
    "rank_one": lambda r: ([np.zeros(7, np.float32)], 14),
    "return_parameter": _of(lambda r: _ints(r, 4, 2), _parameter),
    "device_functions": _of(lambda r: _ints(r, 6, low=1), _device),
    "macros": _of(lambda r: _ints(r, 16), _macros),
    "chosen_function": _of(lambda r: _ints(r, 4), lambda x: x + 2),
}
