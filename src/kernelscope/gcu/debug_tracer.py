from __future__ import annotations
from dataclasses import dataclass
from typing import Any
@dataclass
class DebugTraceConfig:
    enabled: bool = False
def current_config(s: Any) -> DebugTraceConfig:
    return DebugTraceConfig(False)
class Trace:
    pass
