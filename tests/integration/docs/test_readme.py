"""What the README shows is what a newcomer sees."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.support.torch_release import RELEASE
from tests.support.warm_python import WarmPython

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(RELEASE < (2, 12), reason="the kernel of torch 2.11 has other arguments")
def test_the_first_example_prints_what_stands_below_it(tmp_path: Path, warm_python: WarmPython) -> None:
    text = (ROOT / "README.md").read_text()
    program, shown = re.findall(r"```(?:python)?\n(.*?)```", text, re.DOTALL)[:2]
    (tmp_path / "example.py").write_text(program)
    # A cache of its own: in another one the graph has the number that it had where it was compiled first.
    changed = {"PYTHONPATH": str(ROOT / "src"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    done = warm_python.run("example.py", cwd=tmp_path, env={**os.environ, **changed})
    assert done.returncode == 0, done.stderr
    assert without_hashes(done.stdout) == without_hashes(shown)
    assert done.stdout.count("#") == shown.count("#") == 6


def without_hashes(text: str) -> str:
    """Products round differently on other processors, and torch builds have other names."""
    return re.sub(r"torch [\w.+]+", "torch", re.sub(r"#[0-9a-f]{8}", "#", text)).strip()
