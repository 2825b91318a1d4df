"""docs/fingerprint.md says what the definition is."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
import torch
from tests.unit.fingerprint.references import DTYPES, ROOT, expected, random_tensor

from kernelscope.fingerprint import (
    DTYPE_CODES,
    fingerprint,
    reference_bits,
)

pytestmark = pytest.mark.usefixtures("_torch_operations_only")

DOC = (ROOT / "docs" / "fingerprint.md").read_text()


def test_fingerprint_prints_on_one_line() -> None:
    seen = fingerprint(torch.ones(3))
    assert (seen.bits, seen.norm) == (expected(torch.ones(3)), 3.0)
    assert str(seen) == f"bits={seen.bits:#018x} norm=3.0 1…1 mean 1 std 0"
    hashed = fingerprint(torch.ones(3), level="hash")
    assert (hashed.bits, hashed.stats, hashed.norm) == (seen.bits, None, None)
    assert str(hashed) == f"bits={seen.bits:#018x}"
    assert fingerprint(torch.ones(3, dtype=torch.uint8).view(torch.bits8)).norm is None
    with pytest.raises(ValueError, match=r"unknown level 'all'; use one of 'hash', 'stats'"):
        fingerprint(torch.ones(3), level="all")  # type: ignore[arg-type]


def test_the_documented_codes_are_the_codes() -> None:
    table = DOC.split("## Dtype codes")[1]
    documented = {name: int(code) for name, code in re.findall(r"^\| `(\w+)` \| (\d+) \|$", table, re.M)}
    assert documented == DTYPE_CODES
    assert len(set(DTYPE_CODES.values())) == len(DTYPE_CODES)


def test_every_plain_dtype_of_this_torch_has_a_code() -> None:
    dtypes = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    plain = {dtype for dtype in dtypes if not re.match(r"torch\.q", str(dtype))}
    assert plain == set(DTYPES)


def test_the_documented_reference_is_the_reference() -> None:
    [source] = [b for b in re.findall(r"```python\n(.*?)```", DOC, re.S) if "def reference_bits" in b]
    documented: dict[str, Any] = {}
    exec(source, documented)
    for numel in (0, 1, 7, 8, 9, 64, 65):
        data = bytes(random_tensor(torch.uint8, numel).tolist())
        for dtype, code in DTYPE_CODES.items():
            assert documented["reference_bits"](data, code) == reference_bits(data, dtype)


def test_the_documented_examples_are_right() -> None:
    examples = re.findall(r"^\| `(torch\..*)` \| `(0x[0-9a-f]{16})` \| (\S+) \|$", DOC, re.M)
    assert len(examples) >= 5
    for expression, number, total in examples:
        seen = fingerprint(eval(expression))
        assert (f"{seen.bits:#018x}", str(seen.norm)) == (number, total), expression


def test_the_definition_does_not_load_torch() -> None:
    program = "import sys, kernelscope.fingerprint.definition; sys.exit('torch' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(ROOT / "src")}, check=False
    )
    assert found.returncode == 0
