"""Scripts of `repro` are tried with torch alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.only_torch import OnlyTorch


@pytest.fixture(scope="session")
def only_torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnlyTorch]:
    made = OnlyTorch(tmp_path_factory.mktemp("only-torch"))
    yield made
    made.close()
