"""DebugMode on eager programs: the listing is that of stock torch's."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._debug_mode import DebugMode as StockDebugMode

from kernelscope.debug_mode import DebugMode, KernelCall, OperatorCall


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x))


def eager_program() -> None:
    """Views, lists, keywords, several outputs, in-place, factories, no outputs, forward and backward."""
    x = torch.arange(64.0).view(8, 8).requires_grad_()
    layers = Layers()
    y = layers(x)
    torch.cat([x, x]).sum(dim=0)
    torch.ones(3, dtype=torch.float64).add_(1)
    torch.empty(3).fill_(2)
    torch.var_mean(x, dim=1, correction=0)
    torch._foreach_mul_([torch.ones(2), torch.ones(3)], 2.0)
    with torch.profiler.record_function("a range"):
        x.clone()
        with torch.profiler.record_function("inner"):
            x.t().contiguous()
    x.transpose(0, 1)[0].to(torch.int64)
    y.sum().backward()


def by_stock(**flags: Any) -> str:
    with StockDebugMode(**flags) as mode:
        eager_program()
    return str(mode.debug_string())


def by_us(**flags: Any) -> str:
    with DebugMode(**flags) as mode:
        eager_program()
    assert mode.run.findings == []
    return mode.debug_string()


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"record_ids": True},
        {"record_tensor_attributes": ["requires_grad", "no_such_attribute"]},
        {"record_output": False},
        {"record_torchfunction": True},
        {"record_torchfunction": True, "record_ids": True},
        {"record_profiler_context": False},
        {"store_original_args": True},
        {"record_realtensor": False},
        {"record_stack_trace": True},
        {"record_localtensor": False},
    ],
    ids=str,
)
def test_eager_listing_is_that_of_stock(flags: dict[str, Any]) -> None:
    ours, stock = by_us(**flags), by_stock(**flags)
    if "record_torchfunction" in flags:
        # Stock writes a comma before a first keyword, and lists the making of a range above the range.
        stock = re.sub(r" +torch._ops.profiler.*\n  ( *\[record function\])", r"\1", stock).replace(
            "(, ", "("
        )
    assert ours.splitlines() == stock.splitlines()
    assert bool(ours) == flags.get("record_realtensor", True) or "[record function]" in ours


def test_modules_are_listed_as_by_stock() -> None:
    ours = by_us(record_nn_module=True)
    stock = by_stock(record_nn_module=True).splitlines()
    # Stock's module tracker makes a view of each input, and lists it as if the program had.
    theirs = [line for line in stock if not re.search(r"aten::view\(t: (f32\[8, 8\]), \[8, 8\]\)", line)]
    listed = [
        line for line in ours.splitlines() if not re.search(r"aten::view\(t: f32\[8, 8\], \[8, 8\]\)", line)
    ]
    assert listed == theirs
    assert "      [nn.Mod] Layers.inner" in listed


def test_fake_tensors_are_listed_as_by_stock() -> None:
    def program() -> None:
        with FakeTensorMode(allow_non_fake_inputs=True):
            fake = torch.ones(3) + 1
            fake.view(3, 1)
        torch.ones(2)

    for flags in ({"record_faketensor": True}, {"record_faketensor": True, "record_realtensor": False}, {}):
        with DebugMode(**flags) as ours:
            program()
        with StockDebugMode(**flags) as stock:
            program()
        assert ours.debug_string() == stock.debug_string()
        assert ("ft: f32[3]" in ours.debug_string()) == bool(flags)


def test_entries_have_what_stocks_have() -> None:
    x, y = torch.ones(2, 3), torch.ones(3, 4)
    with DebugMode(store_original_args=True) as mode:
        torch.mm(x, y)
        torch.cat([x, x], dim=1)
        x.sum(dtype=torch.float64)
        x.t()
    mm, cat, total, view = mode.operators
    assert isinstance(mm, OperatorCall)
    assert mm.op is torch.ops.aten.mm.default
    assert mm.args[0] is x
    assert mm.args[1] is y
    assert len(mm.args) == 2
    assert next(iter(cat)) is torch.ops.aten.cat.default
    assert [id(t) for t in cat.args[0]] == [id(x), id(x)]
    assert cat.arg_names == ("tensors[0]", "tensors[1]", "dim", "result")
    assert total.kwargs == {"dtype": torch.float64}
    assert view.op is torch.ops.aten.t.default
    assert not isinstance(view, KernelCall)
    assert [entry.call_depth for entry in mode.operators] == [1] * 4
    assert [entry.record for entry in mode.operators] == [{}] * 4
    assert str(mm) == mm.render([]) == "aten::mm(t: f32[2, 3], t: f32[3, 4])  ->  t: f32[2, 4]"
    assert str(view) == "aten::t(t: f32[2, 3])  ->  t: f32[3, 2]"
    assert mode.logs == mode.operators


def test_described_arguments_keep_no_tensor_alive() -> None:
    import weakref

    with DebugMode() as mode:
        x = torch.ones(1000)
        x.add(1)
        gone = weakref.ref(x)
        del x
    assert gone() is None
    [made, add] = mode.run.calls
    assert [str(a) for a in add.args] == ["t: f32[1000]", "1"]
    assert made.kwargs["pin_memory"] is False


def test_stack_traces() -> None:
    x = torch.ones(3, requires_grad=True)
    with DebugMode(record_stack_trace=True) as mode:
        y = x.exp()  # the forward line
        y.sum().backward()
    exp, *_ = (c for c in mode.operators if "aten::" in str(c))
    assert "y = x.exp()  # the forward line" in exp.stack_trace
    assert exp.stack_trace.endswith("y = x.exp()  # the forward line\n")  # and not in what called the mode
    assert exp.fwd_stack_trace is None
    mul = next(c for c in mode.run.calls if c.kernel_name == "aten.mul.Tensor")
    assert "y.sum().backward()" in mul.stack_trace
    assert "y = x.exp()  # the forward line" in str(mul.fwd_stack_trace)
    assert re.search(
        r"  # File: .*test_eager_listings.py:\d+ in test_stack_traces, code: y = x.exp\(\)",
        mode.debug_string(),
    )
    assert "# File" not in mode.debug_string(show_stack_trace=False)
    assert not torch.is_anomaly_enabled()


def test_dtensors_are_listed_as_by_stock() -> None:
    import torch.distributed as dist
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        mesh = init_device_mesh("cpu", (2,))
        x = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
        w = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
        x @ w  # the first time, placements are propagated and cached

        def listed(mode_class: Any, **flags: Any) -> str:
            with mode_class(**flags) as mode:
                (x @ w).redistribute(mesh, [Replicate()])
            return str(mode.debug_string())

        ours, stock = listed(DebugMode), listed(StockDebugMode)
        by_function = listed(DebugMode, record_torchfunction=True)
    finally:
        dist.destroy_process_group()
    assert ours == stock
    assert "aten::mm(dt: f32[4, 4]| S(0), dt: f32[4, 4]| S(0))" in ours
    assert "redistribute_input [implicit] (1, S(0) -> R)" in ours
    assert "_c10d_functional::all_gather_into_tensor(" in ours
    assert by_function.splitlines()[1].startswith("    aten::mm(dt: f32[4, 4]")


def test_failing_operator_is_listed() -> None:
    with DebugMode() as mode, pytest.raises(RuntimeError):
        torch.mm(torch.ones(2, 3), torch.ones(2, 3))
    assert mode.run.calls[-1].error
    assert "aten::mm(t: f32[2, 3], t: f32[2, 3])" in mode.debug_string()


def test_every_stock_flag_is_accepted_with_its_default() -> None:
    import inspect

    stock = inspect.signature(StockDebugMode.__init__).parameters
    ours = inspect.signature(DebugMode.__init__).parameters
    for name, parameter in stock.items():
        assert ours[name].default == parameter.default, name
    mode = DebugMode()
    for name in set(stock) - {"self"}:
        assert hasattr(mode, name)


def test_annotate() -> None:
    with DebugMode() as mode:
        DebugMode._annotate("here")
        torch.ones(1)
    assert mode.debug_string().splitlines()[0] == "  [annotate] here"


def test_range_that_began_before_changes_no_depth() -> None:
    outside = torch.profiler.record_function("outside")
    outside.__enter__()
    with DebugMode() as mode:
        outside.__exit__(None, None, None)
        torch.ones(1)
    assert [e.call_depth for e in mode.operators] == [1]


def test_tensors_without_readable_values_are_described() -> None:
    with (
        DebugMode(store_original_args=True, record_ids=True) as mode,
        DebugMode.log_tensor_hashes(["norm", "bits"]),
        DebugMode.record_outputs(),
    ):
        torch.ones(3, device="meta").add(1)
        sparse = torch.eye(3).to_sparse()
        dense = (sparse + sparse).to_dense()
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8).dequantize()
        torch.zeros(0).sum()
        torch.vmap(torch.sin)(torch.ones(3, 2))
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged).mul(2)
    assert torch.equal(dense, 2 * torch.eye(3))
    assert mode.run.findings == []
    added = mode.run.select(kernel="aten.add.Tensor")
    assert [c.log["hash"] for c in added] == [None, None]
    assert "aten::dequantize.self(t$" in mode.debug_string()
    [to_dense] = mode.run.select(kernel="aten._to_dense.default")
    assert to_dense.log["hash"][0] == 6.0
    assert torch.equal(to_dense.record["output"], dense)
