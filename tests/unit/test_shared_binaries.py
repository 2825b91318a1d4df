"""Kernels that some cache has, built from the very same C++, are not built again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch._inductor import cpp_builder
from torch._inductor.runtime.cache_dir_utils import cache_dir
from torch._inductor.utils import fresh_cache

import kernelscope
from kernelscope.probes.shared_binaries import SharedBinaries


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the C++ compiler was run for, kernels only."""
    found: list[str] = []
    original = cpp_builder.CppBuilder.build

    def build(builder: cpp_builder.CppBuilder) -> None:
        if builder.get_target_file_path().endswith(".main.so"):
            found.append(builder.get_target_file_path())
        original(builder)

    monkeypatch.setattr(cpp_builder.CppBuilder, "build", build)
    return found


def test_a_library_is_copied(builds: list[str], tmp_path: Path) -> None:
    x = torch.randn(8, 8)
    with fresh_cache():
        torch.compile(lambda x: x.sin() * 7)(x)
        shutil.copytree(cache_dir(), tmp_path / "cache")
    torch._dynamo.reset()
    assert len(builds) == 1
    probe = SharedBinaries([tmp_path / "nothing", tmp_path / "cache"])
    probe.install()
    try:
        with fresh_cache():
            assert torch.allclose(torch.compile(lambda x: x.sin() * 7)(x), x.sin() * 7)
            assert len(builds) == 1
            torch.compile(lambda x: x.sin() * 8)(x)
            assert len(builds) == 2, "other C++"
    finally:
        probe.remove()
        torch._dynamo.reset()


def test_what_has_failed_is_not_built_again(builds: list[str]) -> None:
    """The caller has compiled it already, and seen it fail."""
    x = torch.randn(8, 8)

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin().relu() + 3

    with fresh_cache(), torch._inductor.config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}):
        assert not torch.allclose(torch.compile(f)(x), f(x))
        torch._dynamo.reset()
        assert len(builds) == 1
        result = kernelscope.bisect(f, (x,), workaround=False)
    assert result.cause is not None
    assert result.cause.axis == "kernel"
    assert len(builds) == 1
