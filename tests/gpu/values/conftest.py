"""Each test begins without compiled code."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def anew() -> None:
    torch._dynamo.reset()
