"""Kernels that are built when they are launched, and those that never are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch._inductor.codecache import CppPythonBindingsCodeCache
from torch._inductor.utils import fresh_cache
from torch.testing import assert_close

import kernelscope
from kernelscope.compiler_control.lazy_kernels import LazyKernels

X = torch.linspace(-3, 3, 64).view(8, 8)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The sources that the C++ compiler was asked for."""
    asked: list[str] = []
    original = CppPythonBindingsCodeCache.load_pybinding_async.__func__

    def load(cls: type, argtypes: list[str], source: str, *args: object, **kwargs: object) -> object:
        asked.append(source)
        return original(cls, argtypes, source, *args, **kwargs)

    monkeypatch.setattr(CppPythonBindingsCodeCache, "load_pybinding_async", classmethod(load))
    with fresh_cache():
        yield asked
    torch._dynamo.reset()


def test_a_kernel_is_built_at_its_first_launch(built: list[str]) -> None:
    probe = LazyKernels()
    probe.install()
    try:
        compiled = torch.compile(lambda x: x.sin() + 1)
        assert_close(compiled(X), X.sin() + 1)
        assert_close(compiled(X), X.sin() + 1)
    finally:
        probe.remove()
    assert len(built) == 1


@pytest.mark.parametrize("workaround", [False, True])
def test_a_wrong_pass_is_looked_for_without_building_kernels(built: list[str], workaround: bool) -> None:
    """Once for the program as it is; who wants a workaround also sees it pass for real without the pass."""

    def sums_to_differences(graph: torch.fx.Graph) -> None:
        for node in graph.nodes:
            if node.target is torch.ops.aten.add.Tensor:
                node.target = torch.ops.aten.sub.Tensor

    config = {"post_grad_custom_post_pass": sums_to_differences}
    with torch._inductor.config.patch(config):
        result = kernelscope.bisect(
            lambda: torch.compile(lambda x: (x.sin() + x).exp())(X),
            fails=lambda y: not torch.allclose(y, (X.sin() + X).exp()),
            compile=False,
            workaround=workaround,
        )
    assert result.cause is not None
    assert [switch.name for switch in result.cause.switches] == [
        "post_grad_passes/post_grad_custom_post_pass"
    ]
    assert bool(result.workaround) == workaround
    assert len(set(built)) == (2 if workaround else 1), "the kernel with the fault, and without"
    assert any("eager in place of the kernels" in note for note in result.notes) != workaround
