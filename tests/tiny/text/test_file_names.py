"""Names of files that are made of other names: what a file system takes, and no two alike."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelscope.store import folder
from kernelscope.text.file_names import file_name

LONG = ["n" * 300, "ядро_" * 60, "核" * 100, "x" + "核" * 100, "🧪" * 80, "e\u0301" * 150]


@pytest.mark.parametrize("name", LONG)
def test_bytes_are_counted_and_no_character_is_cut(tmp_path: Path, name: str) -> None:
    made = file_name(name)
    assert len(os.fsencode(made)) <= 200
    assert "\ufffd" not in made
    (tmp_path / f"{made}-before.safetensors").touch()
    assert file_name(name + "a") != file_name(name + "b"), "the ends differ, and were cut"


@pytest.mark.parametrize("name", ["triton_poi_fused_add_0", "ядро", "a.b-c_1", "n" * 200])
def test_what_fits_stays(name: str) -> None:
    assert file_name(name) == name


def test_what_no_name_may_hold() -> None:
    assert file_name("a/b\0<lambda>\udcff*?") == "a_b_lambda_"
    assert file_name("a:b+c/d", keep=":+") == "a:b+c_d"


def test_a_run_of_a_script_with_a_long_name(tmp_path: Path) -> None:
    first, second = (folder.create_next(tmp_path, "я" * 125) for _ in range(2))
    assert first.name.endswith("-1.kscope")
    assert second.name.endswith("-2.kscope")


def test_in_a_locale_without_these_letters() -> None:
    program = "from kernelscope.text.file_names import file_name; print(file_name('\\u044f' * 3 + 'x' * 300))"
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [sys.executable, "-c", program]
    made = subprocess.run(words, env=environment, capture_output=True, check=True).stdout.decode("ascii")
    assert made.startswith("___xxx")
    assert len(made.strip()) == 200
