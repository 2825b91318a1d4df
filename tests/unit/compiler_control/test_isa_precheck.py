"""The program that checks for vector instructions is built in the background, where Inductor finds it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch._inductor import codecache, cpp_builder, cpu_vec_isa
from torch._inductor.utils import fresh_cache

from kernelscope.compiler_control.isa_precheck import IsaPrecheck


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The compiler's command lines for sources, and not for headers."""
    if not cpu_vec_isa.valid_vec_isa_list.__wrapped__():
        pytest.skip("this processor has no vector instructions that Inductor knows")
    found: list[str] = []
    original = cpp_builder.CppBuilder.build

    def build(builder: cpp_builder.CppBuilder) -> None:
        line = builder.get_command_line()
        if line.split()[1].endswith(".cpp"):
            found.append(line)
        original(builder)

    monkeypatch.setattr(cpp_builder.CppBuilder, "build", build)
    with fresh_cache():
        yield found
    torch._dynamo.reset()


def check(isa: cpu_vec_isa.VecISA) -> bool:
    return isa.check_build(cpu_vec_isa.VecISA._avx_code)


def test_it_is_built_once_and_with_the_header(lines: list[str]) -> None:
    before = codecache.pick_vec_isa, codecache._precompile_header
    isa = cpu_vec_isa.valid_vec_isa_list.__wrapped__()[0]
    precheck = IsaPrecheck()
    precheck.start()
    precheck.finish()
    assert check(isa)
    assert len(lines) >= 1
    assert len(lines) == len(set(lines))
    assert (" -include " in lines[0]) == torch._inductor.config.cpp_cache_precompile_headers
    assert before == (codecache.pick_vec_isa, codecache._precompile_header)


def test_without_it_inductor_builds_the_program(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails in the thread, Inductor's own check is what counts."""

    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no header")

    monkeypatch.setattr(codecache.CppPythonBindingsCodeCache, "load_async", fail)
    precheck = IsaPrecheck()
    precheck.start()
    precheck.finish()
    assert not lines
    assert check(cpu_vec_isa.valid_vec_isa_list.__wrapped__()[0])
    assert len(lines) == 1


def test_flags_that_change_while_inductor_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of AVX512 do on x86, which the thread must not see."""
    may_end, flags = threading.Event(), list[str]()

    def build(precheck: IsaPrecheck, isa: cpu_vec_isa.VecISA) -> None:
        may_end.wait(60)
        flags.append(isa.build_arch_flags())

    mine = cpu_vec_isa.VecAVX2()
    monkeypatch.setattr(IsaPrecheck, "build", build)
    monkeypatch.setattr(cpu_vec_isa, "x86_isa_checker", lambda: ["avx2", "avx512"])
    monkeypatch.setattr(cpu_vec_isa, "supported_vec_isa_list", [mine, cpu_vec_isa.VecAMX()])
    precheck = IsaPrecheck()
    precheck.start()
    assert precheck.is_running()
    mine._arch_flags += " -mextension"
    may_end.set()
    precheck.finish()
    assert flags == [cpu_vec_isa.VecAVX2._arch_flags]
