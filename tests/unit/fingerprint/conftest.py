"""How torch's operations are made to compute fingerprints of small tensors."""

from __future__ import annotations

import pytest
from tests.unit.fingerprint.references import SMALL_CHUNK

from kernelscope.fingerprint import torch_bits as hashes


@pytest.fixture
def _torch_operations_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small CPU tensors would otherwise be hashed by the reference, and prove nothing."""
    monkeypatch.setattr(hashes, "CPU_SMALL_BYTES", 0)


@pytest.fixture(params=[SMALL_CHUNK, hashes.CPU_CHUNK_BYTES], ids=["many-chunks", "one-chunk"])
def _chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "CPU_CHUNK_BYTES", request.param)
