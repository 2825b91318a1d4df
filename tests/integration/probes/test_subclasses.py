"""Tensor subclasses: what runs on their plain parts is recorded, described and fingerprinted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.two_tensor import TwoTensor

import kernelscope
from kernelscope.fingerprint import fingerprint
from kernelscope.probes.describe import flat_names, flatten, returned_tensors


def bits(tensor: torch.Tensor) -> int:
    return fingerprint(tensor).bits


def assert_quiet(run: kernelscope.Run) -> None:
    assert not run.findings, run.findings


def tensors_of(call: kernelscope.KernelCall) -> dict[str, int | None]:
    """Names of the tensor arguments with the hash before, or after for outputs."""
    return {
        a.name: call.post_hashes.get(i) if a.role == "out" else call.pre_hashes.get(i)
        for i, a in enumerate(call.arguments)
        if a.tensor is not None
    }


# -- a wrapper subclass --------------------------------------------------------------------------------


@pytest.fixture
def two() -> TwoTensor:
    return TwoTensor(torch.arange(4.0), -torch.arange(4.0))


def test_wrapper_subclass_eager(two: TwoTensor) -> None:
    with kernelscope.record(values="hash", ops="all") as run:
        out = two.sin()
    assert isinstance(out, TwoTensor)
    calls = run.select(kernel="aten.sin.default")
    assert [tensors_of(c) for c in calls] == [
        {"self": bits(two.a), "result": bits(out.a)},
        {"self": bits(two.b), "result": bits(out.b)},
    ]
    assert_quiet(run)


def test_wrapper_subclass_is_described_by_type_and_parts(two: TwoTensor) -> None:
    assert list(flat_names("x", two)) == [("x.a", "TwoTensor"), ("x.b", "TwoTensor")]
    assert all(a is b for a, b in zip(flatten([two], {}), [two.a, two.b], strict=True))
    nested = TwoTensor(TwoTensor(two.a, two.b), TwoTensor(two.b, two.a))
    assert [n for n, _ in flat_names("x", [nested, 1])] == [
        *("x[0].a.a", "x[0].a.b", "x[0].b.a", "x[0].b.b", "x[1]")
    ]
    assert len(list(returned_tensors((nested, None)))) == 4


def test_wrapper_subclass_compiled(two: TwoTensor) -> None:
    compiled = torch.compile(lambda x: x.sin() + 1)
    bare = compiled(two)
    with kernelscope.record(values="hash", ops="all") as run:
        out = compiled(two)
    assert isinstance(out, TwoTensor)
    assert torch.equal(out.a, bare.a)
    assert torch.equal(out.b, bare.b)
    seen = {v for c in run.select(kind="cpp") for v in tensors_of(c).values()}
    assert {bits(t) for t in (two.a, two.b, out.a, out.b)} <= seen
    assert_quiet(run)


def test_wrapper_subclass_compiled_training(two: TwoTensor) -> None:
    compiled = torch.compile(lambda x, w: (x * w).sum())

    def gradient() -> torch.Tensor:
        w = TwoTensor(torch.ones(4), torch.ones(4)).requires_grad_()
        compiled(two, w).backward()
        return w.grad

    bare = gradient()
    with kernelscope.record(values="hash") as run:
        recorded = gradient()
    assert torch.equal(bare.a, recorded.a)
    assert {c.phase for c in run} == {"forward", "backward"}
    assert_quiet(run)


# -- subclasses that are not traceable wrappers --------------------------------------------------------


class Logged(torch.Tensor):
    """Only __torch_function__: its data is its own."""

    seen: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


def test_function_subclass_is_named_hashed_and_not_asked_more() -> None:
    def program() -> list[str]:
        Logged.seen = []
        (torch.ones(3).as_subclass(Logged) * 2).sin()
        return Logged.seen

    bare = program()
    with kernelscope.record(values="hash", ops="all") as run:
        during = program()
    assert during == bare
    (sine,) = run.select(kernel="aten.sin.default")
    assert sine.arguments[0].tensor.type == "Logged"
    assert sine.pre_hashes[0] == bits(torch.full((3,), 2.0))
    assert_quiet(run)


class Opaque(torch.Tensor):
    """Unwraps itself in __torch_dispatch__, and does not say what is inside."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Opaque:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        opened = torch.utils._pytree.tree_map_only(Opaque, lambda t: t.inner, args)
        return torch.utils._pytree.tree_map_only(torch.Tensor, Opaque, func(*opened, **(kwargs or {})))


def test_opaque_subclass_is_recorded_where_it_computes() -> None:
    x = torch.arange(3.0)
    with kernelscope.record(values="hash", ops="all") as run:
        out = Opaque(x).cos()
        torch.empty_like(Opaque(x))
    assert torch.equal(out.inner, x.cos())
    (cosine,) = run.select(kernel="aten.cos.default")
    assert tensors_of(cosine) == {"self": bits(x), "result": bits(x.cos())}
    assert_quiet(run)


def test_opaque_subclass_in_a_list() -> None:
    with kernelscope.record(values="hash", ops="all") as run:
        out = torch.cat([Opaque(torch.ones(2)), torch.zeros(2)])
    assert torch.equal(out.inner, torch.tensor([1.0, 1, 0, 0]))
    assert len(run.select(kernel="aten.cat.default")) == 1
    assert_quiet(run)


def test_parameter_and_buffer() -> None:
    parameter, buffer = torch.nn.Parameter(torch.ones(3)), torch.nn.Buffer(torch.ones(3))
    with kernelscope.record(values="hash", ops="all") as run:
        parameter * buffer
    (product,) = run
    assert [a.tensor.type for a in product.arguments] == ["Tensor", "Tensor", "Tensor"]
    assert product.pre_hashes[0] == bits(parameter) == product.pre_hashes[1]


# -- nested tensors ------------------------------------------------------------------------------------


def jagged() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)


def test_jagged_nested_tensor_eager() -> None:
    x = jagged()
    with kernelscope.record(values="hash", ops="all") as run:
        out = x.sin()
    (sine,) = run.select(kernel="aten.sin.default")
    assert tensors_of(sine) == {"self": bits(x.values()), "result": bits(out.values())}
    assert_quiet(run)


def test_jagged_nested_tensor_compiled() -> None:
    compiled = torch.compile(lambda x: x.sin() * 2)
    x = jagged()
    bare = compiled(x)
    with kernelscope.record(values="hash", ops="all") as run:
        out = compiled(x)
    assert torch.equal(out.values(), bare.values())
    seen = {v for c in run.select(kind="cpp") for v in tensors_of(c).values()}
    assert {bits(x.values()), bits(out.values())} <= seen
    assert_quiet(run)


def test_strided_nested_tensor_goes_on() -> None:
    with kernelscope.record(values="hash", ops="all") as run:
        out = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]).sin()
    assert torch.equal(out.unbind()[1], torch.ones(3).sin())
    unread = [a.tensor.unread for c in run for a in c.arguments if a.tensor is not None]
    assert any("nested" in why for why in unread)
    assert_quiet(run)


# -- DTensor -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    store = Path(tmp_path_factory.mktemp("store")) / "file"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield dist.device_mesh.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_dtensor_eager(mesh: Any) -> None:
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    x = distribute_tensor(torch.arange(6.0).view(2, 3), mesh, [Shard(0)])
    with kernelscope.record(values="hash", ops="all") as run:
        out = x.sin()
    assert isinstance(out, DTensor)
    (sine,) = run.select(kernel="aten.sin.default")
    assert tensors_of(sine) == {"self": bits(x.to_local()), "result": bits(out.to_local())}
    assert list(flat_names("x", x)) == [("x._local_tensor", "DTensor")]
    assert_quiet(run)


def test_dtensor_compiled(mesh: Any) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    weight = torch.linspace(-1, 1, 6).view(3, 2)
    w = torch.nn.Parameter(distribute_tensor(weight, mesh, [Replicate()]))
    x = distribute_tensor(torch.arange(6.0).view(2, 3), mesh, [Shard(0)])
    compiled = torch.compile(lambda x, w: (x @ w).sin())

    def program() -> tuple[torch.Tensor, torch.Tensor]:
        w.grad = None
        out = compiled(x, w)
        out.to_local().sum().backward()
        return out.to_local().detach(), w.grad.to_local()

    bare = program()
    with kernelscope.record(values="hash", ops="all") as run:
        recorded = program()
    assert all(torch.equal(a, b) for a, b in zip(bare, recorded, strict=True))
    (product,) = [c for c in run.select(kernel="extern_kernels.mm") if c.phase == "forward"]
    assert set(product.pre_hashes.values()) >= {bits(x.to_local()), bits(w.to_local())}
    assert {c.phase for c in run if c.graph} == {"forward", "backward"}
    assert_quiet(run)
