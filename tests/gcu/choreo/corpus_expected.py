"""What the functions of the corpus must compute, from NumPy: arguments and the expected result of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from .corpus_expected_hardware import OF_THE_HARDWARE

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


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _attention(s: int, d: int) -> Callable[[Random], Case]:
    def case(r: Random) -> Case:
        q, k, v = (_floats(r, s, d) for _ in range(3))
        return [q, k, v], _softmax(q.astype(np.float64) @ k.T / np.sqrt(d)) @ v

    return case


def _layer_norm(r: Random) -> Case:
    x, gain, bias = _floats(r, 5, 24), _floats(r, 24), _floats(r, 24)
    wide = x.astype(np.float64)
    variance = wide.var(-1, keepdims=True)
    return [x, gain, bias], (wide - wide.mean(-1, keepdims=True)) / np.sqrt(variance + 1e-5) * gain + bias


def _activations(x: Any) -> Any:
    t = torch.from_numpy(x).double()
    f = torch.nn.functional
    found = [f.gelu(t), f.softplus(t), t.sigmoid(), t.tanh(), t.relu(), f.silu(t)]
    return torch.stack(found).numpy()


def _builtins(given: Any) -> Any:
    x = given.astype(np.float64)
    a = np.abs(x)
    return np.stack([
        a, np.exp2(x), np.log1p(a), np.expm1(x), np.arctan2(x, 2), a**1.5, np.floor(x) + np.ceil(x),
        np.maximum(x, 0.25) - np.minimum(x, 0.5), np.ones_like(x), np.sinh(x) + np.cosh(x),
        np.sqrt(a) * np.cos(x) + np.sin(x), np.log(a + 1), np.fmod(x, 0.75),
        np.arcsin(x / 10) + np.arccos(x / 10) + np.arctan(x), np.tan(x / 4), 1 / np.sqrt(a + 1),
    ])  # fmt: skip


def _integers(x: Any) -> Any:
    both = [int(np.fmod(x[2], 5)), int(np.trunc(x[3] / 2))]
    last = int(x[4] == x[5] or not x[4] > x[5])
    bits = int(x[1] & 7) + int(x[1] >> 1)
    return [9, 6, 3, 3, ~int(x[0]), bits, 17, 98, sum(both), 1, last, 19]


def _half(r: Random) -> Case:
    a, b = (torch.from_numpy(_floats(r, 16)).half() for _ in range(2))
    product = a.float() * b.float()
    return [a, b], torch.where(product > 0, product, a.float()).half().numpy()


def _tuples(x: Any) -> Any:
    i, j = np.indices(x.shape)
    return x + i % 2 * 10 + j % 2


def _stencil(x: Any) -> Any:
    out = x.copy()
    out[1:-1] = np.trunc((x[:-2] + x[1:-1] + x[2:]) / 3)
    return out


def _loops(x: Any) -> Any:
    odd = sum(int(v) for v in x[1:] if v % 2)
    first = next((k for k, v in enumerate(x) if v > 5), 20)
    count = int((x > 0).sum())
    return [odd, first, count * (count - 1) // 2, 0]


def _padding(x: Any) -> Any:
    out = np.full((7, 10), 0.5, np.float32)
    out[1:5, 2:6] = x.T.reshape(4, 6)[:, :4]
    return out


def _raw(x: Any) -> Any:
    out = 2 * x
    out[0] = 1
    return out


def _symbols(r: Random) -> Case:
    a, b, c = _floats(r, 3, 7), _floats(r, 7, 2), _floats(r, 4)
    return [a, b, c], a.astype(np.float64) @ b + c[0]


def _backward(y: Any, g: Any) -> Any:
    return y.astype(np.float64) * (g - (y * g).sum(-1, keepdims=True))


def _embedding(r: Random) -> Case:
    ids, table = _ints(r, 9, low=0, high=6), _floats(r, 6, 5)
    return [ids, table], table[ids]


def _histogram(r: Random) -> Case:
    x = r.integers(0, 256, 64, dtype=np.uint8)
    return [x], np.bincount(x % 4, minlength=4)


def _convolution(r: Random) -> Case:
    x, w = _floats(r, 6, 7), _floats(r, 3, 3)
    given = [torch.from_numpy(t).double()[None, None] for t in (x, w)]
    return [x, w], F.conv2d(given[0], given[1], padding=1)[0, 0].numpy()


def _rope(x: Any) -> Any:
    wide = x.astype(np.float64)
    i, s = np.arange(x.shape[1] // 2), np.arange(x.shape[0])[:, None]
    turned = (wide[:, ::2] + 1j * wide[:, 1::2]) * np.exp(1j * s * 10000.0 ** (-2 * i / x.shape[1]))
    return np.stack([turned.real, turned.imag], -1).reshape(x.shape)


def _concatenated(r: Random) -> Case:
    x, y = _ints(r, 2, 4), _ints(r, 3, 4)
    return [x, y], np.concatenate([x, y])


def _types(r: Random) -> Case:
    kinds = (np.int8, np.uint8, np.int16, np.uint16, np.int64, np.float64)
    given: list[Any] = [r.integers(0, 100, 4).astype(k) for k in kinds]
    total = sum(g.astype(np.float64) for g in given)
    half = torch.tensor([0.5, 1.5, -2.0, 100.0]).bfloat16()
    given[3] = torch.from_numpy(given[3])
    return [*given, half], total + half.double().numpy()


def _macros_again(x: Any) -> Any:
    out = x + 3
    out[0] = 50
    return out


def _scaled(r: Random) -> Case:
    x = _floats(r, 4, 8)
    return [x, 0.75], x * np.float32(0.75)


def _bounds(x: Any) -> Any:
    return [11, 12, 2, 8, 1, 3, x[2] + x[3], 24]


def _routing(r: Random) -> Case:
    s, x = _floats(r, 11, 2), _floats(r, 11, 4)
    first, second = s[:, :1] >= s[:, 1:], s[:, 1:] > 1
    return [s, x], np.where(first, 2 * x, np.where(second, x + 1, 0))


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
    "softmax_rows": _of(lambda r: _floats(r, 7, 33), lambda x: _softmax(x.astype(np.float64))),
    "softmax_backward": _both(lambda r: _floats(r, 6, 10), _backward),
    "attention": _attention(8, 16),
    "flash_attention": _attention(12, 8),
    "layer_norm": _layer_norm,
    "activations": _of(lambda r: _floats(r, 32), _activations),
    "builtins": _of(lambda r: _floats(r, 16), _builtins),
    "integers": _of(lambda r: _ints(r, 8, low=0, high=40), _integers),
    "half_precision": _half,
    "tuple_loops": _of(lambda r: _ints(r, 6, 8), _tuples),
    "stencil": _of(lambda r: _ints(r, 16), _stencil),
    "loop_control": _of(lambda r: _ints(r, 20, low=-3), _loops),
    "padding": _of(lambda r: _floats(r, 4, 6), _padding),
    "raw_cpp": _of(lambda r: _ints(r, 4), _raw),
    "printing": lambda r: ([_ints(r, 2, 3)], [2]),
    "three_levels": lambda r: ([], np.add.outer(np.add.outer([0, 100], [0, 10, 20]), np.arange(4))),
    "pipeline_stages": _of(lambda r: _ints(r, 5, 4), lambda x: x + np.arange(5)[:, None]),
    "wait_for_selection": _of(lambda r: _ints(r, 12), lambda x: x[8:]),
    "symbols": _symbols,
    "embedding": _embedding,
    "histogram": _histogram,
    "prefix_sum": _of(lambda r: _ints(r, 32), np.cumsum),
    "convolution": _convolution,
    "rope": _of(lambda r: _floats(r, 5, 8), _rope),
    "transpose_blocks": _of(lambda r: _ints(r, 8, 12), np.transpose),
    "concatenated": _concatenated,
    "mixed_types": _types,
    "four_stage_ring": _of(lambda r: _ints(r, 40), lambda x: x),
    "grid_of_events": _of(lambda r: _ints(r, 2, 3), lambda x: 5 * x),
    "macros_again": _of(lambda r: _ints(r, 6), _macros_again),
    "kernel_template": _scaled,
    "template_names": _of(lambda r: _floats(r, 4, 8), lambda x: x * np.float32(2) + np.float32(1)),
    "bounded_arithmetic": _of(lambda r: _ints(r, 12), _bounds),
    "moe_routing": _routing,
    **OF_THE_HARDWARE,
}
# Functions that return nothing; they are checked by the program that calls them.
CHECKED_BY_MAIN = {"concatenate", "one_of_two", "small_matmul_rows"}
