"""DebugMode on compiled programs: kernels in the listing, their arguments, outputs and hooks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from kernelscope.debug_mode import DebugMode, KernelCall, _TritonKernelCall


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


def test_function_listing_has_none_of_our_own_work(compiled: Compiled, tensors: Tensors) -> None:
    compiled(*tensors)
    with DebugMode(record_torchfunction=True) as mode, DebugMode.log_tensor_hashes():
        compiled(*tensors)
    assert [c.kind for c in mode.run.calls] == ["extern", "cpp"]
    names = [str(e) for e in mode.operators if not isinstance(e, KernelCall)]
    assert not [n for n in names if "untyped_storage" in n or "is_inference" in n], names
