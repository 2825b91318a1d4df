"""The tests of a file run in one process, in the order that puts long files first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILE = "import os\n" + "".join(
    f"def test_{i}(): open('log', 'a').write(__file__ + ' ' + os.environ['PYTEST_XDIST_WORKER'] + '\\n')\n"
    for i in range(6)
)


def test_a_file_runs_in_one_process(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(FILE)
    words = (
        "-m pytest -q -c /dev/null --rootdir . -p no:cacheprovider -p no:kernelscope -p no:hypothesispytest"
    )
    words += " -p tests.support.distribution -n 2 --dist loadscope test_a.py test_b.py"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    line = [sys.executable, *words.split()]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    noted = (tmp_path / "log").read_text().splitlines()
    assert len(noted) == 12
    assert len(set(noted)) == 2, "the tests of one file ran in two processes"


def test_the_folder_of_the_key_is_removed(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    environment.pop("KERNELSCOPE_TESTS_STATE", None)
    environment.pop("PYTEST_XDIST_WORKER", None)
    words = [
        "-m",
        "pytest",
        "-q",
        "--collect-only",
        "-p",
        "no:cacheprovider",
        "tests/tiny/text/test_file_names.py",
    ]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_make_asks_for_it() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "--dist loadscope --no-loadscope-reorder" in makefile
    assert "loadgroup" not in makefile
    assert "export TORCHINDUCTOR_VEC_ISA_OK" in makefile  # or each process checks its vector instructions
