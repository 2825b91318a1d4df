"""The backend is hooked when it is loaded, and loaded when it is used."""

from __future__ import annotations

from tests.support.warm_python import WarmPython

CODE = """
import sys
import torch
import kernelscope

with kernelscope.record():
    pass
with kernelscope.record() as run:
    assert "kernelscope.gcu.execution.executor" not in sys.modules, "loaded for nothing"
    torch.compile(lambda x: x.sin() + 1, backend="gcu")(torch.randn(8, 8))
assert [call.kind for call in run.calls] == ["gcu"], [call.kind for call in run.calls]
from kernelscope.gcu.execution.executor import Launch
assert Launch.run.__qualname__ == "Launch.run", "a patch is left"
with kernelscope.record() as run:
    torch.compile(lambda x: x.sin() + 1, backend="gcu")(torch.randn(8, 8))
assert [call.kind for call in run.calls] == ["gcu"]
"""


def test_a_recording_that_is_older_than_the_backend(warm_python: WarmPython) -> None:
    done = warm_python.run("-c", CODE)
    assert done.returncode == 0, done.stderr
