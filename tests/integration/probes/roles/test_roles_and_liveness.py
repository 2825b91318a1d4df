"""What each argument was to a launch, and that no hash ever shows what the allocator left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from tests.integration.probes.roles.repeated_steps import (
    bits,
    by_name,
    compiled,
    position,
    role,
    thrice,
    whole,
)
from tests.support.torch_release import RELEASE
from torch import Tensor
from torch._inductor import config as inductor_config
from torch.nn import functional as F

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
