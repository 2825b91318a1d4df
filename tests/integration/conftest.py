"""Scripts of `repro` are tried with a C++ compiler that builds nothing twice, and with torch alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.compile_once import compiler_that_builds_once
from tests.integration.only_torch import OnlyTorch


@pytest.fixture(scope="session")
def compiler_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiler_that_builds_once(tmp_path_factory.mktemp("compiler"))


@contextmanager
def first_in_path(folder: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        yield


@pytest.fixture(scope="module")
def compile_once(compiler_folder: Path) -> Iterator[None]:
    """For the tests of one file, which ask for it."""
    with first_in_path(compiler_folder):
        yield


@pytest.fixture(scope="session")
def only_torch(tmp_path_factory: pytest.TempPathFactory, compiler_folder: Path) -> Iterator[OnlyTorch]:
    with first_in_path(compiler_folder):
        made = OnlyTorch(tmp_path_factory.mktemp("only-torch"))
    yield made
    made.close()
