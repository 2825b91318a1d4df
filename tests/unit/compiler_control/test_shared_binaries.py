"""Kernels that some cache has, built from the very same C++, are not built again."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import pytest
import torch
from filelock import FileLock
from torch._inductor import codecache, cpp_builder
from torch._inductor.runtime.cache_dir_utils import cache_dir
from torch._inductor.utils import fresh_cache
from torch.testing import assert_close

import kernelscope
from kernelscope.compiler_control.shared_binaries import SharedBinaries
from kernelscope.native import compiler
from kernelscope.store import file_systems
from kernelscope.trials import in_process


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
    probe = SharedBinaries(tmp_path / "nothing", tmp_path / "cache")
    probe.install()
    try:
        with fresh_cache():
            assert_close(torch.compile(lambda x: x.sin() * 7)(x), x.sin() * 7)
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


def test_a_library_that_somebody_is_writing_is_not_taken(builds: list[str], tmp_path: Path) -> None:
    """The program may be running at the same time: what it links is locked, and only half there."""
    x = torch.randn(8, 8)
    with fresh_cache():
        torch.compile(lambda x: x.sin() * 5)(x)
        shutil.copytree(cache_dir(), tmp_path / "cache")
    torch._dynamo.reset()
    (library,) = (tmp_path / "cache").glob("*/*.main.so")
    library.write_bytes(library.read_bytes()[:20])
    (tmp_path / "cache" / "locks").mkdir(exist_ok=True)
    probe = SharedBinaries(tmp_path / "cache")
    probe.install()
    try:
        name = library.name.removesuffix(".main.so")
        with FileLock(tmp_path / "cache" / "locks" / f"{name}.lock"), fresh_cache():
            assert_close(torch.compile(lambda x: x.sin() * 5)(x), x.sin() * 5)
    finally:
        probe.remove()
        torch._dynamo.reset()
    assert len(builds) == 2


@dataclass
class Builder:
    target: Path

    def get_target_file_path(self) -> str:
        return str(self.target)

    def build(self) -> None:
        self.target.write_text("built")


def test_what_another_process_is_building_is_waited_for(tmp_path: Path) -> None:
    """A precompiled header, which all processes share, is there before it is whole."""
    target, lock = tmp_path / "header.h.gch", tmp_path / "header.lock"
    target.write_text("half")
    probe = SharedBinaries(tmp_path / "nothing")
    probe.install()
    try:
        asking = Thread(target=codecache._worker_compile_cpp, args=(str(lock), [Builder(target)]))
        with FileLock(lock):
            asking.start()
            asking.join(0.5)
            assert asking.is_alive()
        asking.join(60)
    finally:
        probe.remove()
    assert not asking.is_alive()
    assert target.read_text() == "half", "it is there: nothing is built"


def test_what_cannot_be_copied_is_built(tmp_path: Path) -> None:
    target = tmp_path / "own" / "ab" / "library.so"
    target.parent.mkdir(parents=True)
    (tmp_path / "cache" / "ab").mkdir(parents=True)
    (tmp_path / "cache" / "ab" / "library.so").write_text("copied")
    (tmp_path / "cache" / "locks").mkdir()
    (tmp_path / "cache" / "locks" / "library.lock").mkdir()  # no file: it cannot be told whether it is whole
    probe = SharedBinaries(tmp_path / "cache")
    probe.install()
    try:
        codecache._worker_compile_cpp(str(tmp_path / "library.lock"), [Builder(target)])
    finally:
        probe.remove()
    assert target.read_text() == "built"


def test_a_library_that_a_trial_has_not_finished_is_not_kept(tmp_path: Path) -> None:
    """It may have raised while other kernels of it were being built."""
    cache = tmp_path / "cache"
    (cache / "ab").mkdir(parents=True)
    (cache / "locks").mkdir()
    for name in ("half", "whole"):
        (cache / "ab" / f"{name}.main.so").write_text(name)
    binaries = SharedBinaries(tmp_path / "kept", tmp_path / "nothing")
    with FileLock(cache / "locks" / "half.lock"):
        binaries.keep(cache)
    assert [path.name for path in (tmp_path / "kept").glob("*/*/*")] == ["whole.main.so"]


@pytest.mark.parametrize(("asking", "found"), [("AVX512", "kept"), ("AVX2", "built")])
def test_a_library_of_another_processor_is_not_taken(
    asking: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two machines may share the folder: -march=native is the same word on both, and the name the same."""
    cache, target = tmp_path / "cache", tmp_path / "own" / "ab" / "kernel.main.so"
    (cache / "ab").mkdir(parents=True)
    (cache / "ab" / target.name).write_text("kept")
    target.parent.mkdir(parents=True)
    monkeypatch.setattr(compiler, "processor", lambda: "AVX512")
    SharedBinaries(tmp_path / "kept").keep(cache)
    monkeypatch.setattr(compiler, "processor", lambda: asking)
    probe = SharedBinaries(tmp_path / "kept")
    probe.install()
    try:
        codecache._worker_compile_cpp(str(tmp_path / "kernel.lock"), [Builder(target)])
    finally:
        probe.remove()
    assert target.read_text() == found


@pytest.mark.parametrize(("kind", "count"), [("ext4", 1), ("nfs4", 0)])
def test_a_cache_that_other_machines_may_write_to_is_not_read(
    kind: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_systems, "mounted", lambda: f"server:/home / {kind} rw 0 0\n")
    assert len(in_process.caches_of_this_machine()) == count
