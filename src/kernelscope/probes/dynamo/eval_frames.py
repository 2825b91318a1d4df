"""What became of each frame that Dynamo looked at: why a program may run no compiled code.

The stacks that Dynamo shows to users leave out files with "eval_frame" in their name, so also this one.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kernelscope.probes.eager.unseen_operators import WATCH
from kernelscope.probes.own_work import unseen
from kernelscope.probes.patching import Patch, PatchSet

from .uncompiled_functions import explanation

_LOOKS = "torch._dynamo.convert_frame:CatchErrorsWrapper.__call__"
_GIVES_UP = "torch._dynamo.convert_frame:format_error_msg"  # called for each error that it does not raise
_STANCE = "torch._dynamo.decorators:_set_stance"
_TURNED_OFF = "torch._dynamo.eval_frame:_NullDecorator.__call__"  # what torch.compile then is
# In the message of a graph break that is not caused by what is written in the function: Dynamo's last look
# at it, or a transform of torch.func in eager that calls it.
_FROM_OUTSIDE = ("recompile limit", "Unsupported functorch tracing attempt")
_UNDER_A_MODE = "torch dispatch mode"  # in the reason why a function is skipped where it is called under one
_TORCH = str(Path(torch.__file__).parent)
_MOST = 1000  # frames that are remembered; a program that compiles so many has no need to ask


@dataclass(frozen=True, slots=True)
class TriedFrame:
    """One look of Dynamo at a function."""

    function: str
    file: str
    line: int
    backend: str
    graphs: int = 0  # handed to the backend
    compile_id: str = ""
    skipped: str = ""  # why, in Dynamo's words
    failed: str = ""  # the exception that reached the program
    breaks: tuple[str, ...] = ()  # first lines of Dynamo's reasons
    gave_up: str = ""  # the error that made Dynamo leave the function to Python, and that it did not raise
    is_left_out: bool = False  # by an error, a limit or where it is called, not by what is written in it

    @property
    def is_of_torch(self) -> bool:
        return self.file.startswith(_TORCH)

    @property
    def place(self) -> str:
        file = f"torch{self.file.removeprefix(_TORCH)}" if self.is_of_torch else self.file
        return f"{self.function} ({file}:{self.line})"


@dataclass(frozen=True, slots=True)
class EarlierFrames:
    """What Dynamo did in this process so far."""

    tried: int  # functions that it looked at
    compiled: int
    reasons: tuple[str, ...] = ()  # why it left others to Python, as far as it counts that

    @staticmethod
    def so_far() -> EarlierFrames:
        counters: Any = torch._dynamo.utils.counters
        frames = counters.get("frames", {})
        told = [*counters.get("unimplemented", {}), *counters.get("graph_break", {})]
        return EarlierFrames(
            int(frames.get("total", 0)),
            int(frames.get("ok", 0)),
            tuple(dict.fromkeys(text.strip().partition("\n")[0] for text in told)),
        )


class TriedFrames(PatchSet):
    """The probe; Dynamo asks once for each code object and set of guards, so that it costs nothing later."""

    def __init__(self) -> None:
        super().__init__(
            Patch(_LOOKS, self._around),
            Patch(_GIVES_UP, self._around_error),
            Patch(_STANCE, self._around_stance),
            Patch(_TURNED_OFF, self._around_nothing),
        )
        self.frames: list[TriedFrame] = []
        self.stances: list[str] = []  # other than the default one, as the program set them
        self.turned_off: list[str] = []  # functions that torch.compile returned as they were
        self._errors: dict[Any, BaseException] = {}  # by code object: what Dynamo has just suppressed

    def install(self) -> None:
        self.frames, self.stances, self.turned_off, self._errors = [], [], [], {}
        super().install()

    def mark(self) -> tuple[int, int, int]:
        return len(self.frames), len(self.stances), len(self.turned_off)

    def since(self, mark: tuple[int, int, int]) -> tuple[list[TriedFrame], list[str], list[str]]:
        """Frames, stances and functions that were left as they were, since `mark` was called."""
        frames, stances, off = mark
        return self.frames[frames:], self.stances[stances:], self.turned_off[off:]

    def _around_error(self, original: Any) -> Any:
        @functools.wraps(original)
        def message(error: BaseException, code: Any, *args: Any, **kwargs: Any) -> Any:
            self._errors[code] = error
            return original(error, code, *args, **kwargs)

        return message

    def _around_stance(self, original: Any) -> Any:
        @functools.wraps(original)
        def set_stance(stance: Any) -> Any:
            before = original(stance)
            if stance.stance != "default" and len(self.stances) < _MOST:
                self.stances.append(stance.stance)
            return before

        return set_stance

    def _around_nothing(self, original: Any) -> Any:
        @functools.wraps(original)
        def returned_as_it_was(decorator: Any, function: Any) -> Any:
            if len(self.turned_off) < _MOST:
                code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
                name = getattr(function, "__qualname__", type(function).__qualname__)
                at = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
                self.turned_off.append(f"{name}{at}")
            return original(decorator, function)

        return returned_as_it_was

    def _around(self, original: Any) -> Any:
        @functools.wraps(original)
        def look(wrapper: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
            before = _counts()
            try:
                result = original(wrapper, frame, *args, **kwargs)
            except BaseException as error:
                self._note(wrapper, frame, before, None, error)
                raise
            finally:
                WATCH.compiled()
            self._note(wrapper, frame, before, result, None)
            return result

        return look

    def _note(self, wrapper: Any, frame: Any, before: Any, result: Any, error: BaseException | None) -> None:
        suppressed = self._errors.pop(frame.f_code, None)
        if len(self.frames) < _MOST:
            try:
                tried = unseen(_tried, wrapper, frame.f_code, before, result, error)
                self.frames.append(tried if suppressed is None else _given_up(tried, suppressed))
            except Exception as fault:  # it must not reach the program; the frame is then known by name
                code = frame.f_code
                told = f"kernelscope could not read what Dynamo reported about it: {fault!r}"
                self.frames.append(
                    TriedFrame(code.co_name, code.co_filename, code.co_firstlineno, "", skipped=told)
                )


def _tried(wrapper: Any, code: Any, before: Any, result: Any, error: BaseException | None) -> TriedFrame:
    graphs, breaks = _counts()
    reasons = tuple(_told(text) for text, count in breaks.items() if count > before[1].get(text, 0))
    failed = f"{type(error).__name__}: {_first_lines(error)}" if error is not None else ""
    is_skipped = error is None and getattr(result, "guarded_code", None) is None
    told = str(getattr(result, "skip_reason", None) or "") if is_skipped else ""
    is_under_a_mode = _UNDER_A_MODE in told
    return TriedFrame(
        code.co_name,
        code.co_filename,
        code.co_firstlineno,
        _backend(wrapper),
        graphs=graphs - before[0],
        compile_id=str(getattr(getattr(result, "guarded_code", None), "compile_id", "")),
        skipped=_skipped(code, result) if is_skipped else "",
        failed=failed,
        breaks=reasons,
        gave_up=told if is_under_a_mode else "",
        is_left_out=is_under_a_mode,
    )


def _given_up(tried: TriedFrame, error: BaseException) -> TriedFrame:
    is_break = isinstance(error, torch._dynamo.exc.Unsupported | torch._dynamo.exc.UserError)
    text = str(error).strip() or type(error).__name__
    told = _told(text) if is_break else f"{type(error).__name__}: {_first_lines(text)}"
    is_left_out = not is_break or any(words in text.splitlines()[0] for words in _FROM_OUTSIDE)
    return replace(tried, gave_up=told, is_left_out=is_left_out)


def _told(reason: str) -> str:
    """Dynamo's name for a graph break, and its explanation."""
    name, why = reason.strip().splitlines()[0], explanation(reason)
    return f"{name} ({why})" if why else name


def _first_lines(text: object) -> str:
    return " ".join(" ".join(str(text).splitlines()[:2]).split())


def _counts() -> tuple[int, dict[str, int]]:
    counters: Any = torch._dynamo.utils.counters
    return counters.get("stats", {}).get("unique_graphs", 0), dict(counters.get("graph_break", {}))


def current_stance() -> str:
    """What compiled functions do now: "default", "force_eager" or another of torch's names."""
    return str(torch._dynamo.eval_frame._stance.stance)


def _skipped(code: Any, result: Any) -> str:
    """Newer versions of torch say it; in others it is looked up as Dynamo did."""
    told = getattr(result, "skip_reason", None)
    if torch._dynamo.config.disable:
        return "torch._dynamo.config.disable is set"
    listed = torch._dynamo.trace_rules.check_verbose(code, is_inlined_call=False)
    if listed.skipped:
        return f"it is on Dynamo's list of functions that are not traced ({listed.reason})"
    return str(told).splitlines()[0] if told else "Dynamo found nothing in it to compile"


def _backend(wrapper: Any) -> str:
    """The name that was given to torch.compile, at the end of Dynamo's chain of wrappers."""
    inner, name = wrapper, ""
    while inner is not None:
        name = getattr(inner, "_compiler_name", None) or getattr(inner, "compiler_name", None) or name
        inner, last = getattr(inner, "_torchdynamo_orig_backend", None), inner
    return str(name or getattr(last, "__name__", type(last).__name__))
