"""Reads the compiler's structured trace, the logger `torch.__trace` from which tlparse makes its pages."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from kernelscope.events import Frame
from kernelscope.probes.origins import caller_frames, frames_of_trace, is_users
from kernelscope.stages.records import Compilation, Incident

from .compile_context import CompileContext, ours

LOGGER = "torch.__trace"

# What comes before forward and backward are apart: entry of the trace to stage of the frame.
_OF_FRAME = {
    "dynamo_output_graph": ("dynamo", "python"),
    "dynamo_cpp_guards_str": ("guards", "text"),
    "before_pre_grad_graph": ("pre_grad_input", "python"),
    "after_pre_grad_graph": ("pre_grad", "python"),
    "before_joint_graph": ("joint_input", "python"),
    "aot_joint_graph": ("joint", "python"),
    "after_joint_graph": ("joint_optimized", "python"),
    "aot_forward_graph": ("aot_forward", "python"),
    "aot_backward_graph": ("aot_backward", "python"),
    "aot_inference_graph": ("aot_inference", "python"),
}
# The same of a graph that is being lowered.
_OF_GRAPH = {
    "fx_graph_runnable": ("runnable", "python"),
    "before_post_grad_graph": ("post_grad_input", "python"),
    "inductor_post_grad_graph": ("post_grad", "python"),
    "inductor_output_code": ("output_code", "python"),
}
_BREAK = re.compile(r"Graph break in user code at (?P<file>.+):(?P<line>\d+)")
_REASON = re.compile(
    r"Graph Break Reason: [^\n]*\n\s*(?P<reason>[^\n]+)(?:\n\s*Explanation: (?P<why>[^\n]+))?"
)
_PHASE = re.compile(r'"name": "(?P<name>[^"]+)",\s*"ts": (?P<ts>[\d.]+)')


class TraceReader(logging.Handler):
    """Hears what the compiler writes to its trace."""

    def __init__(self, context: CompileContext) -> None:
        super().__init__()
        self._context = context
        self._reasons: dict[str, str] = {}  # why a frame is compiled again; told before it begins
        self._broken: set[tuple[str, str, int]] = set()
        self._begun: dict[str, list[tuple[str, float]]] = {}  # by compile id: phases that are under way
        self._phases: dict[int, dict[str, float]] = {}  # by compilation: seconds of each phase
        self._listeners: dict[str, Callable[[str, dict[str, Any], str], None]] = {
            "dynamo_start": self._frame_begins,
            "recompile_reasons": self._recompiles,
            "dynamo_graph_break_reason": self._breaks,
            "compilation_metrics": self._frame_ends,
            "chromium_event": self._phase,
        }

    def emit(self, record: logging.LogRecord) -> None:
        metadata: Any = getattr(record, "metadata", None)
        if not isinstance(metadata, dict):
            return
        kind = next(iter(metadata), "")
        name = metadata["artifact"].get("name", "") if kind == "artifact" else kind
        compile_id = _compile_id(metadata)
        if not compile_id:
            return
        payload = getattr(record, "payload", None) or ""
        with ours("reading the compiler's trace"):
            listener = self._listeners.get(name)
            if listener is not None:
                listener(compile_id, metadata, payload)
            elif name in _OF_FRAME:
                stage, language = _OF_FRAME[name]
                self._context.stage(self._context.frame(compile_id), stage, language, _text(payload))
            elif name in _OF_GRAPH and self._context.graph is not None:
                stage, language = _OF_GRAPH[name]
                self._context.stage(self._context.graph, stage, language, _text(payload))

    def take_phases(self, of: Compilation) -> dict[str, float]:
        """Seconds that each phase of a compilation took, by torch's names for them."""
        return self._phases.pop(of.id, {})

    def forget(self) -> None:
        self._reasons.clear()
        self._broken.clear()
        self._begun.clear()
        self._phases.clear()

    # -- entries ---------------------------------------------------------------------------------------

    def _frame_begins(self, compile_id: str, metadata: dict[str, Any], payload: str) -> None:
        function = _function(metadata["dynamo_start"])
        # Between us and the compiler stands the logging module, which is not the user's.
        callers = [f for f in caller_frames(limit=200) if f.file != logging.__file__]
        origin = (*([function] if function else []), *callers)
        frame = self._context.begin_frame(compile_id, function.function if function else "", origin)
        reason = self._reasons.pop(compile_id, "")
        if reason:
            first, _, rest = reason.partition("\n")
            self._context.emit(Incident("recompile", frame.id, compile_id, first, origin, rest))

    def _recompiles(self, compile_id: str, metadata: dict[str, Any], payload: str) -> None:
        try:
            reasons = json.loads(payload)
        except ValueError:
            reasons = payload
        said = "\n".join(map(str, reasons)) if isinstance(reasons, list) else str(reasons)
        self._reasons[compile_id] = said.strip()

    def _breaks(self, compile_id: str, metadata: dict[str, Any], payload: str) -> None:
        place, reason = _BREAK.search(payload), _REASON.search(payload)
        said = payload.partition("\n")[0]
        if reason is not None:
            said = reason["reason"].strip() + (f" ({reason['why'].strip()})" if reason["why"] else "")
        user_code = payload.partition("User code traceback:")[2].partition("\nTraceback (most recent")[0]
        frames = frames_of_trace(user_code)
        if place is not None and (not frames or (frames[0].file, frames[0].line) != _place(place)):
            frames = (Frame(*_place(place)), *frames)
        frame = self._context.frame(compile_id)
        where = (compile_id, frames[0].file if frames else said, frames[0].line if frames else 0)
        if where in self._broken:
            return  # told again when Dynamo starts this frame over
        self._broken.add(where)
        detail = payload.partition("\nTraceback (most recent")[0]
        self._context.emit(Incident("graph-break", frame.id, compile_id, said, frames, detail))

    def _frame_ends(self, compile_id: str, metadata: dict[str, Any], payload: str) -> None:
        metrics = metadata["compilation_metrics"]
        context, frame = self._context, self._context.frame(compile_id)
        seconds = {k: v for k, v in metrics.items() if k.endswith("_s") and isinstance(v, float | int)}
        phases = self.take_phases(frame)
        times = {"phases": phases, "metrics": seconds}
        context.stage(frame, "times", "json", json.dumps(times))
        failed = metrics.get("fail_type")
        ended = context.end_frame(
            compile_id, made="failed" if failed else "compiled", duration_ns=monotonic_ns() - frame.start_ns
        )
        if failed and not context.has_failed(frame.id):
            file, line = metrics.get("fail_user_frame_filename"), metrics.get("fail_user_frame_lineno")
            origin = (Frame(str(file), int(line)), *ended.origin) if file and line else ended.origin
            reason, _, detail = str(metrics.get("fail_reason") or failed).strip().partition("\n")
            context.fail(
                Incident("failure", frame.id, compile_id, f"{failed}: {reason}", origin, detail, "", "dynamo")
            )

    def _phase(self, compile_id: str, metadata: dict[str, Any], payload: str) -> None:
        found, end = _PHASE.search(payload[:400]), payload[-300:]  # between them may be a lot
        begins = '"ph": "B"' in end
        if found is None or not (begins or '"ph": "E"' in end):
            return
        begun = self._begun.setdefault(compile_id, [])
        name, moment = found["name"], float(found["ts"]) / 1e6
        if begins:
            begun.append((name, moment))
            return
        while begun:
            last, start = begun.pop()
            if last == name:
                of = self._context.graph or self._context.frame(compile_id)
                phases = self._phases.setdefault(of.id, {})
                phases[name] = phases.get(name, 0.0) + moment - start
                return


def _compile_id(metadata: dict[str, Any]) -> str:
    """As torch writes it: "0/1", "!2/0/1" under compiled autograd."""
    frame, number = metadata.get("frame_id"), metadata.get("frame_compile_id")
    autograd = metadata.get("compiled_autograd_id")
    inside = "" if frame is None or number is None else f"{frame}/{number}"
    if autograd is None:
        return inside
    return f"!{autograd}/{inside}" if inside else f"!{autograd}"


def _function(start: Any) -> Frame | None:
    """The function that is compiled: the innermost entry of the stack that Dynamo tells."""
    from torch._logging.structured import INTERN_TABLE

    stack = start.get("stack") if isinstance(start, dict) else None
    if not stack:
        return None
    last = stack[-1]
    names = {number: name for name, number in INTERN_TABLE.items()}
    file = names.get(last.get("filename"), "")
    return Frame(file, int(last.get("line", 0)), str(last.get("name", ""))) if is_users(file) else None


def _place(found: re.Match[str]) -> tuple[str, int]:
    return found["file"], int(found["line"])


def _text(payload: Any) -> str:
    return payload if isinstance(payload, str) else str(payload)
