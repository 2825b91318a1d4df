"""DebugMode: on eager programs against stock torch's, and on compiled ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._debug_mode import DebugMode as StockDebugMode

from kernelscope.debug_mode import DebugMode, KernelCall, OperatorCall, _TritonKernelCall
from kernelscope.fingerprint import fingerprint


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x))


@pytest.fixture(scope="module")
def compiled() -> Iterator[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
    """One matrix product and one generated kernel forward, and their backward."""

    @torch.compile
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w + 1)

    torch._dynamo.reset()
    yield program
    torch._dynamo.reset()


@pytest.fixture
def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(8, 8), torch.randn(8, 8)


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
        r"  # File: .*test_debug_mode.py:\d+ in test_stack_traces, code: y = x.exp\(\)", mode.debug_string()
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


# -- compiled programs -----------------------------------------------------------------------------------

Compiled = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Tensors = tuple[torch.Tensor, torch.Tensor]


def test_compiled_listing(compiled: Compiled, tensors: Tensors) -> None:
    x, w = tensors
    with DebugMode() as mode, DebugMode.log_tensor_hashes():
        y = compiled(x, w)
    mm, fused = mode.operators
    product = (x @ w).abs().double().sum().item()
    mm_line, fused_line = mode.debug_string().splitlines()
    assert mm_line == (
        "    [extern] extern_kernels.mm(self=t: f32[8, 8], mat2=t: f32[8, 8], out=t: f32[8, 8])"
        f"  # {{'hash': [{product}]}}"
    )
    assert re.fullmatch(r"    \[cpp\] cpp_fused_add_relu_0\(in_out_ptr0=t: f32\[8, 8\]\)  # .*", fused_line)
    assert fused.pre_hashes == {0: product}
    assert fused.post_hashes == {0: y.double().abs().sum().item()}
    assert fused.log.keys() == {"hash", "input_hash", "outputs", "pre_hashes", "post_hashes"}
    assert mm.pre_hashes.keys() == {0, 1}
    assert mm.op is torch.mm or callable(mm.op)
    assert [c for c in mode.operators if isinstance(c, _TritonKernelCall)] == [fused]
    assert fused.kwargs_str == "in_out_ptr0=t: f32[8, 8]"
    assert mode.run.calls == [mm, fused]


def test_compiled_call_has_the_users_line(compiled: Compiled, tensors: Tensors) -> None:
    with DebugMode() as mode:
        compiled(*tensors)
    assert "return torch.relu(x @ w + 1)" in mode.debug_string(show_stack_trace=True).splitlines()[0]
    assert "return torch.relu(x @ w + 1)" in mode.operators[0].stack_trace


def test_ids_and_attributes_of_kernels(compiled: Compiled, tensors: Tensors) -> None:
    with DebugMode(record_ids=True, record_tensor_attributes=["is_leaf"]) as mode:
        compiled(*tensors)
    assert (
        mode.debug_string()
        .splitlines()[1]
        .endswith("cpp_fused_add_relu_0(in_out_ptr0=t$0: f32[8, 8]{is_leaf=True})")
    ), mode.debug_string()


def test_kernels_left_out(compiled: Compiled, tensors: Tensors) -> None:
    with DebugMode(record_triton_kernels=False) as mode:
        compiled(*tensors).neg()
    assert [c.kind for c in mode.run.calls] == ["extern", "op"]


def test_only_compiled_code(compiled: Compiled, tensors: Tensors) -> None:
    with DebugMode(record_realtensor=False) as mode:
        compiled(*tensors).neg()
    assert [c.kind for c in mode.run.calls] == ["extern", "cpp"]


def test_original_arguments_of_a_kernel(compiled: Compiled, tensors: Tensors) -> None:
    with DebugMode(store_original_args=True) as mode:
        y = compiled(*tensors)
    mm, fused = mode.run.calls
    assert mm.args[0] is tensors[0]
    assert mm.args[1] is tensors[1]
    assert fused.args[0].data_ptr() == y.data_ptr()


def test_recorded_outputs(compiled: Compiled, tensors: Tensors) -> None:
    x, w = tensors
    with DebugMode() as mode, DebugMode.record_outputs():
        y = compiled(x, w)
        z = y.add_(1)
        torch.var_mean(z)
    mm, fused, add, var_mean = (c.record["output"] for c in mode.run.calls)
    assert torch.equal(mm[0], x @ w)
    assert torch.equal(fused[0], torch.relu(x @ w + 1))  # before add_ wrote over it
    assert torch.equal(add, z)  # an operator's are nested like its result
    assert type(var_mean) is tuple
    assert [len(o) for o in (mm, fused, var_mean)] == [1, 1, 2]
    assert add.data_ptr() != z.data_ptr()
    with DebugMode() as mode:
        compiled(x, w)
    assert [c.record for c in mode.run.calls] == [{}, {}]


def test_modules_around_compiled_code(tensors: Tensors, compiled: Compiled) -> None:
    class Around(torch.nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return compiled(x, w)

    with DebugMode(record_nn_module=True) as mode:
        Around()(*tensors)
    assert [str(e).split("(")[0] for e in mode.operators] == [
        "[nn.Mod] Around",
        "[extern] extern_kernels.mm",
        "[cpp] cpp_fused_add_relu_0",
    ]
    assert [e.call_depth for e in mode.operators] == [1, 2, 2]


def test_a_replaced_mode_changes_no_result(compiled: Compiled, tensors: Tensors) -> None:
    bare = compiled(*tensors)
    with DebugMode(record_ids=True, store_original_args=True), DebugMode.log_tensor_hashes(["norm", "bits"]):
        assert torch.equal(compiled(*tensors), bare)


# -- hashes ----------------------------------------------------------------------------------------------


def test_hash_functions() -> None:
    x = torch.tensor([1.0, -2.0])
    with DebugMode() as mode:
        with DebugMode.log_tensor_hashes():
            x.neg()
        with DebugMode.log_tensor_hashes("bits"):
            x.neg()
        with DebugMode.log_tensor_hashes("hash_tensor"):
            x.neg()
        with DebugMode.log_tensor_hashes(["norm", "bits", lambda t: "text"]):
            x.neg()
        x.neg()
    bits = fingerprint(-x).bits
    hashes = [c.log.get("hash") for c in mode.run.calls]
    assert hashes == [3.0, bits, bits, (3.0, bits, "text"), None]


def test_innermost_hash_function_counts_and_is_restored() -> None:
    x = torch.ones(2)
    with DebugMode() as mode, DebugMode.log_tensor_hashes(lambda t: "outer", hash_inputs=True):
        x.neg()
        with DebugMode.log_tensor_hashes(lambda t: "inner"):
            x.neg()
        x.neg()
    assert [c.log["hash"] for c in mode.run.calls] == ["outer", "inner", "outer"]
    assert ["input_hash" in line for line in mode.debug_string().splitlines()] == [True, False, True]


def test_requests_hold_for_modes_opened_inside_and_for_all_open_ones() -> None:
    x = torch.ones(2)
    with (
        DebugMode() as outer,
        DebugMode.log_tensor_hashes(),
        DebugMode.record_outputs(),
        DebugMode() as inner,
    ):
        x.neg()
    assert [c.log["hash"] for c in outer.run.calls] == [2.0]
    assert [c.log["hash"] for c in inner.run.calls] == [2.0]
    assert torch.equal(inner.run.calls[0].record["output"], -x)


@pytest.mark.parametrize("wrong", ["bogus", ["norm", "bogus"], 3, [], [3], None])
def test_unknown_hash_function_is_refused_on_entry(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"unknown hash function; use one of 'bits', 'hash_tensor', 'norm'"):
        DebugMode.log_tensor_hashes(wrong)


def _raises(tensor: torch.Tensor) -> float:
    raise KeyError("no such thing")


def _returns_a_tensor(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * 2


@pytest.mark.parametrize(
    ("function", "said"),
    [(_raises, "KeyError: 'no such thing'"), (_returns_a_tensor, "returned a tensor of shape (2,)")],
)
def test_failing_hash_function_does_not_stop_the_program(function: Any, said: str) -> None:
    x = torch.ones(2)
    with DebugMode() as mode, DebugMode.log_tensor_hashes(["norm", function]):
        y = x.neg()
        y.neg()
    assert torch.equal(y, -x)
    for call in mode.run.calls:
        norm, failure = call.log["hash"]
        assert norm == 2.0
        assert said in str(failure)
    assert said in mode.debug_string()
    [finding] = mode.run.findings  # once, not for every tensor
    assert finding.kind == "hash-failed"
    assert said in finding.message


def test_hash_functions_work_is_not_listed() -> None:
    with DebugMode() as mode, DebugMode.log_tensor_hashes(lambda t: t.abs().sum().item()):
        torch.ones(2).neg()
    assert [c.kernel_name for c in mode.run.calls] == ["aten.ones.default", "aten.neg.default"]


def test_uninitialised_output_has_no_hash_before() -> None:
    out = torch.empty(4)
    with DebugMode() as mode, DebugMode.log_tensor_hashes():
        fresh = torch.empty(4)
        torch.add(torch.ones(4), 1, out=fresh)
        torch.add(torch.ones(4), 1, out=out)  # was born outside: its contents may mean something
    first, second = mode.run.select(kernel="aten.add.out")
    assert first.pre_hashes == {0: 4.0}
    assert first.post_hashes[first.arg_names.index("out")] == 8.0
    assert second.arg_names.index("out") in second.pre_hashes


# -- hooks -----------------------------------------------------------------------------------------------


def test_dispatch_hooks(compiled: Compiled, tensors: Tensors) -> None:
    seen: list[Any] = []

    def pre(func: Any, types: Any, args: Any, kwargs: Any, call: Any) -> dict[str, Any]:
        seen.append((call.kernel_name, len(args)))
        if len(seen) < 4:
            compiled(*tensors)  # its own work is not the program's
        return {"before": call.index}

    with DebugMode() as mode:
        with DebugMode.dispatch_hooks(
            record_hook=lambda func, types, args, kwargs, result: {"op": str(func)},
            log_hook=lambda func, types, args, kwargs, result: {"shape": list(result.shape)},
            pre_log_hook=pre,
        ):
            compiled(*tensors).sum()
        tensors[0].neg()
    mm, fused, total, after = mode.run.calls
    assert seen == [("extern_kernels.mm", 2), ("aten.sum.default", 1)]
    assert total.log == {"before": 2, "shape": []}
    assert total.record == {"op": "aten.sum.default"}
    assert mm.log == {"before": 0, "shape": [8, 8]}
    assert fused.log == {} == after.log
    assert str(total) == "aten::sum(t: f32[8, 8])  ->  t: f32[]  # {'before': 2, 'shape': []}"


def test_failing_hooks_do_not_stop_the_program() -> None:
    def raising(*args: Any) -> None:
        raise KeyError("oh")

    hooks = DebugMode.dispatch_hooks(record_hook=raising, log_hook=lambda *a: 3, pre_log_hook=raising)
    with DebugMode() as mode, hooks:
        torch.ones(2).neg()
    assert [c.record for c in mode.run.calls] == [{}, {}]
    assert [f.message for f in mode.run.findings] == [
        "the hook raising raised KeyError: 'oh'",
        "the hook <lambda> must return a dict or None, not 3",
    ]


def test_hook_that_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="log_hook"):
        DebugMode.dispatch_hooks(log_hook={})  # type: ignore[arg-type]


# -- opening, closing, starting over ---------------------------------------------------------------------


def test_reset_and_second_block() -> None:
    x = torch.ones(2)
    mode = DebugMode()
    with mode:
        x.neg()
        mode.reset()
        x.exp()
    with mode:
        x.sin()
    assert [c.kernel_name for c in mode.run.calls] == ["aten.exp.default", "aten.sin.default"]
    mode.reset()
    assert mode.operators == []
    assert mode.debug_string() == ""


def test_reset_inside_keeps_hashing_and_views() -> None:
    with DebugMode() as mode, DebugMode.log_tensor_hashes():
        mode.reset()
        torch.ones(2, 2).t()
    assert mode.run.calls[0].log["hash"] == 4.0
    assert str(mode.operators[1]).startswith("aten::t(")


def test_open_twice_is_refused() -> None:
    mode = DebugMode()
    with mode, pytest.raises(RuntimeError, match="already open"), mode:
        pass
    with pytest.raises(RuntimeError, match="not open"):
        mode.__exit__(None, None, None)


def test_exceptions_pass_through(leftovers: Callable[[], list[str]]) -> None:
    class Failing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ZeroDivisionError("mine")

    flags = {"record_nn_module": True, "record_torchfunction": True, "record_stack_trace": True}
    with (
        pytest.raises(ZeroDivisionError, match="mine"),
        DebugMode(**flags) as mode,
        torch.profiler.record_function("range"),
        DebugMode.log_tensor_hashes(),
        DebugMode.record_outputs(),
    ):
        Failing()(torch.ones(2))
    assert leftovers() == []
    assert not torch.is_anomaly_enabled()
    assert not torch.nn.modules.module._global_forward_pre_hooks
    assert not torch.nn.modules.module._global_forward_hooks
    with mode:
        torch.ones(2).neg()
    function, operator = mode.operators[-2:]
    assert (function.call_depth, operator.call_depth) == (0, 2)
    assert operator.log == {}


def test_failing_operator_is_listed() -> None:
    with DebugMode() as mode, pytest.raises(RuntimeError):
        torch.mm(torch.ones(2, 3), torch.ones(2, 3))
    assert mode.run.calls[-1].error
    assert "aten::mm(t: f32[2, 3], t: f32[2, 3])" in mode.debug_string()


def test_modes_close_in_any_order() -> None:
    first, second = DebugMode(), DebugMode()
    first.__enter__()
    second.__enter__()
    torch.ones(1)
    first.__exit__(None, None, None)
    torch.ones(1).neg()
    second.__exit__(None, None, None)
    assert [len(m.run.calls) for m in (first, second)] == [1, 3]


def test_every_stock_flag_is_accepted_with_its_default() -> None:
    import inspect

    stock = inspect.signature(StockDebugMode.__init__).parameters
    ours = inspect.signature(DebugMode.__init__).parameters
    for name, parameter in stock.items():
        assert ours[name].default == parameter.default, name
    mode = DebugMode()
    for name in set(stock) - {"self"}:
        assert hasattr(mode, name)


def test_wrong_attributes_are_refused() -> None:
    with pytest.raises(TypeError, match="list of attribute names"):
        DebugMode(record_tensor_attributes="requires_grad")


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


def test_function_listing_has_none_of_our_own_work(compiled: Compiled, tensors: Tensors) -> None:
    compiled(*tensors)
    with DebugMode(record_torchfunction=True) as mode, DebugMode.log_tensor_hashes():
        compiled(*tensors)
    assert [c.kind for c in mode.run.calls] == ["extern", "cpp"]
    names = [str(e) for e in mode.operators if not isinstance(e, KernelCall)]
    assert not [n for n in names if "untyped_storage" in n or "is_inference" in n], names


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
