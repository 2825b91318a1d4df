"""Shapes, strides, views and dynamic sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._dynamo
from tests.gcu.looking import compile_and_look
from tests.support.torch_release import RELEASE

from kernelscope.gcu.execution.executor import Check, CompiledGraph, Result


def check(f: Any, *args: Any, **settings: Any) -> Any:
    compiled, look = compile_and_look(f, **settings)
    got, expected = compiled(*args), f(*args)
    pairs = zip(got, expected, strict=True) if isinstance(got, tuple | list) else [(got, expected)]
    for a, b in pairs:
        assert a.stride() == b.stride() or not a.numel()  # of nothing, fake tensors tell other strides
        torch.testing.assert_close(a, b, equal_nan=True)
    return look


def test_ranks_and_broadcasts() -> None:
    def f(*t: torch.Tensor) -> Any:
        s, a, b, c, d, e, g = t
        return s + 1, s * a, a + b, b * c, c - d, d + e.sum(), e * g, (g + s).sum((1, 3, 5)), g.amax(2)

    shapes = [(), (4,), (3, 1), (2, 3, 4), (2, 1, 1, 4), (2, 3, 2, 1, 4), (2, 3, 2, 2, 3, 4)]
    tensors = [torch.randn(s) for s in shapes]
    tensors[5] = torch.randn(3, 2, 2, 1, 4)
    look = check(f, *tensors)
    assert not look.fallbacks


def test_many_inputs() -> None:
    """Copies of a kernel's inputs are numbered, and f16, f32 and f64 are types."""
    tensors = [torch.randn(4, 6, dtype=torch.float64) for _ in range(66)]
    check(lambda *t: sum(x * n for n, x in enumerate(t)), *tensors)
    check(lambda *t: sum(x * n for n, x in enumerate(t)).sum(-1), *tensors)


def test_strides() -> None:
    base = torch.randn(6, 8, 10)
    inputs = (
        base.transpose(0, 2), base[::2, 1:5, ::3], base[0].t(), base[:, 3].expand(4, 6, 10), base[5:6],
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    )  # fmt: skip

    def f(*t: torch.Tensor) -> Any:
        return tuple(x * 2 + 1 for x in t) + tuple(x.sum(-1) for x in t) + (t[0].softmax(0),)

    assert not check(f, *inputs).fallbacks


def test_views_inside() -> None:
    def f(x: torch.Tensor) -> Any:
        y = x * 2
        parts = y.view(4, 3, 8).permute(1, 0, 2)
        halves = y.chunk(2, dim=1)
        return (
            parts + 1, parts.reshape(12, 8) * 3, y.t() + y.t(), y[1:3] * y[2:4], halves[0] - halves[1],
            y.unsqueeze(0).expand(3, -1, -1) + 1, y.flatten()[::5] + 0.5, y.select(1, 2) * 2,
            (y + y.sum(1, keepdim=True)).transpose(0, 1).contiguous(),
        )  # fmt: skip

    assert not check(f, torch.randn(4, 24)).fallbacks


def test_outputs_that_alias_inputs_and_each_other() -> None:
    def f(x: torch.Tensor) -> Any:
        y = x + 1
        return x, x.t(), y, y.view(-1), y

    compiled, _ = compile_and_look(f)
    x = torch.randn(3, 4)
    out = compiled(x)
    assert out[0] is x
    assert out[1].data_ptr() == x.data_ptr()
    assert out[2].data_ptr() == out[3].data_ptr() == out[4].data_ptr()
    for a, b in zip(out, f(x), strict=True):
        torch.testing.assert_close(a, b)


def test_mutated_input() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.add_(1).mul_(2)
        return x + 1

    compiled, _ = compile_and_look(f)
    x = torch.randn(5)
    y = x.clone()
    torch.testing.assert_close(compiled(x), f(y))
    torch.testing.assert_close(x, y)


def test_empty_tensors() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x + 1, x.sum(0), x.sum(), torch.cat([x, y]), x.t() * 2, y.new_zeros(0, 2)

    check(f, torch.randn(0, 3), torch.randn(2, 3))


@pytest.mark.parametrize("shape", [(7, 5), (1, 1), (2, 1000), (1000, 3), (5, 1, 7), (33,), (1,)], ids=str)
def test_sizes_that_do_not_divide(shape: tuple[int, ...]) -> None:
    def f(x: torch.Tensor) -> Any:
        return x * 2 + x.sum(-1, keepdim=True), x.sum(0), x.softmax(-1), x.softmax(0)

    check(f, torch.randn(shape))


def test_dynamic_shapes_are_one_artifact() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = x * w + 1
        return y.relu(), y.sum(0), y.softmax(-1), x.transpose(0, 1) * 2, y.mean(), x @ w.expand(8, 8)

    compiled, look = compile_and_look(f, dynamic=True)
    w = torch.randn(8)
    for rows in (5, 16, 33, 2):
        x = torch.randn(rows, 8)
        for a, b in zip(compiled(x, w), f(x, w), strict=True):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()
    assert len(look.compilations) == 1
    assert "__co__" in look.dsl


def test_sizes_as_numbers() -> None:
    """Sizes that no argument of a kernel tells are passed to it, beside what it returns."""
    for number, f in enumerate((lambda x, s: x * s + x.shape[0], lambda x, s: (x * s, x.mean() + s))):
        compiled, look = compile_and_look(f, dynamic=True)
        for rows, s in ((4, 3), (9, 5)):
            x = torch.randn(rows, 6)
            got, expected = compiled(x, s), f(x, s)
            torch.testing.assert_close(got, expected)
        assert len(look.compilations) == 1, number
        assert "s64 s" in look.dsl


def test_dynamic_training_is_one_artifact_each_way() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x * w, (8,)).tanh().sum(0).max()

    compiled, look = compile_and_look(f, dynamic=True)
    for rows in (4, 9, 17):
        w = torch.randn(8, requires_grad=True)
        x = torch.randn(rows, 8)
        compiled(x, w).backward()
        got, w.grad = w.grad, None
        f(x, w).backward()
        torch.testing.assert_close(got, w.grad)
    assert [c.direction for c in look.compilations] == ["forward", "backward"]


def test_non_contiguous_gradient() -> None:
    compiled, _ = compile_and_look(lambda x: x.sin())
    x = torch.randn(4, 6, requires_grad=True)
    y = compiled(x)
    grad = torch.randn(6, 4).t()
    y.backward(grad)
    torch.testing.assert_close(x.grad, grad * x.detach().cos())
    x.grad = None
    compiled(x).backward(torch.ones(()).expand(4, 6))
    torch.testing.assert_close(x.grad, x.detach().cos())


def test_sizes_that_are_quotients() -> None:
    def f(x: torch.Tensor, n: int) -> Any:
        return x.view(n, -1).sum(0), x[::2] * 2, x[: x.shape[0] // n] + 1, x.view(n, -1).flip(0), x * n

    compiled, look = compile_and_look(f, dynamic=True)
    for size, n in ((12, 3), (20, 4), (42, 6)):
        x = torch.randn(size)
        for got, expected in zip(compiled(x, n), f(x, n), strict=True):
            torch.testing.assert_close(got, expected)
    assert len(look.compilations) == 1


@pytest.mark.filterwarnings("error::FutureWarning")
@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True)
def test_sizes_that_are_known_only_when_it_runs() -> None:
    def f(x: torch.Tensor) -> Any:
        positive = x[x > 0]
        count = (x * 2 > 0).sum().item()
        return positive * 2, positive.sum(), torch.zeros(count) + 1, x * count

    compiled, look = compile_and_look(f)
    for x in (torch.randn(10), -torch.ones(10), torch.ones(10)):
        for got, expected in zip(compiled(x), f(x), strict=True):
            torch.testing.assert_close(got, expected)
    assert any("known only when" in each.reason for each in look.fallbacks)


@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_checks_inside_a_graph_are_made() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        total = (x + 1).sum().item()
        torch._check(total >= 5, lambda: "the total is too small")
        return x * 2

    compiled, _ = compile_and_look(f)
    assert torch.equal(compiled(torch.tensor([1, 2])), torch.tensor([2, 4]))
    # Up to torch 2.12 the message is not in the graph.
    said = (
        "the total is too small" if RELEASE > (2, 12) else "Runtime assertion failed for expression u0 >= 5"
    )
    with pytest.raises(RuntimeError, match=said):
        compiled(torch.tensor([0, 1]))


def test_a_gradient_in_another_layout_stays_on_its_device() -> None:
    check = Check(0, lambda registers: (1, 4), (1, 4))
    graph = CompiledGraph("g", "backward", 1, [], [Result(0)], checks=[check])
    (fixed,) = graph([torch.empty(4, 3, device="meta")])
    assert (fixed.device.type, fixed.stride()) == ("meta", (1, 4))


def test_another_default_device_changes_nothing() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).softmax(-1)

    compiled, _ = compile_and_look(f)
    varying, _ = compile_and_look(f, dynamic=True)
    x = torch.randn(3, 5)
    expected = f(x)
    with torch.device("meta"):
        given = [compiled(x), varying(x)]
    for got in given:
        assert torch.allclose(got, expected)
