"""What the backend writes uses the public language only, and prints the sections of the guide."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from kernelscope.gcu.choreo.device_functions import PURE, device_part, with_device_calls
from kernelscope.gcu.debug_tracer import follow_environment
from kernelscope.gcu.lowering.operator_texts import POINTWISE

PUBLIC = {
    "acos", "asin", "atan", "atan2", "ceil", "cos", "cosh", "exp", "expm1", "floor", "gelu", "isfinite",
    "log", "log1p", "pow", "rsqrt", "sigmoid", "sin", "sinh", "softplus", "sqrt", "tan", "tanh", "alignup",
    "aligndown",
}  # fmt: skip


def spoken(text: str) -> set[str]:
    """The builtins that a program calls, but for casts, which are written __to<f32>(x)."""
    return set(re.findall(r"\b__(?!co|cpp)([a-z]\w*)\(", text))


def test_every_operator_is_written_in_public_words() -> None:
    for name, rule in POINTWISE.items():
        for body in (rule.body, rule.boolean):
            found = with_device_calls(body)
            assert {w for w in spoken(found) if not w.startswith("cast_")} <= PUBLIC, (name, found)
            for called in re.findall(r"call (\w+)\(", found):
                assert called in PURE
                assert f"{called}(" in device_part(found)


def test_nothing_is_added_where_nothing_is_missing() -> None:
    assert device_part(with_device_calls("__exp($0) + __cast_f32($1)")) == ""


def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = (F.gelu(x * w) + x.erf()).clamp(-0.5, 2.0)
    return torch.where(y.isnan(), y.abs(), y.round() - y).softmax(-1).amax(-1)


def test_the_device_part_and_the_steps_of_the_guide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CONDUCTOR_DEBUG", "1")
    monkeypatch.setenv("CONDUCTOR_DEBUG_DIR", str(tmp_path))
    follow_environment()
    x, w = torch.randn(6, 40), torch.randn(40)
    result = torch.compile(model, backend="gcu")(x, w)
    torch.testing.assert_close(result, model(x, w))
    out = capsys.readouterr().out
    (program,) = tmp_path.glob("kernel_*.co")
    text = program.read_text()
    assert spoken(text.partition("__co__ ")[2]) <= PUBLIC
    assert "__cast_" not in text
    section = out.partition("--- Device Kernel Code ---")[2].partition("===")[0]
    assert "__cok__ {" in section
    assert "__co_device__ inline float dev_erf(float x) {" in section
    wrapper = out.partition("--- Critical Host Wrapper Code ---")[2]
    steps = [
        "// Convert PyTorch tensors to GCU buffers", "tensor_to_gcu_buffer(", "allocate_buffer<",
        "// Launch kernel", "// Convert result back to PyTorch tensor", "gcu_buffer_to_tensor(",
    ]  # fmt: skip
    places = [wrapper.index(step) for step in steps]
    assert places == sorted(places)


def test_the_imports_of_the_guide() -> None:
    from conductor.config.debug_tracer import DebugTraceConfig, enable_debug_tracing
    from kernelscope.gcu import debug_tracer

    assert DebugTraceConfig is debug_tracer.DebugTraceConfig
    assert enable_debug_tracing is debug_tracer.enable_debug_tracing
    assert DebugTraceConfig(enabled=True, max_tensor_elements=50, indent_size=2).max_tensor_elements == 50
