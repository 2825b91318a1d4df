"""What waits for an import: look-ups, other finders, failures and threads before the module is there."""

from __future__ import annotations

import copy
import importlib
import importlib.resources
import importlib.util
import inspect
import pickle
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernelscope.after_import import AfterImport, after_import

NAME = "kernelscope_awaited"


@pytest.fixture(autouse=True)
def own_finders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each test; what still waits for an import would also wait in the next one."""
    others = [finder for finder in sys.meta_path if type(finder) is not AfterImport]
    monkeypatch.setattr(sys, "meta_path", others)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a package that can be imported; nothing of the import survives the test."""
    home = tmp_path / "elsewhere" / NAME
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("value = 7\ndef f(): ...\n")
    monkeypatch.syspath_prepend(str(home.parent))
    yield home / "__init__.py"
    sys.modules.pop(NAME, None)


class Slotted:
    """A loader that cannot be given attributes, shared by all specs, as an editable install may have it."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        exec(self.path.read_text(), vars(module))


class Finder:
    """What an editable install puts into sys.meta_path."""

    def __init__(self, path: Path) -> None:
        self.loader = Slotted(path)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self.loader) if name == NAME else None  # type: ignore[arg-type]


def hide_from_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [p for p in sys.path if not p.endswith("elsewhere")])


def test_a_look_up_is_no_import(module: Path) -> None:
    done: list[int] = []
    after_import(NAME, lambda: done.append(sys.modules[NAME].value))
    for _ in range(3):
        assert importlib.util.find_spec(NAME) is not None
        importlib.util.find_spec("json.tool")
    assert done == []
    importlib.import_module(NAME)
    assert done == [7]
    importlib.reload(sys.modules[NAME])
    assert done == [7]


@pytest.mark.parametrize("place", ["behind", "in front"])
def test_a_module_that_another_finder_finds(
    module: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_from_path(monkeypatch)
    done: list[int] = []
    after_import(NAME, lambda: done.append(1))
    finder = Finder(module)
    sys.meta_path.insert(1 if place == "behind" else 0, finder)
    importlib.util.find_spec("a_name_that_nothing_has")  # a program looks for many modules
    loaded = importlib.import_module(NAME)
    assert done == [1]
    assert loaded.value == 7
    assert loaded.__loader__ is loaded.__spec__.loader is finder.loader


def test_a_finder_in_front_finds_it_before_anything_else_is_looked_for(
    module: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hide_from_path(monkeypatch)
    (tmp_path / "looked_for_next.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    done: list[bool] = []
    after_import(NAME, lambda: done.append("looked_for_next" in sys.modules))
    sys.meta_path.insert(0, Finder(module))
    importlib.import_module(NAME)
    importlib.util.find_spec("a_name_that_nothing_has")
    assert done == []
    importlib.import_module("looked_for_next")
    assert done == [True]
    del sys.modules["looked_for_next"]


def test_a_module_that_a_program_puts_there_is_no_import(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    after_import(NAME, lambda: done.append(1))
    monkeypatch.setitem(sys.modules, NAME, ModuleType(NAME))
    monkeypatch.delitem(sys.modules, "json.tool", raising=False)
    importlib.import_module("json.tool")
    assert done == []


def test_no_finder_is_skipped(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that knows the module comes right behind, and is no PathFinder."""
    hide_from_path(monkeypatch)
    after_import(NAME, lambda: None)
    sys.meta_path[:] = [sys.meta_path[0], Finder(module)]
    assert importlib.import_module(NAME).value == 7


def test_a_first_import_that_fails(module: Path) -> None:
    done: list[int] = []
    after_import(NAME, lambda: done.append(1))
    text = module.read_text()
    module.write_text("raise ImportError('a library is missing')")
    with pytest.raises(ImportError, match="a library is missing"):
        importlib.import_module(NAME)
    assert done == []
    module.write_text(text + "again = True\n")
    importlib.invalidate_caches()
    assert importlib.import_module(NAME).again
    assert done == [1]


def test_the_module_has_its_own_loader(module: Path) -> None:
    (module.parent / "data.txt").write_text("data")
    text = module.read_text()
    module.write_text(f"{text}seen = __spec__.loader, __loader__\n")
    after_import(NAME, lambda: None)
    loaded = importlib.import_module(NAME)
    assert {type(loader) for loader in (*loaded.seen, loaded.__loader__, loaded.__spec__.loader)} == {
        SourceFileLoader
    }
    assert inspect.getsource(loaded.f) == "def f(): ...\n"
    assert importlib.resources.files(loaded).joinpath("data.txt").read_text() == "data"


def test_the_loader_that_a_look_up_shows(module: Path) -> None:
    [own] = [PathFinder.find_spec(NAME, [str(module.parents[1])])]
    after_import(NAME, lambda: None)
    found = importlib.util.find_spec(NAME)
    assert own is not None
    assert found is not None
    loader: Any = found.loader
    assert isinstance(loader, SourceFileLoader)
    assert loader == own.loader
    assert own.loader == loader
    assert hash(loader) == hash(own.loader)
    assert loader.path == str(module)
    assert loader.get_source(NAME) == module.read_text()
    for copied in (pickle.loads(pickle.dumps(loader)), copy.copy(loader)):
        assert type(copied) is SourceFileLoader
        assert copied == own.loader


def test_a_spec_that_is_loaded_by_hand(module: Path) -> None:
    done: list[int] = []
    after_import(NAME, lambda: done.append(1))
    spec = importlib.util.find_spec(NAME)
    assert spec is not None
    assert spec.loader is not None
    beside = importlib.util.module_from_spec(spec)
    loader = spec.loader
    loader.exec_module(beside)
    assert done == []  # the program cannot import this one
    sys.modules[NAME] = again = importlib.util.module_from_spec(spec)
    loader.exec_module(again)
    assert done == [1]


@pytest.mark.parametrize("is_lazy", [True, False])
def test_a_module_whose_own_imports_come_while_it_is_loaded(
    module: Path, is_lazy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the two recipes of importlib's documentation."""
    for name in ("looked_for_before", "looked_for_within"):
        (tmp_path / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    module.write_text("import looked_for_within\nvalue = 7\n")
    done: list[int] = []
    after_import(NAME, lambda: done.append(sys.modules[NAME].value))
    spec = importlib.util.find_spec(NAME)
    assert spec is not None
    assert spec.loader is not None
    if is_lazy:
        spec.loader = importlib.util.LazyLoader(spec.loader)
    sys.modules[NAME] = loaded = importlib.util.module_from_spec(spec)
    if is_lazy:
        spec.loader.exec_module(loaded)
        importlib.import_module("looked_for_before")
        assert "looked_for_within" not in sys.modules
        assert loaded.value == 7
    else:
        spec.loader.exec_module(loaded)
    assert done == [7]
    for name in ("looked_for_before", "looked_for_within"):
        sys.modules.pop(name, None)


def test_a_finder_that_asks_all_others_as_well(module: Path) -> None:
    class Asks(Finder):
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
            others = [finder for finder in sys.meta_path if finder is not self]
            found = (finder.find_spec(name, path, target) for finder in others)
            return next((spec for spec in found if spec is not None), None)

    done: list[int] = []
    after_import(NAME, lambda: done.append(1))
    sys.meta_path.insert(1, Asks(module))  # type: ignore[arg-type]
    importlib.import_module(NAME)
    assert done == [1]


def test_two_wait_for_one_module(module: Path) -> None:
    done: list[str] = []
    after_import(NAME, lambda: done.append("recording"))
    after_import(NAME, lambda: done.append("printer"))
    assert sum(type(finder) is AfterImport for finder in sys.meta_path) == 1
    importlib.import_module(NAME)
    after_import(NAME, lambda: done.append("late"))
    assert done == ["recording", "printer", "late"]


def test_threads_look_up_and_import_at_once(module: Path) -> None:
    module.write_text("import time\ntime.sleep(0.05)\nvalue = 7\n")
    done: list[int] = []
    after_import(NAME, lambda: done.append(1))
    start, seen = threading.Barrier(8, timeout=60), []

    def work(number: int) -> None:
        start.wait()
        if number % 2:
            seen.append(importlib.util.find_spec(NAME) is not None)
        seen.append(importlib.import_module(NAME).value == 7)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 12
    assert done == [1]
