"""Faults that make a kernel do something else each time, planted in the C++ that Inductor generates."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.utils import fresh_inductor_cache

THREADS = 2

# Lost updates: what an atomic addition is there to prevent.
RACY = """
static inline void racy_add(float* p, float v) {
    volatile float* q = p; float old = *q;
    for (int n = 0; n < 200; n++) asm volatile("" ::: "memory");
    *q = old + v;
}
"""
COUNTER = "static int launches_so_far = 0;\n"
CLOCK = "#include <chrono>\n"


@dataclass(frozen=True)
class Fault:
    name: str
    program: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    plant: Callable[[str], str]  # the source of a kernel with the fault in it, or as it was
    kernel: str  # part of the name of the kernel that is to be accused
    graph: str = "inference"


@contextmanager
def planted(fault: Fault) -> Iterator[list[str]]:
    """Compile with the fault, in an empty cache, whose key does not see it; yields the changed sources."""
    original, changed = AsyncCompile.cpp_pybinding, []

    def compile_with_fault(self: Any, argtypes: Any, source: str) -> Any:
        faulty = fault.plant(source)
        if faulty != source:
            changed.append(faulty)
        return original(self, argtypes, faulty)

    torch._dynamo.reset()
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        with patch.object(AsyncCompile, "cpp_pybinding", compile_with_fault), fresh_inductor_cache():
            yield changed
    finally:
        torch.set_num_threads(threads)
        torch._dynamo.reset()


# -- programs --------------------------------------------------------------------------------------------


def scatter() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    def fn(x: torch.Tensor, where: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.gelu(x)
        z = torch.zeros(16).index_add(0, where, y)
        return (z @ w).relu()

    return torch.compile(fn), (torch.randn(100_000), torch.randint(0, 16, (100_000,)), torch.randn(16, 8))


def embedding_backward() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    table = torch.nn.Parameter(torch.randn(16, 32))

    @torch.compile
    def loss(rows: torch.Tensor) -> torch.Tensor:
        return (table[rows].sin() ** 2).sum()

    def step(rows: torch.Tensor) -> torch.Tensor | None:
        loss(rows).backward()
        return table.grad

    return step, (torch.randint(0, 16, (4096,)),)


def mlp() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.layer_norm(x @ w, (64,)).relu()
        return (hidden @ w).sigmoid()

    return torch.compile(fn), (torch.randn(32, 64), torch.randn(64, 64))


def noisy_operator() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The fault is in an operator of the user's: it asks the operating system for random numbers."""

    @torch.library.custom_op("kernelscope_tests::unsteady_noise", mutates_args=())
    def noise(x: torch.Tensor) -> torch.Tensor:
        return x + int.from_bytes(os.urandom(2), "little") * 1e-6

    @noise.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return noise(x.sin()).relu().sum(0)

    return torch.compile(fn), (torch.randn(16, 16),)


def littered() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Small buffers are made of memory that held something else at each run."""
    fn, args = mlp()
    litter = itertools.count(1)

    def littering(*args: Any) -> Any:
        pieces = [torch.full((32, 1), float(next(litter))) for _ in range(200)]
        del pieces
        return fn(*args)

    return littering, args


# -- plants ----------------------------------------------------------------------------------------------


def without_atomics(source: str) -> str:
    """Accumulation that loses updates."""
    if "atomic_add" not in source:
        return source
    scalar = re.sub(r"atomic_add\(&(\w+\[[^;]*\]), ", r"racy_add(&\1, ", source)
    vector = re.sub(
        r"atomic_add_vec<float, \d+, \d+>\((\w+), (\w+), (\w+)\);",
        r"{ alignas(64) int64_t at[64]; alignas(64) float by[64]; \2.store(at); \3.store(by); "
        r"for (int n = 0; n < decltype(\3)::size(); n++) racy_add(\1 + at[n], by[n]); }",
        scalar,
    )
    return _with(RACY, vector) if vector != source else source


def as_it_is(source: str) -> str:
    return source


def counting(every: int) -> Callable[[str], str]:
    """A kernel with a memory: each n-th launch is off by a little."""

    def plant(source: str) -> str:
        return _after_stores(source, "std::sqrt", COUNTER, f"(launches_so_far++ % {every} == 0)")

    return plant


def clocked(source: str) -> str:
    """A result that depends on the time of day."""
    now = "(std::chrono::steady_clock::now().time_since_epoch().count() / 1000 % 2 == 0)"
    return _after_stores(source, "exp(", CLOCK, now)


def _after_stores(source: str, sign: str, head: str, when: str) -> str:
    """Change one element of what a kernel leaves, now and then."""
    signature = re.search(r'extern "C"[^(]*?\w+\(([^)]*)\)\s*\{(.*)', source, re.DOTALL)
    if signature is None or sign not in signature[2]:
        return source
    outputs = re.findall(r"\.store\((\w+) \+", signature[2])
    body, brace, rest = source.rpartition("}")
    return _with(head, f"{body}    if {when} {outputs[-1]}[3] += 1e-4f;\n{brace}{rest}")


def stale(source: str) -> str:
    """A read of memory that nobody has written: what a scratch buffer happened to hold."""
    if "std::sqrt" not in source:
        return source
    head, brace, body = source.partition("{\n")
    body, end, rest = body.rpartition("}")
    read = "    float stale = in_out_ptr0[0];\n"
    return f"{head}{brace}{read}{body}    in_out_ptr1[3] += stale * 1e-3f;\n{end}{rest}"


def _with(head: str, source: str) -> str:
    return source.replace('extern "C"', f'{head}extern "C"', 1)


FAULTS = [
    Fault("lost updates", scatter, without_atomics, "index_add"),
    Fault("each launch another", mlp, counting(2), "layer_norm"),
    Fault("one launch in three", mlp, counting(3), "layer_norm"),
    Fault("memory that nobody wrote", littered, stale, "layer_norm"),
    Fault("the time of day", mlp, clocked, "sigmoid"),
    Fault("a custom operator", noisy_operator, as_it_is, "unsteady_noise"),
    Fault("lost updates in the backward", embedding_backward, without_atomics, "index", "backward"),
]
