"""The documents' code blocks through Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch._inductor.config
from tests.support import seed_blocks
from tests.support.seed_blocks import BLOCKS, Given


@pytest.fixture(scope="module")
def place() -> Iterator[Given]:
    torch._dynamo.reset()
    with torch._inductor.config.patch(cpu_backend="triton"):
        yield seed_blocks.given("cpu", "triton")
    torch._dynamo.reset()


@pytest.mark.parametrize("name", BLOCKS)
def test_block(name: str, place: Given) -> None:
    seed_blocks.run_and_check(name, place)
