"""Compiled kernels on disk: reused, rebuilt when damaged, safe with several processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.support.warm_python import WarmPython

from kernelscope.gcu import toolchain
from kernelscope.gcu.cache import Library
from kernelscope.gcu.choreo import translate
from kernelscope.gcu.execution import program
from kernelscope.gcu.execution.program import Program, build_cached, key_of
from kernelscope.native import compiler

SOURCE = """__co__ auto twice(f32 [N] x) {
  f32 [N] out;
  foreach i in [N] {
    out.at(i) = x.at(i) * 2.0f;
  }
  return out;
}
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "kernelscope" / "gcu"


def files(cache: Path) -> list[str]:
    return sorted(p.name for p in cache.iterdir())


def test_second_time_nothing_is_compiled(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translation = translate(SOURCE)
    library = build_cached(translation)
    first, reason = library.path, library.uncached
    assert reason == ""
    monkeypatch.setattr(toolchain, "build", None)
    assert not library.is_cached
    assert build_cached(translation) == Library(first, is_cached=True)
    assert files(cache) == [first.name]


def test_damaged_entry_is_built_again(cache: Path) -> None:
    translation = translate(SOURCE)
    path = build_cached(translation).path
    whole = path.read_bytes()
    for damaged in (whole[:100], b"", whole[:-1] + bytes([whole[-1] ^ 1]), whole[:500] + b"\0" + whole[501:]):
        path.unlink()
        path.write_bytes(damaged)
        library = build_cached(translation)
        again, reason = library.path, library.uncached
        assert (again, reason) == (path, "")
        result = Program(translation, again).call("twice", torch.ones(3))
        assert result is not None
        assert result.tolist() == [2, 2, 2]


def test_everything_that_matters_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    translation = translate(SOURCE)
    keys = {key_of(translation), key_of(translate(SOURCE.replace("2.0f", "3.0f")))}
    keys.add(key_of(translate(SOURCE.replace("f32 [N] out", "f32 [N] out", 1).replace("[N]", "[8]"))))
    keys.add(key_of(translate(SOURCE, elide=False)) + "same text, same key")
    monkeypatch.setattr(program, "VERSION", 10**6)
    keys.add(key_of(translation))
    monkeypatch.undo()
    monkeypatch.setattr(compiler, "processor", lambda: "another")
    keys.add(key_of(translation))
    assert len(keys) == 6
    assert toolchain.identity(("-O0",)) != toolchain.identity()


def test_folder_that_others_can_write_is_not_used(cache: Path) -> None:
    cache.mkdir(parents=True)
    cache.parent.chmod(0o777)
    library = build_cached(translate(SOURCE))
    path, reason = library.path, library.uncached
    assert "other users can write" in reason
    assert not path.is_relative_to(cache)
    assert path.exists()


def test_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernelscope").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library = build_cached(translate(SOURCE))
    path, reason = library.path, library.uncached
    assert "cannot be used" in reason
    assert path.exists()


def test_several_processes_at_once(cache: Path, tmp_path: Path, warm_python: WarmPython) -> None:
    file = tmp_path / "twice.co"
    file.write_text(SOURCE)
    code = (
        "import torch; from kernelscope.gcu import load; "
        f"print(load({str(file)!r}).call('twice', torch.ones(2)).tolist())"
    )
    children = warm_python.run_together(*[("-c", code)] * 3)
    assert [child.stdout for child in children] == ["[2.0, 2.0]\n"] * 3
    assert len(files(cache)) == 1
