"""What the C++ compiler is asked before anybody needs to know, and what is done about a wrong assumption."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch._inductor import codecache, cpp_builder, cpu_vec_isa
from torch._inductor.utils import fresh_cache

from kernelscope.compiler_control.isa_precheck import CppReadiness

SCRIPT = """
import os
import torch
assert "SEEN_BEFORE" not in os.environ, "it does not start as it did"
os.environ["SEEN_BEFORE"] = "1"
import torch._inductor.config as config
config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
torch.manual_seed(0)
torch.compile(lambda x: x.sin().relu() + 1)(torch.randn(8, 16))
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str, str]]]:
    """For what something was really compiled: instruction sets, flags, code."""
    found: list[tuple[str, str, str]] = []
    original = cpu_vec_isa.VecISA.check_build

    def check(isa: cpu_vec_isa.VecISA, code: str) -> bool:
        found.append((str(isa), isa.build_arch_flags(), code))
        return original(isa, code)

    monkeypatch.setattr(cpu_vec_isa.VecISA, "check_build", check)
    with fresh_cache():
        yield found
    torch._dynamo.reset()


def test_it_is_asked_once_and_remembered(asked: list[tuple[str, str, str]]) -> None:
    before = vars(cpu_vec_isa.VecISA)["check_build"], codecache._precompile_header
    probe = CppReadiness(assume=False)
    probe.install()
    try:
        answers = {
            str(isa): isa.check_build(cpu_vec_isa.VecISA._avx_code)
            for isa in cpu_vec_isa.valid_vec_isa_list()
        }
        assert probe.was_right()
    finally:
        probe.remove()
    assert len(asked) == len(set(asked))
    assert set(answers) <= {name for name, _, _ in asked}
    assert before == (vars(cpu_vec_isa.VecISA)["check_build"], codecache._precompile_header)


def test_an_assumption_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks while the check is under way need not wait; that it was wrong is known in the end."""
    import threading

    isas = cpu_vec_isa.valid_vec_isa_list()
    if not isas:
        pytest.skip("this processor has no vector instructions that Inductor knows")
    may_end = threading.Event()
    monkeypatch.setattr(cpu_vec_isa.VecISA, "check_build", lambda isa, code: may_end.wait(60) and False)
    probe = CppReadiness(assume=True)
    probe.install()
    try:
        assert isas[0].check_build(cpu_vec_isa.VecISA._avx_code) is True
        assert probe.was_right(timeout=0.1) is None, "not known so soon"
        may_end.set()
        assert probe.was_right() is False
        assert isas[0].check_build(cpu_vec_isa.VecISA._avx_code) is False
    finally:
        may_end.set()
        probe.remove()


def test_lists_are_made_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """On x86 flags change while that is done."""
    import threading
    import time

    inside, most = 0, 0

    def slowly() -> list[cpu_vec_isa.VecISA]:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.05)
        inside -= 1
        return []

    only_this_one(monkeypatch, cpu_vec_isa.VecNEON())
    monkeypatch.setattr(cpu_vec_isa.VecISA, "check_build", lambda isa, code: True)
    probe = CppReadiness(assume=False)
    slowly.__wrapped__ = list  # type: ignore[attr-defined]
    monkeypatch.setattr(cpu_vec_isa, "valid_vec_isa_list", slowly)
    probe.install()
    threads = [threading.Thread(target=lambda: cpu_vec_isa.valid_vec_isa_list()) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    probe.remove()
    assert most == 1
    assert cpu_vec_isa.valid_vec_isa_list is slowly


def only_this_one(monkeypatch: pytest.MonkeyPatch, isa: cpu_vec_isa.VecISA) -> None:
    monkeypatch.setattr(cpu_vec_isa, "x86_isa_checker", list)
    monkeypatch.setattr(cpu_vec_isa.valid_vec_isa_list, "__wrapped__", lambda: [isa], raising=False)


def test_flags_that_change_while_inductor_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of AVX512 do on x86, where the thread must not see it."""
    import threading

    may_end, flags = threading.Event(), []

    def check(isa: cpu_vec_isa.VecISA, code: str) -> bool:
        may_end.wait(60)
        flags.append(isa.build_arch_flags())
        return True

    mine = cpu_vec_isa.VecAVX2()
    monkeypatch.setattr(cpu_vec_isa.VecISA, "check_build", check)
    monkeypatch.setattr(cpu_vec_isa, "x86_isa_checker", lambda: ["avx2", "avx512"])
    monkeypatch.setattr(cpu_vec_isa, "supported_vec_isa_list", [mine, cpu_vec_isa.VecAMX()])
    probe = CppReadiness(assume=True)
    probe.install()
    mine._arch_flags += " -mextension"
    may_end.set()
    probe.remove()
    assert flags == [cpu_vec_isa.VecAVX2._arch_flags]


@pytest.mark.parametrize("can", [True, False])
def test_an_assumption_that_the_thread_does_not_check_is_checked_in_the_end(
    monkeypatch: pytest.MonkeyPatch, can: bool
) -> None:
    """Inductor asks for extensions (of AVX512) with code and flags of their own."""
    import threading

    may_end = threading.Event()
    isa = cpu_vec_isa.VecNEON()
    flags: list[str] = []

    def check(isa: cpu_vec_isa.VecISA, code: str) -> bool:
        may_end.wait(60)
        flags.append(isa.build_arch_flags())
        return can

    monkeypatch.setattr(cpu_vec_isa.VecISA, "check_build", check)
    only_this_one(monkeypatch, cpu_vec_isa.VecNEON())
    probe = CppReadiness(assume=True)
    probe.install()
    try:
        isa._arch_flags = "-mextension"
        assert isa.check_build("// an extension") is True
        isa._arch_flags = ""
        assert flags == []
        may_end.set()
        assert probe.was_right() is can
    finally:
        may_end.set()
        probe.remove()
    assert sorted(flags) == ["", "-mextension"], "asked once, with the flags of the question"


@pytest.mark.parametrize("fails", [False, True])
def test_the_header_is_used_for_the_check_too(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """And without it, if that cannot be compiled: what Inductor itself does is what counts."""
    isas = cpu_vec_isa.valid_vec_isa_list.__wrapped__()
    if not isas or not torch._inductor.config.cpp_cache_precompile_headers:
        pytest.skip("nothing is vectorised, or no header is precompiled")
    asked.clear()
    shutil.rmtree(codecache.cache_dir(), ignore_errors=True)
    lines: list[str] = []
    original = cpp_builder.CppBuilder.build

    def build(builder: cpp_builder.CppBuilder) -> None:
        line = builder.get_command_line()
        if line.split()[1].endswith(".cpp"):
            lines.append(line)
            if fails and " -include " in line:
                raise RuntimeError("it cannot be compiled")
        original(builder)

    monkeypatch.setattr(cpp_builder.CppBuilder, "build", build)
    probe = CppReadiness(assume=True)
    probe.install()
    try:
        isas[0].check_build(cpu_vec_isa.VecISA._avx_code)
        assert probe.was_right()
    finally:
        probe.remove()
    assert [" -include " in line for line in lines][: 1 + fails] == [True, False][: 1 + fails]


@pytest.mark.slow
def test_a_search_with_a_wrong_assumption_begins_anew(tmp_path: Path) -> None:
    """A compiler that cannot do what is checked for: no kernel is vectorised, as without the assumption."""
    real = shutil.which("g++")
    assert real is not None
    compiler = tmp_path / "g++"
    compiler.write_text(
        f'#!/bin/sh\nfor word; do case "$word" in *.cpp)\n'
        f'  if grep -q __avx_chk_kernel "$word"; then sleep 6; exit 1; fi;; esac; done\nexec {real} "$@"\n'
    )
    compiler.chmod(0o755)
    (tmp_path / "script.py").write_text(SCRIPT)
    cache = tmp_path / "cache"
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
    }
    words = [sys.executable, "-m", "kernelscope", "reduce", "--json", "script.py"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["nodes"] == 1
    assert "the search begins anew" in done.stderr
    journal = (tmp_path / "script-reduced" / "journal.jsonl").read_text().splitlines()
    ended = [line for line in journal if json.loads(line)["what"] == "end"]
    assert len(ended) == told["trials"], "nothing is left of the first search"
    sources = [path.read_text() for path in cache.glob("*/*.main.cpp")]
    assert any("at::vec::Vectorized" in text for text in sources), "the assumption was used"
    script = tmp_path / "script-reduced" / "reduced.py"
    assert subprocess.run([sys.executable, script], env=environment, capture_output=True).returncode == 1
