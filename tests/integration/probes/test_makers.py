"""Every maker of `AsyncCompile`: arguments have names and roles, or a finding says otherwise."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.programs.maker_modules import MODULES, UNKNOWN, MakerModule
from torch._inductor.async_compile import AsyncCompile

import kernelscope
from kernelscope.fingerprint import fingerprint
from kernelscope.probes.makers.signatures import READERS
from kernelscope.probes.probe_list import PROBES
from kernelscope.probes.python_wrappers.precompiled import ArtifactGraph

DOCS = Path(__file__).parents[3] / "docs" / "coverage.md"
REAL = (
    "cutedsl",
    "pallas",
    "nv_universal_gemm",
)  # torch's own maker loads the text
FROM_METADATA = {"triton", "multi_kernel", "size_hint_multi_kernel"}
NOT_MAKERS = {
    "pool", "process_pool", "submit", "thread_pool", "use_process_pool", "wait", "wakeup", "warm_pool",
    "get_worker_pool", "should_use_thread_workers", "wait_pool_ready", "wait_process_pool_ready",
    "nvgemm_precompile",
}  # fmt: skip


class StandIn:
    """What a compiled kernel of a package that is not here looks like to the wrapper."""

    launches = 0

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.launches += 1

    run = kernel_0 = __call__


class Makers(AsyncCompile):
    def use_process_pool(self) -> bool:  # type: ignore[override]
        return False

    def __getattribute__(self, name: str) -> Any:
        if name in REAL or name in NOT_MAKERS or name.startswith("_"):
            return super().__getattribute__(name)
        return lambda *args, **kwargs: StandIn()


@pytest.mark.parametrize("module", MODULES, ids=[f"{i}-{m.maker}" for i, m in enumerate(MODULES)])
def test_maker(module: MakerModule) -> None:
    if module.maker in REAL and not hasattr(AsyncCompile, module.maker):
        pytest.skip("this torch has no such maker")
    namespace: dict[str, Any] = {"__name__": "generated", "async_compile": Makers()}
    namespace |= {"HalideMeta": dict, "HalideInputSpec": dict}
    exec(compile(module.text, "<generated>", "exec"), namespace)
    namespace["async_compile"].wait(namespace)  # as generated modules do: futures
    graph = ArtifactGraph(namespace, module.text, namespace["call"])
    x, y = torch.ones(4, 4), torch.ones(4, 4)
    with kernelscope.record(values="hash") as run:
        call = PROBES.compiled_graphs.calling(lambda graph, inputs: graph.call(inputs))
        for _ in range(2):
            call(graph, [x, y])
    assert len(run) == 2
    for recorded in run.calls:
        assert tuple(zip(recorded.arg_names, recorded.roles, strict=True)) == module.expected
        tensors = {arg.wrapper_name for arg in recorded.arguments if arg.tensor is not None}
        assert tensors == {"arg0_1", "arg1_1", "buf0"}
    kinds = [f.kind for f in run.findings if f.kind != "undeclared-write"]
    assert kinds == (["unknown-maker"] if module is UNKNOWN else [])


@pytest.mark.slow
def test_pallas_for_real() -> None:
    pytest.importorskip("jax")
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    torch._dynamo.reset()
    with torch._inductor.config.patch(cpu_backend="pallas"), kernelscope.record() as run:
        result = torch.compile(lambda x, y: torch.relu(x) * 2 + y)(x, y)
    assert torch.allclose(result, torch.relu(x) * 2 + y)
    (call,) = run.calls
    assert call.kind == "pallas"
    assert dict(zip(call.arg_names, call.roles, strict=True)) == {
        "out_ptr0_alias": "out", "in_ptr0": "in", "in_ptr1": "in", "out_ptr0": "out",
    }  # fmt: skip


@pytest.mark.slow
def test_halide_for_real() -> None:
    pytest.importorskip("halide")
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    torch._dynamo.reset()
    with torch._inductor.config.patch(cpu_backend="halide"), kernelscope.record(values="hash") as run:
        compiled = torch.compile(lambda x, y: torch.relu(x) * 2 + y)
        results = [compiled(x, y), compiled(x, y)]
    assert all(torch.allclose(result, torch.relu(x) * 2 + y) for result in results)
    assert not run.findings
    for call, result in zip(run.calls, results, strict=True):
        assert call.kind == "halide"
        roles = dict(zip(call.arg_names, call.roles, strict=True))
        assert roles == {"in_ptr0": "in", "in_ptr1": "in", "out_ptr0": "out"}
        assert call.post_hashes[2] == fingerprint(result).bits


def test_no_maker_of_this_torch_is_unknown() -> None:
    found = {
        name
        for name, value in inspect.getmembers(AsyncCompile)
        if callable(value) and not name.startswith("_")
    }
    assert found - NOT_MAKERS <= set(READERS) | FROM_METADATA


def test_the_page_lists_the_makers() -> None:
    text = DOCS.read_text().partition("<!-- makers: begin -->")[2].partition("<!-- makers: end -->")[0]
    cells = [line.split("|")[1] for line in text.strip().splitlines()[2:]]
    listed = {name.strip("` ") for cell in cells for name in cell.split(",")}
    assert listed == set(READERS) | FROM_METADATA


def test_an_operator_that_torch_replaces_by_another_kernel_says_so() -> None:
    registry = pytest.importorskip("torch._native.registry")

    def others(x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(2 * x) * 2 - 1

    before = set(registry._graphs)
    registry.register_op_override("my_dsl", "aten", "tanh", "CPU", lambda x: x.numel() == 6, others)
    (key,) = set(registry._graphs) - before
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch: it replaces a kernel
            registry._register_overrides_from_graph(*key, registry._graphs[key])
        with kernelscope.record(ops="all") as run:
            torch.tanh(torch.zeros(6))
            torch.tanh(torch.zeros(3))
    finally:
        registry.deregister_op_overrides(disable_dsl_names="my_dsl")
        registry._graphs.pop(key)
    told = [call.config for call in run if call.kernel_name == "aten.tanh.default"]
    assert told == [{"replaced by": f"my_dsl ({__name__})"}, {}]
