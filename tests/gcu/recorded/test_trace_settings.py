"""The settings of a trace that a program makes itself: a wrong one is refused where it is made."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kernelscope.gcu.debug_tracer import DebugTraceConfig


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"enabled": "yes"}, "enabled must be True or False, not 'yes'"),
        ({"show_dag": 2}, "show_dag must be True or False, not 2"),
        ({"max_tensor_elements": "x"}, "max_tensor_elements must be an integer, 0 or more, not 'x'"),
        ({"indent_size": -2}, "indent_size must be an integer, 0 or more, not -2"),
        ({"debug_dir": None}, "debug_dir must be a path, not None"),
    ],
)
def test_a_wrong_setting_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(sentence)}$"):
        DebugTraceConfig(**wrong)
