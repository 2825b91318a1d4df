"""The documents' code blocks on a GPU, through Inductor's Triton kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.support import seed_blocks
from tests.support.seed_block_texts import BLOCKS
from tests.support.seed_blocks import Given


@pytest.fixture(scope="module")
def place() -> Iterator[Given]:
    torch._dynamo.reset()
    yield seed_blocks.given("cuda", "triton")
    torch._dynamo.reset()


@pytest.mark.parametrize("name", BLOCKS)
def test_block(name: str, place: Given) -> None:
    seed_blocks.run_and_check(name, place)
