"""Engines compile for processors that are not here, and unlike processors share no library."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.other_environments import namespace, python

from kernelscope.fingerprint.cpu.bits import BitsLibrary
from kernelscope.fingerprint.cpu.stats import StatsLibrary
from kernelscope.native import compiler
from kernelscope.native import load as native_load
from kernelscope.probes.cpp_wrappers.launch_log import LaunchLog
from kernelscope.shadowing.checks.measure import MeasureLibrary

ARM = ("-U__ARM_NEON",)  # then the vectors are the compiler's own, whatever the processor
PROCESSORS = {
    "baseline": ((), ("-march=x86-64",)),
    "AVX2": (("-D__AVX__", "-D__AVX2__"), ("-march=x86-64-v3",)),
    "AVX-512": (
        ("-D__AVX__", "-D__AVX2__", "-D__AVX512F__", "-D__AVX512DQ__"),
        ("-march=x86-64-v4",),
    ),
}


@pytest.mark.parametrize("processor", PROCESSORS)
def test_engines_compile_for_processors_that_are_not_here(processor: str, tmp_path: Path) -> None:
    defines, flags = PROCESSORS[processor]
    command = compiler.compiler()
    given = flags if platform.machine() == "x86_64" else (*ARM, *defines)
    for library in (BitsLibrary, StatsLibrary, MeasureLibrary, LaunchLog):
        source = library.SOURCE
        done = subprocess.run(
            [*command, "-std=c++17", "-fsyntax-only", *given, str(source)],
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_a_library_is_not_shared_by_unlike_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home on two machines: what -march=native made on one would end a program on the other (SIGILL)."""
    tmp_path.chmod(0o700)
    monkeypatch.setattr(native_load, "COMMON_FLAGS", ("-std=c++17", "-O0", "-shared", "-fPIC"))  # soon done
    names = set()
    for processor in ("flags: sse2", "flags: sse2 avx2"):
        monkeypatch.setattr(compiler, "processor", lambda processor=processor: processor)
        native_load.load(MeasureLibrary, tmp_path)
        names |= {path.name for path in tmp_path.glob("measure-*.so")}
    assert len(names) == 2


IDENTITY = """
import hashlib
from kernelscope.native.compiler import identity
print(hashlib.sha256(identity(["c++"], []).encode()).hexdigest())
"""


def test_what_a_processor_lacks_is_in_the_names_of_libraries(tmp_path: Path) -> None:
    """As the kernel lists what it can do; clocks do not matter."""
    real = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    changed = {
        "none": real,
        "clock": re.sub(r"(?im)^(cpu mhz|bogomips)(\s*:).*", r"\1\2 1.0", real),
        "fewer": re.sub(r"(?m)^(flags|Features)(\s*:\s*\S+).*", r"\1\2", real),  # the first one alone
    }
    names = {}
    for how, text in changed.items():
        (tmp_path / how).write_text(text, encoding="utf-8")
        under = namespace(f"mount --bind '{tmp_path / how}' /proc/cpuinfo")
        done = python("-c", IDENTITY, cwd=tmp_path, environ={}, under=under)
        assert done.returncode == 0, done.stderr
        names[how] = done.stdout
    assert names["none"] == names["clock"] != names["fewer"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="every aarch64 processor has NEON")
def test_values_without_avx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Built for any x86-64 processor: each library checks itself when it is loaded; bits are the same."""
    tmp_path.chmod(0o700)
    monkeypatch.setattr(native_load, "FLAGS", (("-march=x86-64",),))
    for library in (BitsLibrary, StatsLibrary, MeasureLibrary):
        native_load.load(library, tmp_path)
    built = sorted(tmp_path.glob("*.so"))
    assert len(built) == 3
    if shutil.which("objdump"):
        for each in built:
            words = ["objdump", "-d", "--no-show-raw-insn", str(each)]
            code = subprocess.run(words, capture_output=True, encoding="utf-8", check=True).stdout
            assert "%xmm" in code
            assert not re.search(r"%[yz]mm", code), each.name
