"""The Python blocks of the pages about integrations, with the real packages."""

from __future__ import annotations

import sys
from inspect import signature
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tests.support.docs_blocks import DOCS, INTEGRATIONS, all_blocks

PRELUDE = """
import torch, kernelscope
from tests.integration.integrations import tiny_training
torch.manual_seed(0)
net, data = tiny_training.Net(), tiny_training.samples()
module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 8))
compiled, x = torch.compile(module), torch.randn(4, 16)
model, loader = net, torch.utils.data.DataLoader(data[:40], batch_size=4)
optimizer = torch.optim.AdamW(net.parameters())
lightning_module = tiny_training.lightning_module() if {wants_lightning} else None
"""


@pytest.mark.parametrize("page", sorted(INTEGRATIONS))
def test_python_blocks(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    for package in INTEGRATIONS[page]:
        pytest.importorskip(package, reason=f"needs {package}: make test-integrations")
    monkeypatch.chdir(tmp_path)
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    exec(PRELUDE.format(wants_lightning="lightning" in INTEGRATIONS[page]), vars(module))
    blocks = [block for block in all_blocks(page) if block.language == "python"]
    assert blocks
    for block in blocks:
        exec(compile("\n" * (block.line - 1) + block.text, str(DOCS / page), "exec"), vars(module))
    for name, value in list(vars(module).items()):
        if name.startswith("test_"):
            value(**{each: request.getfixturevalue(each) for each in signature(value).parameters})
    torch._dynamo.reset()
