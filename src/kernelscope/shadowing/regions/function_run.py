"""The user's function, run once more without Dynamo while its compiled frame waits.

Nothing of the program is copied but the tensors that the compiled code was given, and those only if the
function writes to some: wherever it hands one of them to torch, its copy is used. Objects are not changed,
because Dynamo knows which functions change some, and those are not run again.
"""

from __future__ import annotations

import contextlib
import io
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from kernelscope.shadowing.generator_state import untouched_random_numbers

from .copies import with_memory
from .eager_run import one_thread
from .modes.operator_modes import Noisy, Notes, WritesToInput
from .modes.wide_mode import Wide

_T = TypeVar("_T")

_TORCH = str(Path(torch.__file__).parent)
_QUESTIONS = ("is_compiling", "is_dynamo_compiling")
_GRAD = torch.Tensor.grad.__get__  # type: ignore[union-attr]
_ONE_AT_A_TIME = threading.RLock()  # what it puts in place of torch's and Python's is there for all threads
_VARARGS, _VARKEYWORDS = 0x04, 0x08  # flags of a code object
_DTYPE = torch.Tensor.dtype.__get__  # type: ignore[attr-defined]


class Substituted(TorchFunctionMode):
    """Torch sees copies in place of the originals, and the function the originals alone."""

    def __init__(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], wide: Wide | None) -> None:
        super().__init__()
        self._copies = {id(original): copy for original, copy in pairs}
        self._originals = {id(copy): original for original, copy in pairs}
        self._wide = wide

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._wide is not None and func == _DTYPE:  # a program may look at it
            return self._wide.dtype_of(self.copy_of(args[0]))
        if func == _GRAD:  # copies have none; it is one of the tensors that were given itself
            return func(*args)
        args, kwargs = replaced((tuple(args), dict(kwargs or {})), self.copy_of)
        return replaced(func(*args, **kwargs), self._original_of)

    def _original_of(self, value: Any) -> Any:
        return self._originals.get(id(value), value)

    def copy_of(self, value: Any) -> Any:
        return self._copies.get(id(value), value)


class UserFunction:
    """A function and what its frame was called with."""

    def __init__(self, code: CodeType, space: dict[str, Any], frame: FrameType, given: Sequence[Any]) -> None:
        """`given`: the tensors that its compiled code was called with."""
        values = dict(frame.f_locals)
        cells = tuple(CellType(values[n]) if n in values else CellType() for n in code.co_freevars)
        self._function = FunctionType(code, space, code.co_name, None, cells)
        self._args, self._kwargs = _arguments(code, values)
        self._given = list(given)
        self.writes = False  # to what it was given
        self.asks = False  # whether it is being compiled: it may do something else then

    def why_not(self) -> str:
        """Why it cannot be run again."""
        values = [*self._args, *self._kwargs.values()]
        if any(hasattr(value, "__next__") for value in values):
            return "an argument is an iterator, which can be used only once"
        return ""

    def run(self, copies: list[Any]) -> Any:
        """On copies of `given`; as it is, as long as it writes to none of them."""
        with listening() as asked:
            try:
                return self._run(copies)
            finally:
                self.asks |= bool(asked)

    def _run(self, copies: list[Any]) -> Any:
        mode = _computing_mode()
        if isinstance(mode, Notes) and not isinstance(mode, Noisy) and not self.writes:
            with suppress(WritesToInput):
                returned = self._run_as_it_is(mode)
                if not mode.is_refused:  # the function may have caught it
                    return returned
            self.writes, mode.is_refused = True, False
        pairs = zip(self._given, copies, strict=False)
        table = [(original, copy) for original, copy in pairs if isinstance(original, torch.Tensor)]
        wide = mode if isinstance(mode, Wide) else None
        with silent(), torch.compiler.set_stance("force_eager"), Substituted(table, wide) as substituted:
            returned = self._function(*self._args, **self._kwargs)
        return replaced(returned, substituted.copy_of)

    def _run_as_it_is(self, mode: Notes) -> Any:
        mode.protected = frozenset(address for value in self._given for address in _memories(value))
        try:
            with silent(), torch.compiler.set_stance("force_eager"):
                return self._function(*self._args, **self._kwargs)
        finally:
            mode.protected = frozenset()


@contextmanager
def listening() -> Iterator[list[str]]:
    """Code of the program runs: where it, rather than torch itself, asks whether it is being compiled."""
    originals = {name: getattr(torch.compiler, name) for name in _QUESTIONS}
    asked: list[str] = []

    def noticed(original: Callable[[], bool]) -> Callable[[], bool]:
        def ask() -> bool:
            caller: FrameType | None = sys._getframe(1)
            while caller is not None and caller.f_code.co_name in _QUESTIONS:  # older names of the same
                caller = caller.f_back
            if caller is not None and _is_of_program(caller.f_code.co_filename):
                asked.append(caller.f_code.co_name)
            return original()

        return ask

    with _ONE_AT_A_TIME, _untouched_python_random():
        for name, original in originals.items():
            setattr(torch.compiler, name, noticed(original))
        try:
            yield asked
        finally:
            for name, original in originals.items():
                setattr(torch.compiler, name, original)


def uncompiled_backward(take: Callable[[], _T]) -> tuple[_T, bool]:
    """The gradients that it takes, and whether their code asks if it is being compiled."""
    with listening() as asked, silent(), one_thread(), untouched_random_numbers():
        return take(), bool(asked)


def _computing_mode() -> Notes | Wide | None:
    """Of the modes in force the one that computes; one that draws random numbers may be above it."""
    modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    return next((mode for mode in reversed(modes) if isinstance(mode, Notes | Wide)), None)


def replaced(value: Any, by: Callable[[Any], Any]) -> Any:
    """Other tensors in it; anything without tensors stays the same object."""
    if isinstance(value, torch.Tensor):
        return by(value)
    if isinstance(value, dict) and type(value) is dict:
        new = {key: replaced(part, by) for key, part in value.items()}
        return new if any(new[key] is not part for key, part in value.items()) else value
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        parts = [replaced(part, by) for part in value]
        if all(part is old for part, old in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _is_of_program(file: str) -> bool:
    """Torch's optimizers count as such: compiled, they compute with tensors instead of numbers."""
    return not file.startswith(_TORCH) or file.startswith(str(Path(_TORCH, "optim")))


def frame_of(code: CodeType) -> FrameType | None:
    """The innermost frame that runs the compiled form of this code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found = frame.f_code
        if (found.co_filename, found.co_name, found.co_firstlineno) == (
            code.co_filename, code.co_name, code.co_firstlineno,
        ):  # fmt: skip
            return frame
        frame = frame.f_back
    return None


def when_returned(frame: FrameType, then: Callable[[Any], None]) -> bool:
    """Call `then` with what this frame returns, right when it does; `then` must not raise.

    Not if a profiler is at work: there can be only one.
    """
    if sys.getprofile() is not None:
        return False

    is_waiting = True

    def profile(current: FrameType, event: str, value: Any) -> None:
        nonlocal is_waiting
        if is_waiting and current is frame and event == "return":
            is_waiting = False
            _set_profile(None)
            then(value)

    return _set_profile(profile)


def _set_profile(function: Callable[[FrameType, str, Any], None] | None) -> bool:
    """Python refuses while another thread is at it, which takes a moment."""
    for _ in range(1000):
        try:
            sys.setprofile(function)
        except RuntimeError:
            time.sleep(0.001)
        else:
            return True
    return False


@contextmanager
def silent() -> Iterator[None]:
    """What it prints was printed before."""
    out, err = _Muted(sys.stdout), _Muted(sys.stderr)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield


class _Muted(io.TextIOBase):
    """A stream for all threads but this one."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._thread = stream, threading.get_ident()

    def write(self, text: str) -> int:
        if self._stream is None or threading.get_ident() == self._thread:
            return len(text)
        return int(self._stream.write(text) or 0)

    def flush(self) -> None:
        if self._stream is not None:
            self._stream.flush()


@contextmanager
def _untouched_python_random() -> Iterator[None]:
    """The generators of Python and NumPy: Dynamo may trace a draw to torch's."""
    numpy: Any = sys.modules.get("numpy")
    python, array = random.getstate(), numpy.random.get_state() if numpy is not None else None
    try:
        yield
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.random.set_state(array)


def _memories(value: Any) -> Iterator[int]:
    """Where a tensor lies, or the tensors of which a subclass consists."""
    for tensor in with_memory(value):
        if tensor.layout == torch.strided and tensor.numel():
            yield tensor.untyped_storage().data_ptr()


def _arguments(code: CodeType, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    names = iter(code.co_varnames)
    args = [values[next(names)] for _ in range(code.co_argcount)]
    keywords = [next(names) for _ in range(code.co_kwonlyargcount)]
    if code.co_flags & _VARARGS:
        args += values[next(names)]
    kwargs = {name: values[name] for name in keywords}
    if code.co_flags & _VARKEYWORDS:
        kwargs |= values[next(names)]
    return args, kwargs
