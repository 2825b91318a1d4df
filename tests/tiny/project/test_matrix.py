"""The matrix of versions: what it selects is there, and it counts right."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests import matrix

from kernelscope.supported import SUPPORTED

ROOT = Path(__file__).parents[3]


def test_it_covers_every_supported_version() -> None:
    (first, last), (python_first, python_last) = SUPPORTED["torch"], SUPPORTED["Python"]
    minors = [tuple(map(int, version.split(".")[:2])) for version in matrix.TORCHES]
    assert minors == [(2, minor) for minor in range(first[1], last[1] + 1)]
    assert list(matrix.PYTHONS) == [f"3.{minor}" for minor in range(python_first[1], python_last[1] + 1)]
    assert matrix.PINNED in matrix.TORCHES


def test_what_it_selects_is_there() -> None:
    selected = [test.partition("[")[0] for tests in matrix.SELECTION.values() for test in tests]
    for path, _, name in (test.partition("::") for test in selected):
        assert f"def {name}" in (ROOT / path).read_text(), name
    assert len(set(selected)) >= len(selected) - 1


REPORT = """<testsuites><testsuite>
<testcase classname="a" name="fine"/><testcase classname="a" name="also"/>
<testcase classname="a" name="bad"><failure message="no"/></testcase>
<testcase classname="a" name="worse"><error message="no"/></testcase>
<testcase classname="a" name="left"><skipped message="needs a GPU"/></testcase>
</testsuite></testsuites>"""


def test_it_counts() -> None:
    result = matrix.read(ElementTree.parse(StringIO(REPORT)))
    assert (result.passed, result.failed, result.skipped) == (2, ["a.bad", "a.worse"], {"needs a GPU": 1})
    row = matrix.Row("3.11", "2.15.0", "3.9.0", all=result, kernels=result)
    assert row.cells() == ["3.11", "2.15.0", "3.9.0", "2", "1 (needs a GPU)", "2", "2 of 4"]
    result.skipped["no g++"] += 2
    assert row.cells()[4] == "3 (2 × no g++, 1 × needs a GPU)"
    result.skipped.clear()
    assert row.cells()[4] == "0"
    text = matrix.table([matrix.Row("3.14", "2.13.0", problem="cannot be installed here").cells()])
    assert "| 3.14 | 2.13.0 | — | cannot be installed here |" in text


def test_the_table_is_put_into_its_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = "before\n<!-- matrix a -->\nold\n<!-- end -->\n<!-- matrix b -->\nold\n<!-- end -->\nafter\n"
    page.write_text(text)
    row = ["3.11", "2.13.0+cpu", "3.7.1", "9", "0", "0", "3 of 3"]
    matrix.write_docs(page, [row], "b")  # the table of another kind of machine stays
    assert page.read_text() == text.replace("b -->\nold", f"b -->\n{matrix.table([row])}")
    with pytest.raises(SystemExit, match="put <!-- matrix c -->"):
        matrix.write_docs(page, [row], "c")
    assert f"<!-- matrix {platform.machine()} -->" in matrix.PAGE.read_text()


def test_rows_of_other_versions_stay() -> None:
    def row(python: str, torch: str, passed: str) -> list[str]:
        return [python, torch, "3.7.1", passed, "0", "0", "3 of 3"]

    dropped, last = row("3.11", "1.13.0", "1"), row("3.11", matrix.TORCHES[-1], "2")
    before = matrix.table([dropped, row("3.11", "2.13.0+cpu", "3"), last, row("3.12", "2.13.0", "4")])
    now = [row("3.11", "2.13.0", "5"), row("3.11", matrix.TORCHES[0], "6")]
    assert matrix.with_older(now, before) == [now[1], now[0], last, row("3.12", "2.13.0", "4")]


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
@pytest.mark.parametrize(
    ("given", "folder", "left_out"),
    [
        ([], ".venv", "^$"),
        (["TORCH=2.99.0"], ".venvs/py{}-torch2.99.0", "^(torch|torchvision|triton)=="),
        ([f"TORCH={matrix.PINNED}"], f".venvs/py{{}}-torch{matrix.PINNED}", "^$"),
    ],
)
def test_each_torch_has_an_environment_without_foreign_pins(
    given: list[str], folder: str, left_out: str
) -> None:
    words = ["make", "--always-make", "--dry-run", "environment", f"PYTHON={sys.executable}", *given]
    clean = {name: value for name, value in os.environ.items() if name not in ("TORCH", "MAKEFLAGS")}
    told = subprocess.run(words, cwd=ROOT, env=clean, capture_output=True, text=True, check=True).stdout
    place = folder.format(f"{sys.version_info.major}.{sys.version_info.minor}")
    assert f"-m venv {place}\n" in told
    assert f"grep -vE '{left_out}' constraints.txt >{place}/constraints.txt\n" in told
    version = given[0].partition("=")[2] if given else matrix.PINNED
    assert f"{place}/bin/pip install -c {place}/constraints.txt torch=={version} " in told
