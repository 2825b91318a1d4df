"""Which versions are supported: said in one place, repeated where a reader looks, and kept to."""

from __future__ import annotations

import platform
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import torch

import kernelscope
from kernelscope.doctor import checks
from kernelscope.probes.patching import MovedTarget, moved
from kernelscope.supported import SUPPORTED, TESTED, in_words, too_new, too_old, untested

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SPAN = re.compile(r"(torch|Python) (\d+\.\d+) to (\d+\.\d+)")


def dotted(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))


def test_the_package_says_the_same() -> None:
    (first, last), (torch_first, _) = SUPPORTED["Python"], SUPPORTED["torch"]
    assert PROJECT["requires-python"] == f">={dotted(first)}"
    assert f"torch>={dotted(torch_first)}" in PROJECT["dependencies"]
    minors = re.findall(r"Python :: 3\.(\d+)", " ".join(PROJECT["classifiers"]))
    assert [int(minor) for minor in minors] == list(range(first[1], last[1] + 1))


@pytest.mark.parametrize("page", ["README.md", "docs/getting-started.md", "docs/versions.md"])
def test_the_page_says_the_same(page: str) -> None:
    said = SPAN.findall((ROOT / page).read_text())
    assert {name for name, _, _ in said} == {"torch", "Python"}
    assert all((name, *map(dotted, SUPPORTED[name])) == (name, first, last) for name, first, last in said)


def test_what_counts_as_tested_was_tested() -> None:
    """The tables of the matrix have a row for each, in which tests have passed."""
    row = r"(?m)^\| (3\.\d+) \| (2\.\d+)\S* \| \S+ \| [1-9]\d* \|"
    rows = re.findall(row, (ROOT / "docs/versions.md").read_text())
    for name, found in zip(("Python", "torch"), map(set, zip(*rows, strict=True)), strict=True):
        (major, first), (_, last) = SUPPORTED[name][0], TESTED[name]
        assert found == {f"{major}.{minor}" for minor in range(first, last + 1)}, name


def test_no_other_file_has_a_span_of_its_own() -> None:
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "Makefile"]
    spans = {span for path in files for span in SPAN.findall(path.read_text())}
    assert spans == {(name, dotted(first), dotted(last)) for name, (first, last) in SUPPORTED.items()}


@pytest.mark.parametrize(
    ("found", "old", "new"),
    [("2.10.1", True, False), ("2.11.0+cpu", False, False), ("2.15.2", False, False),
     ("2.16.0a0+git12", False, True), ("3.0.0.dev20270101", False, True), ("1.13.1", True, False)],
)  # fmt: skip
def test_older_is_refused_and_newer_is_noted(found: str, old: bool, new: bool) -> None:
    assert (bool(too_old("torch", found)), bool(too_new("torch", found))) == (old, new)


def test_sentences() -> None:
    assert too_old("torch", "2.9.1") == (
        f"kernelscope needs torch 2.11 or newer (supported: {in_words('torch')[6:]}); this is torch 2.9.1"
    )
    assert too_new("torch", "2.99.0+cpu") == (
        f"torch 2.99 is newer than any that is supported ({in_words('torch')[6:]})"
    )
    assert too_new("Python", "3.99.1").startswith("Python 3.99 is newer than any")


def test_what_is_supported_and_was_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (untested("Python", "3.12.1"), untested("Python", "3.99"), untested("torch", "2.15.1")) == (
        "",
        "",
        "",
    )
    monkeypatch.setitem(TESTED, "Python", (3, 13))
    monkeypatch.setattr(platform, "python_version", lambda: "3.14.2")
    [python] = (result for result in checks.versions() if result.what == "python")
    assert python.health == "ok"
    assert "(supported, but not tested; tests ran with 3.11 to 3.13)" in python.found


def test_a_recording_refuses_an_old_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.10.0")
    with (
        pytest.raises(MovedTarget, match=r"needs torch 2\.11 or newer .* this is torch 2\.10\.0"),
        kernelscope.record(),
    ):
        pytest.fail("opened")


def test_what_an_old_torch_does_not_have_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kernelscope.probes.cpp_wrappers.packages", None)
    with pytest.raises(ImportError, match=r"import of kernelscope\.probes\.cpp_wrappers\.packages"):
        _ = kernelscope.aoti_compile_and_package
    monkeypatch.setattr("kernelscope.supported.version", lambda name: "2.6.0")
    with pytest.raises(ImportError, match=r"needs torch 2\.11 or newer .* this is torch 2\.6\.0"):
        _ = kernelscope.aoti_compile_and_package


def test_a_moved_target_tells_that_torch_is_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"Supported: {in_words('torch')}." in str(moved("torch:nothing"))
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    assert "torch.nothing, which does not exist here (torch 2.99.0). torch 2.99 is newer than any" in str(
        moved("torch:nothing")
    )


def test_doctor_looks_at_the_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    def healths() -> dict[str, tuple[str, str]]:
        return {result.what: (result.health, result.advice) for result in checks.versions()}

    assert (healths()["torch"][0], healths()["python"][0]) == ("ok", "ok")
    real = metadata.version
    monkeypatch.setattr(checks, "version", lambda n: "2.99.0" if n == "torch" else real(n))
    monkeypatch.setattr(platform, "python_version", lambda: "3.99.0")
    health, advice = healths()["torch"]
    assert health == "warn"
    assert advice.startswith(too_new("torch", "2.99.0"))
    assert healths()["python"][0] == "warn"
    monkeypatch.setattr(checks, "version", lambda n: "2.10.0" if n == "torch" else real(n))
    assert healths()["torch"] == ("bad", too_old("torch", "2.10.0"))
