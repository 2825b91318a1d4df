"""The GPU's kernels are built once on a machine, by another process, on a machine without a GPU as well."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("triton")

from kernelscope.fingerprint.cuda import ahead, engine, nan_scan, plans, stats
from kernelscope.fingerprint.cuda.building.kernel_builds import KernelBuilds, NotBuilt
from kernelscope.fingerprint.cuda.building.kernel_files import Spec, read
from kernelscope.fingerprint.cuda.building.on_device import triton_version

HOPPER = 90


def builds(folder: Path) -> KernelBuilds:
    return KernelBuilds(HOPPER, triton_version(), folder)


def test_a_kernel_is_built_once_and_found_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = next(each for each in engine.usual_kernels() if each.name == "bits.strided")
    first = builds(tmp_path).get(spec)
    assert first.image.startswith(b"\x7fELF")
    assert (first.symbol, first.threads) == ("strided", 32 * engine.WARPS)
    monkeypatch.setattr("subprocess.run", None)  # the next one starts no process
    start = time.perf_counter()
    assert builds(tmp_path).get(spec) == first
    assert time.perf_counter() - start < 0.5


def test_a_damaged_file_is_built_again(tmp_path: Path) -> None:
    spec = next(each for each in engine.usual_kernels() if each.name == "bits.strided")
    file = spec.file(tmp_path, HOPPER, triton_version())
    file.write_bytes(b"half of it")
    assert builds(tmp_path).get(spec).image.startswith(b"\x7fELF")
    assert read(file) is not None


def test_what_cannot_be_built_is_said(tmp_path: Path) -> None:
    wrong = Spec.of("bits", "flat", 3, {"BLOCK": 512}, 4)
    with pytest.raises(NotBuilt, match=r"bits\.flat takes 27 arguments"):
        builds(tmp_path).get(wrong)


def children() -> set[str]:
    """Process ids of this process's children, ended ones that nobody waited for among them."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it is gone by now
            if stat.read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
                found.add(stat.parent.name)
    return found


def test_the_program_gets_no_child_process(tmp_path: Path) -> None:
    before = children()  # of other tests
    builds(tmp_path).ahead([nan_scan.kernel_for(True)])
    assert children() <= before


def test_a_kernel_for_each_of_its_uses_is_built_ahead() -> None:
    """What is built ahead has to be what is launched: the same constants, options and numbers."""
    specs = ahead.kernels("stats", True)
    assert len(specs) == len(set(specs)) <= 25
    assert set(ahead.kernels("hash", True)) == {*engine.usual_kernels(), *plans.planned_kernels(True)}
    assert set(ahead.kernels("hash", True)) < set(specs)
    names = {spec.name for spec in specs}
    assert names == {
        *("bits.flat", "bits.strided", "bits.transposed", "planned.planned", "planned.planned_flat"),
        *("stats.flat", "stats.strided", "records.merge"),
    }
    wanted = stats.how_flat(1 << stats.CODES[stats.torch.bfloat16], False, True) | {
        "maxnreg": stats.REGISTERS
    }
    assert Spec.of("stats", "flat", stats.FLAT_NUMBERS, wanted, stats.WARPS) in specs
