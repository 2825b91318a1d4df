"""What each argument was to a launch, and that no hash ever shows what the allocator left behind.

Inputs are whole numbers, so that every intermediate value is exact and eager code can say what it must be.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from tests.support.torch_release import RELEASE
from torch import Tensor
from torch._inductor import config as inductor_config
from torch.nn import functional as F

import kernelscope
from kernelscope import KernelCall, Run
from kernelscope.fingerprint import fingerprint

Make = Callable[[], tuple[Tensor, ...]]


def whole(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).float()


def bits(tensor: Tensor) -> int:
    return fingerprint(tensor.detach()).bits


def stir() -> None:
    """Leave other contents in the memory that the next call will get."""
    filled = [torch.full((size,), random.random()) for size in range(1, 300) for _ in range(2)]
    del filled


def thrice(step: Callable[[], Any]) -> Run:
    """Three identical steps have identical roles and hashes; the first of them."""
    runs = []
    for _ in range(3):
        stir()
        with kernelscope.record(values="hash") as run:
            step()
        runs.append(run)
    first, *others = [[(c.kernel_name, c.roles, c.pre_hashes, c.post_hashes) for c in r.calls] for r in runs]
    assert first
    for other in others:
        assert other == first
    return runs[0]


def by_name(call: KernelCall, hashes: dict[int, Any]) -> dict[str, Any]:
    return {call.arg_names[i]: value for i, value in hashes.items()}


def position(call: KernelCall, wrapper_name: str) -> int:
    return call.wrapper_names.index(wrapper_name)


def role(call: KernelCall, name: str) -> str:
    return call.roles[call.arg_names.index(name)]


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    result: Callable[..., Any] = torch.compile(function)
    return result


# -- uninitialised memory --------------------------------------------------------------------------------


def normed(x: Tensor) -> Tensor:
    return F.layer_norm(x, (16,))


in_out_statistics = pytest.mark.skipif(
    RELEASE < (2, 12), reason="torch 2.11 writes the statistics of a LayerNorm to arguments named out_ptr"
)


@in_out_statistics
def test_layer_norm_writes_its_in_out_arguments_into_fresh_memory() -> None:
    x = whole(8, 16)
    run = thrice(lambda: compiled(normed)(x))
    [call] = run.calls
    fresh = [i for i, name in enumerate(call.arg_names) if name.startswith("in_out_ptr")]
    assert fresh, "this torch generates LayerNorm in another way: look for another example"
    for i in fresh:
        assert call.arguments[i].role == "inout"  # so it is declared
        assert call.roles[i] == "out"
        assert i in call.uninitialised
        assert i not in call.pre_hashes
        assert i in call.modified_args
    assert by_name(call, call.pre_hashes) == {"in_ptr0": bits(x)}
    assert not run.findings


def half_written_when_read(x: Tensor) -> Tensor:
    both = torch.cat([x.sin(), x @ x], 1)
    return torch.sort(F.relu(both) * 2, 1).values


def test_memory_that_the_kernel_itself_fills_in_part_is_not_hashed_before() -> None:
    x = whole(8, 8)
    run = thrice(lambda: compiled(half_written_when_read)(x))
    joined = next(c for c in run.calls if c.kind == "cpp")
    slices = {a.tensor.stride for a in joined.arguments if a.tensor and a.role == "out"}
    assert (16, 1) in slices, "this torch does not write into slices of one buffer here"
    for i, arg in enumerate(joined.arguments):
        if arg.tensor is not None and arg.role == "in" and arg.tensor.shape == (8, 16):
            assert i not in joined.pre_hashes
    assert not run.findings


# -- written in pieces, written in place -----------------------------------------------------------------


def put_into_pieces(x: Tensor, index: Tensor) -> Tensor:
    both = torch.cat([x @ x, x @ x.t()], 1)
    return both.index_put_((index,), torch.ones(2, 16), accumulate=True)


def test_slices_written_one_by_one_make_a_live_whole() -> None:
    x, index = whole(8, 8), torch.tensor([1, 1])
    run = thrice(lambda: compiled(put_into_pieces)(x, index))
    *products, put = run.calls
    assert [c.kernel_name for c in products] == ["extern_kernels.mm"] * 2
    assert [role(c, "out") for c in products] == ["out"] * 2
    assert [c.post_hashes[2] for c in products] == [bits(x @ x), bits(x @ x.t())]
    assert len({c.storages[2][0] for c in products} | {put.storages[1][0]}) == 1
    assert role(put, "out_ptr0") == "inout"
    assert by_name(put, put.pre_hashes)["out_ptr0"] == bits(torch.cat([x @ x, x @ x.t()], 1))
    assert by_name(put, put.post_hashes)["out_ptr0"] == bits(put_into_pieces(x, index))


def chained(x: Tensor) -> Tensor:
    rectified = torch.relu(x @ x)
    return rectified @ rectified


def test_a_buffer_that_is_reused_in_place() -> None:
    x = whole(8, 8)
    results = []
    run = thrice(lambda: results.append(compiled(chained)(x)))
    first, relu, second = run.calls
    product, rectified = x @ x, torch.relu(x @ x)
    assert (relu.arg_names, relu.roles) == (("in_out_ptr0",), ("inout",))
    assert first.pre_hashes == {0: bits(x), 1: bits(x)}
    assert first.post_hashes == {0: bits(x), 1: bits(x), 2: bits(product)}
    assert (relu.pre_hashes, relu.post_hashes) == ({0: bits(product)}, {0: bits(rectified)})
    assert second.post_hashes[2] == bits(rectified @ rectified) == bits(results[0])
    storage, epoch, _ = first.storages[2]
    assert relu.storages[0] == (storage, epoch + 1, 0)
    assert second.storages[0] == (storage, epoch + 2, 0)


def planned(x: Tensor) -> tuple[Tensor, Tensor]:
    a = x @ x
    b = torch.relu(a) @ x
    c = (b + a) @ x
    return F.layer_norm(torch.relu(c) @ a, (8,)), b


@in_out_statistics
def test_pieces_of_a_planned_pool() -> None:
    x = whole(8, 8)
    with inductor_config.patch(memory_planning=True):
        function = torch.compile(planned)
        results = [function(x)]
    run = thrice(lambda: results.append(function(x)))
    assert "alloc_from_pool(" in run.graphs[0].source
    products = [c for c in run.calls if c.kernel_name == "extern_kernels.mm"]
    a = x @ x
    b = torch.relu(a) @ x
    assert [c.post_hashes[2] for c in products] == [
        bits(v) for v in (a, b, (b + a) @ x, torch.relu((b + a) @ x) @ a)
    ]
    assert [role(c, "out") for c in products] == ["out"] * 4
    norm = run.calls[-1]
    assert bits(results[0][0]) in norm.post_hashes.values()
    statistics = [i for i in norm.uninitialised if norm.arg_names[i].startswith("in_out_ptr")]
    assert statistics  # mean and variance lie where dead values of others were
    assert all(norm.roles[i] == "out" and i not in norm.pre_hashes for i in statistics)


# -- accumulation ----------------------------------------------------------------------------------------


def accumulated(x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    x.index_put_((index,), values, accumulate=True)
    return x.sum()


def also_accumulated(x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    x.index_put_((index,), values, accumulate=True)
    return x.amax()


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("count", "function"), [(1, accumulated), (2, also_accumulated)])
def test_index_put_reads_what_it_accumulates_into(count: int, function: Callable[..., Tensor]) -> None:
    """For one thread Inductor generates +=, for several an atomic addition."""
    index, values = torch.tensor([1, 1]), whole(2, 9, seed=1)
    seen = []

    def step() -> None:
        seen.append(whole(9, 9))
        compiled(function)(seen[-1], index, values)

    with threads(count):
        run = thrice(step)
    [call] = run.calls
    i = position(call, "arg0_1")
    assert call.arg_names[i] == "out_ptr0"
    assert call.roles[i] == "inout"
    assert call.pre_hashes[i] == bits(whole(9, 9))
    assert call.post_hashes[i] == bits(seen[0]) != call.pre_hashes[i]


def embedded(tokens: Tensor, weight: Tensor) -> Tensor:
    return F.embedding(tokens, weight).sum()


def test_embedding_backward() -> None:
    tokens, weight = torch.tensor([1, 1, 3]), whole(5, 4).requires_grad_()

    def step() -> None:
        weight.grad = None
        compiled(embedded)(tokens, weight).backward()

    run = thrice(step)
    assert weight.grad is not None
    calls = [c for c in run.calls if c.phase == "backward"]
    written = [(c, i) for c in calls for i in c.modified_args]
    assert bits(weight.grad) == written[-1][0].post_hashes[written[-1][1]]
    assert {c.roles[i] for c, i in written[:1]} == {"out"}, "the zeros are made in fresh memory"
    for call in calls:
        assert not set(call.uninitialised) & call.pre_hashes.keys()
    assert not run.findings


# -- the program's own tensors ---------------------------------------------------------------------------


def mutated(x: Tensor, y: Tensor) -> Tensor:
    x.copy_(y * 2)
    return y + 1


def test_a_mutated_input() -> None:
    y = whole(8)
    seen: list[tuple[Tensor, Tensor]] = []

    def step() -> None:
        seen.append((torch.zeros(8), y))
        compiled(mutated)(*seen[-1])

    [call] = thrice(step).calls
    [i] = [i for i in call.modified_args if call.wrapper_names[i].startswith("arg")]
    assert call.pre_hashes[i] == bits(torch.zeros(8)), "its contents were there before"
    assert call.post_hashes[i] == bits(seen[0][0]) == bits(y * 2)


def clamped(x: Tensor) -> None:
    x.clamp_(min=-1e9)


def test_writing_the_same_values_is_still_an_output() -> None:
    x = whole(8)
    [call] = thrice(lambda: compiled(clamped)(x)).calls
    [i] = call.modified_args
    assert call.roles[i] in ("out", "inout")
    assert not call.changed_args
    assert call.pre_hashes[i] == call.post_hashes[i] == bits(x)
    assert call.log["outputs"] == [call.arg_names[i]]


def through_an_alias(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    return y * 2


def test_inputs_that_share_their_memory() -> None:
    results = []

    def step() -> None:
        base = whole(8)
        results.append(compiled(through_an_alias)(base[:6], base[2:]))

    run = thrice(step)
    expected = whole(8)
    expected[:6] += 1
    assert torch.equal(results[0], expected[2:] * 2)
    assert any(bits(expected[2:] * 2) in c.post_hashes.values() for c in run.calls)
    assert not run.findings, "the declared write explains the change of its alias"


def test_the_same_tensor_twice() -> None:
    x = whole(8)
    run = thrice(lambda: compiled(mutated)(x.clone(), x))
    assert not run.findings


# -- writes that nobody declared -------------------------------------------------------------------------


@torch.library.custom_op("kernelscope_roles::dishonest", mutates_args=())
def dishonest(x: Tensor) -> Tensor:
    x.add_(1)
    return x * 2


@dishonest.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def trusting(x: Tensor) -> Tensor:
    return dishonest(x @ x) + 1


def test_an_undeclared_write_is_a_finding() -> None:
    x = whole(8, 8)
    run = thrice(lambda: compiled(trusting)(x))
    call = next(c for c in run.calls if "dishonest" in c.kernel_name)
    assert call.roles == ("in", "out")
    assert call.changed_args == {0}
    assert call.modified_args == {0, 1}
    [finding] = run.findings
    assert (finding.kind, finding.call, finding.arg) == ("undeclared-write", call.index, "x")
    assert "dishonest" in finding.message


@torch.library.custom_op("kernelscope_roles::honest", mutates_args=("x",))
def honest(x: Tensor) -> None:
    x.add_(1)


def declaring(x: Tensor) -> Tensor:
    product = x @ x
    honest(product)
    return product


def test_a_declared_write_is_none() -> None:
    x = whole(8, 8)
    run = thrice(lambda: compiled(declaring)(x))
    call = next(c for c in run.calls if "honest" in c.kernel_name)
    assert call.roles == ("inout",)
    assert (call.pre_hashes, call.post_hashes) == ({0: bits(x @ x)}, {0: bits(x @ x + 1)})
    assert not run.findings


# -- results of fallbacks --------------------------------------------------------------------------------


def counted(x: Tensor) -> Tensor:
    return torch.nonzero(x)


def test_a_result_whose_shape_depends_on_the_data() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        function = torch.compile(counted, fullgraph=True)
        inputs = [torch.tensor([1, 0, 2]), torch.tensor([0, 0, 3]), torch.tensor([1, 1, 1])]
        with kernelscope.record(values="hash") as run:
            results = [function(x) for x in inputs]
    calls = [c for c in run.calls if c.kernel_name.startswith("aten.nonzero")]
    assert [c.arguments[-1].tensor.shape for c in calls] == [(2, 1), (1, 1), (3, 1)]
    assert [c.post_hashes[1] for c in calls] == [bits(r) for r in results]
