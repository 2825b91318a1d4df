"""`from conductor.config.debug_tracer import …`: the tracer of the gcu backend."""

from kernelscope.gcu.debug_tracer import DebugTraceConfig as DebugTraceConfig
from kernelscope.gcu.debug_tracer import disable_debug_tracing as disable_debug_tracing
from kernelscope.gcu.debug_tracer import enable_debug_tracing as enable_debug_tracing

__all__ = ["DebugTraceConfig", "disable_debug_tracing", "enable_debug_tracing"]
