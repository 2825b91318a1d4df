"""How a diagnosis goes: on a terminal one line that counts seconds, elsewhere a line for each step."""

from __future__ import annotations

import threading
import time
from typing import TextIO

from kernelscope.text.terminal_size import size_of
from kernelscope.text.visible import control, one_line
from kernelscope.text.widths import shortened
from kernelscope.trials.progress_line import ProgressLine

_CLEAR = "\r\x1b[K"
_REFRESH = 0.5


class Progress:
    """Writes to one stream, whatever the program's own output goes to."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._is_live = stream, stream.isatty()
        self._text, self._began = "", 0.0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.counts = True  # False while the program itself writes to the terminal

    def begin(self, text: str) -> None:
        self._text, self._began = text, time.monotonic()
        if not self._is_live or not self.counts:
            self._print(f"kernelscope: {text} …")
            return
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._count, args=(self._ended,), daemon=True)
        self._thread.start()

    def tell(self, text: str) -> None:
        """What the step is at; elsewhere than on a terminal each trial is a line."""
        self._text = text
        if not self._is_live:
            self._print(f"kernelscope:   {text}")

    def end(self, text: str) -> None:
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._thread = None
            control(self._stream, _CLEAR)
        self._print(f"kernelscope: {text}")

    def _count(self, ended: threading.Event) -> None:
        while not ended.wait(_REFRESH):
            seconds = time.monotonic() - self._began
            line = shortened(
                f"kernelscope: {seconds:.0f} s  {one_line(self._text)}", size_of(self._stream)[0] - 1
            )
            with self._lock:
                control(self._stream, _CLEAR + line)
                self._stream.flush()

    def _print(self, text: str) -> None:
        if self._is_live:
            text = shortened(one_line(text), size_of(self._stream)[0] - 1)
        with self._lock:
            print(one_line(text), file=self._stream, flush=True)


class TrialsLine(ProgressLine):
    """The progress of a bisection, as part of a larger one."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress

    def show(self, text: str, seconds_left: float = 0.0) -> None:
        self.trials += 1
        left = f", about {seconds_left:.0f} s left" if seconds_left >= 1 else ""
        self._progress.tell(f"bisect: {text}{left}")

    def say(self, text: str) -> None:
        self._progress.tell(f"bisect: {text}")

    def end(self) -> None:
        pass
