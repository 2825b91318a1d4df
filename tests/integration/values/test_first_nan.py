"""Planted producers of NaN: the watch names the kernel that made it, not one that passes it on."""

from __future__ import annotations

import math
from collections.abc import Callable
from fnmatch import fnmatchcase

import pytest
import torch
import torch.nn.functional as F

from kernelscope.values import Hit, WatchHit, watch

W = torch.eye(4)
Program = Callable[[], object]


def first(program: Program, **options: str) -> Hit:
    with pytest.raises(WatchHit) as stopped, watch("nan", **options):  # type: ignore[arg-type]
        program()
    return stopped.value.hit


def compiled(body: Callable[..., torch.Tensor], *inputs: torch.Tensor, backend: str = "inductor") -> Program:
    """The body between kernels that only pass things on."""

    def whole(*inputs: torch.Tensor) -> torch.Tensor:
        made = body(*(each.mm(W.to(each.dtype)) for each in inputs))
        return made.mm(W.to(made.dtype)).relu().mm(W.to(made.dtype))

    torch._dynamo.reset()
    function = torch.compile(whole, backend=backend)
    return lambda: function(*inputs)


def overflow(x: torch.Tensor) -> torch.Tensor:
    large = x.mm(x)  # too large for f32
    return large - large.flip(0)


def half(x: torch.Tensor) -> torch.Tensor:
    scaled = (x * 60000).half().mm(2 * W.half())  # too large for f16
    return scaled.float() - scaled.float().flip(0)


X = torch.arange(16.0).view(4, 4)
HUGE = torch.full((4, 4), 3e38)

FUSED = {
    "zero by zero": (lambda x: (x - x) / (x - x), X, "cpp_fused_*"),
    "log of a negative": (lambda x: torch.log(x - 3), X, "cpp_fused_*log*"),
    "overflow, then inf - inf": (overflow, HUGE, "cpp_fused_*sub*"),
    "softmax of all -inf": (lambda x: torch.softmax(x * 0 + -math.inf, -1), X + 1, "cpp_fused_*"),
    "a bad scale in f16": (half, torch.ones(4, 4), "cpp_fused_*sub*"),
    "a root of a negative": (lambda x: torch.pow(x - 8, 1 / 3), X, "cpp_fused_*pow*"),
    "extern kernel": (lambda x: torch.mm(x.mul(1e38).mul(10), x.mul(0)), X + 1, "extern_kernels.mm"),
}


@pytest.mark.parametrize("name", FUSED)
def test_compiled(name: str) -> None:
    body, x, kernel = FUSED[name]
    hit = first(compiled(body, x))
    assert fnmatchcase(hit.kernel, kernel), hit
    assert hit.is_producer
    assert hit.arg.startswith(("out_ptr", "in_out_ptr")) if hit.kind == "cpp" else hit.arg == "out"
    assert not any(tensor.isnan().any() for tensor in hit.inputs.values())
    if name.startswith(("overflow", "a bad scale")):
        assert "extern_kernels.mm" in str(hit)  # who made the infinity


def test_backward_only() -> None:
    x = torch.zeros(4, 4, requires_grad=True)
    torch._dynamo.reset()
    function = torch.compile(lambda x: (torch.sqrt(x.mm(W)) * 0).sum())
    hit = first(lambda: function(x).backward())
    assert hit.kind == "cpp"
    assert hit.is_producer
    assert "backward" in hit.kernel or "sqrt" in hit.kernel or "div" in hit.kernel
    assert not any(tensor.isnan().any() for tensor in hit.inputs.values())


def test_mutated_buffer() -> None:
    buffer = torch.full((4,), 2.0)

    @torch.compile
    def update(buffer: torch.Tensor) -> None:
        buffer.copy_(torch.sqrt(buffer - 5))

    hit = first(lambda: update(buffer))
    assert hit.is_producer
    [found] = [tensor for name, tensor in hit.inputs.items() if "ptr" in name][:1]
    assert torch.equal(found, torch.full((4,), 2.0))  # as it was before the launch
    assert buffer.isnan().all()


@torch.library.custom_op("kernelscope_tests::spoil", mutates_args=())
def spoil(x: torch.Tensor) -> torch.Tensor:
    return x / 0 * 0


@spoil.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_custom_operator() -> None:
    hit = first(compiled(lambda x: spoil(x), X))
    assert hit.kind == "extern"
    assert "spoil" in hit.kernel
    assert hit.is_producer


def test_uninitialised_read() -> None:
    consume = torch.compile(lambda x: (x * 2).relu())
    consume(torch.ones(5))
    torch.use_deterministic_algorithms(True)  # which fills new memory with NaN
    try:
        hit = first(lambda: consume(torch.empty(5)), ops="all")
    finally:
        torch.use_deterministic_algorithms(False)
    assert hit.kind == "cpp"
    assert hit.is_producer
    assert "uninitialised memory" in str(hit)


def test_eager_operator() -> None:
    target = torch.full((4,), -100)
    hit = first(lambda: F.cross_entropy(X, target), ops="all")
    assert hit.kernel.startswith("aten.nll_loss")
    assert hit.is_producer


def test_gcu_kernel() -> None:
    hit = first(compiled(lambda x: torch.log(x - 3), X, backend="gcu"))
    assert hit.kind == "gcu"
    assert hit.is_producer


def test_masks_with_infinities_are_no_hit() -> None:
    mask = torch.ones(4, 4).triu(1).bool()

    def attention(q: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q.mm(q.t()).masked_fill(mask, -math.inf), -1).mm(q)

    with watch("nan", "inf") as hits:
        compiled(attention, X / 16)()
    assert not hits
