"""Kernels that are built when they are launched, and those that never are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch._inductor.codecache import CppPythonBindingsCodeCache
from torch._inductor.utils import fresh_cache
from torch.testing import assert_close

import kernelscope
from kernelscope.compiler_control.lazy_kernels import AwaitedKernels, LazyKernels
from kernelscope.reduction.capture import capture


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
    x = torch.randn(8, 8)
    probe = LazyKernels()
    probe.install()
    try:
        compiled = torch.compile(lambda x: x.sin() + 1)
        assert_close(compiled(x), x.sin() + 1)
        assert_close(compiled(x), x.sin() + 1)
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

    x = torch.randn(8, 8)
    config = {"post_grad_custom_post_pass": sums_to_differences}
    with torch._inductor.config.patch(config):
        result = kernelscope.bisect(
            lambda: torch.compile(lambda x: (x.sin() + x).exp())(x),
            fails=lambda y: not torch.allclose(y, (x.sin() + x).exp()),
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


def test_what_there_is_to_do_is_done_before_a_kernel_is_waited_for(built: list[str]) -> None:
    done: list[int] = []
    probe = AwaitedKernels(lambda: done.append(len(built)))
    with torch._inductor.config.patch(compile_threads=2):
        probe.install()
        try:
            compiled = torch.compile(lambda x: x.sin() + 1)
            assert_close(compiled(x := torch.randn(8, 8)), x.sin() + 1)
            assert_close(torch.compile(lambda x: x.cos() + 1)(x), x.cos() + 1)
        finally:
            probe.remove()
    assert done == [1], "once, when the first kernel was asked for"
    assert_close(compiled(x), x.sin() + 1)  # what was compiled stays
    probe.let_go()
    assert_close(compiled(x), x.sin() + 1)  # with the kernels themselves


@pytest.mark.parametrize("threads", [1, 2])
def test_a_kernel_that_cannot_be_built_is_an_error_of_the_compiler(built: list[str], threads: int) -> None:
    from torch._dynamo.exc import BackendCompilerFailed

    options = {"compile_threads": threads, "cpp.inject_relu_bug_TESTING_ONLY": "compile_error"}
    probe = AwaitedKernels(lambda: None)
    with torch._inductor.config.patch(options):
        probe.install()
        try:
            with pytest.raises(BackendCompilerFailed, match="CppCompileError"):
                torch.compile(lambda x: x.relu())(torch.randn(8, 8))
            with torch._dynamo.config.patch(suppress_errors=True):
                torch._dynamo.reset()
                x = torch.randn(8, 8)
                assert torch.equal(torch.compile(lambda x: x.relu())(x), x.relu())
        finally:
            probe.remove()
            probe.let_go()


def test_a_kernel_that_nobody_launches_has_to_be_built_all_the_same(built: list[str]) -> None:
    """As without the probe: the branch that is not taken is compiled, too."""
    compiled = torch.compile(
        lambda x: torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.relu() * 2, (x,))
    )
    options = {"compile_threads": 2, "cpp.inject_relu_bug_TESTING_ONLY": "compile_error"}
    with torch._inductor.config.patch(options):
        captured = capture(lambda: compiled(torch.ones(4, 4)))
        captured.close()
    assert captured.failure is not None
    assert captured.failure.what == "CppCompileError"


def test_kernels_that_are_built_apart_keep_nobody_waiting(built: list[str]) -> None:
    """Not even if they hang: what is compiled afterwards has Inductor's own threads for itself."""
    import threading

    from torch._inductor.async_compile import AsyncCompile

    from kernelscope.compiler_control.lazy_kernels import is_building_apart

    may_end, probe = threading.Event(), AwaitedKernels(apart=True)
    before = vars(AsyncCompile)["submit"]
    with torch._inductor.config.patch(compile_threads=2):
        probe.install()
        try:
            hanging = [AsyncCompile.submit(lambda: may_end.wait(60)) for _ in range(4)]
            assert is_building_apart()
        finally:
            probe.remove()
        assert vars(AsyncCompile)["submit"] is before
        assert AsyncCompile.submit(lambda: "done").result(timeout=60) == "done"
        may_end.set()
        assert [made.result(timeout=60) for made in hanging] == [True] * 4
