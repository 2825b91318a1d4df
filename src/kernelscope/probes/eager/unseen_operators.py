"""Operators on threads that have no dispatch mode of ours: counted, and reported as a finding.

Such a thread ran already when the recording opened, or belongs to a library. Torch calls a function of C++
before each operator, on every thread; it counts those of threads without a mode and calls no Python.
"""

from __future__ import annotations

import ctypes
import threading
from collections import Counter
from collections.abc import Container
from concurrent.futures import thread as pools
from pathlib import Path

import torch

from kernelscope.events import Finding
from kernelscope.native.compiler import NativeError
from kernelscope.native.load import OnDemand
from kernelscope.probes.operators import is_birth, is_view
from kernelscope.text.amounts import counted

_TORCH = Path(torch.__file__).parent
_AT_FIRST = 64 << 10  # bytes
_NAMED = 3  # operators of each thread, at most
_THREADS = 5
_OF_PROCESS_GROUPS = ("pt_gloo", "pt_nccl", "pt_mpi", "pt_ucc")  # what these run belongs to a collective
_OWN = "kernelscope"
_KIND = "unseen-operators"
_ADVICE = (
    "To record them, open the recording before the thread is started (`kernelscope run` does), "
    "or run the work in a ThreadPoolExecutor"
)

Counts = Counter[tuple[int, str, str]]  # by thread, its native name, and operator


class ThreadWatch:
    """The library that counts."""

    NAME = "thread-watch"
    SOURCE = Path(__file__).with_name("thread_watch.cpp")
    FLAGS: tuple[str, ...] = (
        "-std=c++20", "-O1", "-w", f"-I{_TORCH / 'include'}", f"-L{_TORCH / 'lib'}",
        "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10",
        f'-DKERNELSCOPE_TORCH="{torch.__version__}"',
    )  # fmt: skip
    VARIANTS = ((),)  # torch's headers take seconds each time

    def __init__(self, library: Path) -> None:
        try:
            self._library = ctypes.PyDLL(str(library))
        except OSError as error:
            raise NativeError(f"{library} does not load: {error}") from error
        self._library.kernelscope_watch_read.restype = ctypes.c_uint64
        self._library.kernelscope_watch_read.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
        self.start = self._library.kernelscope_watch_start
        self.stop = self._library.kernelscope_watch_stop
        self.forget = self._library.kernelscope_watch_forget
        self.compiled = self._library.kernelscope_watch_compiled
        self.tell = self._library.kernelscope_watch_tell
        self.tell.argtypes = [ctypes.c_void_p]

    def computes(self) -> bool:
        """Whether it counts an operator of a thread without a mode."""
        zeros = torch.zeros(3)
        self.start()
        try:
            thread = threading.Thread(target=zeros.cumsum, args=(0,), name=_OWN)
            thread.start()
            thread.join()
            return any(operator == "aten::cumsum" for _, _, operator in self.counts())
        finally:
            self.stop()

    def counts(self) -> Counts:
        text = ctypes.create_string_buffer(_AT_FIRST)
        while (size := self._library.kernelscope_watch_read(text, len(text))) > len(text):
            text = ctypes.create_string_buffer(2 * size)
        found: Counts = Counter()
        for line in text.raw[:size].decode(errors="replace").splitlines():
            thread, name, operator, count = line.split("\t")
            found[int(thread), name, operator] += int(count)
        return found


LIBRARY = OnDemand(ThreadWatch)


class OperatorWatch:
    """The library while operators are recorded, or what can be said without it."""

    def __init__(self) -> None:
        # Names of threads that ran already. A later thread may get the number of one that has ended.
        self._threads: dict[int | None, str] = {}
        self._observed: set[int] = set()  # threads that have, or had, a mode of ours

    def start(self) -> None:
        self._threads = {t.ident: t.name for t in threading.enumerate() if _runs_unseen(t)}
        self._observed = set()
        library = LIBRARY.get()
        if library is not None:
            library.start()

    def observed(self) -> None:
        """This thread gets a mode of ours."""
        self._observed.add(threading.get_ident())

    def stop(self) -> None:
        if LIBRARY.loaded is not None:
            LIBRARY.loaded.stop()

    def compiled(self) -> None:
        """Something was compiled on this thread; until then, modes of the compiler pass for ours."""
        if LIBRARY.loaded is not None and threading.get_ident() not in self._observed:
            LIBRARY.loaded.compiled()

    def forget(self) -> None:
        if LIBRARY.loaded is not None:
            LIBRARY.loaded.forget()

    def tell(self, address: int | None) -> None:
        """In a forked child: a byte for its first operator; None: it records for itself."""
        if LIBRARY.loaded is not None:
            LIBRARY.loaded.tell(address)

    def counts(self) -> Counts:
        return LIBRARY.loaded.counts() if LIBRARY.loaded is not None else Counter()

    def findings(self, before: Counts, with_graphs: Container[int]) -> list[Finding]:
        """What was not seen since `before`; `with_graphs` are threads that ran compiled graphs too."""
        if LIBRARY.loaded is None:
            return self._not_counted()
        by_thread: dict[tuple[int, str], Counter[str]] = {}
        for (thread, name, operator), count in (self.counts() - before).items():
            if _counts(name, operator):
                by_thread.setdefault((thread, name), Counter())[operator] += count
        known = {t.ident: t.name for t in threading.enumerate()} | self._threads
        texts = [
            _about(known.get(thread, name), operators, thread in with_graphs)
            for (thread, name), operators in by_thread.items()
            if not known.get(thread, "").startswith(_OWN)
        ]
        if not texts:
            return []
        rest = [f"and {counted(len(texts) - _THREADS, 'more thread')}"] if len(texts) > _THREADS else []
        return [
            Finding(
                _KIND,
                "eager operators on threads that kernelscope cannot observe are not recorded: "
                f"{'; '.join(texts[:_THREADS] + rest)}. {_ADVICE}",
            )
        ]

    def _not_counted(self) -> list[Finding]:
        if not self._threads:
            return []
        more = " …" if len(self._threads) > _THREADS else ""
        names = ", ".join(list(self._threads.values())[:_THREADS]) + more
        return [
            Finding(
                _KIND,
                f"eager operators on threads that ran before the recording opened ({names}) are not "
                f"recorded, and could not be counted: {LIBRARY.unavailable()}. {_ADVICE}",
            )
        ]


def _runs_unseen(thread: threading.Thread) -> bool:
    is_worker = getattr(thread, "_target", None) is pools._worker
    return thread is not threading.current_thread() and not is_worker and not thread.name.startswith(_OWN)


def _counts(thread: str, operator: str) -> bool:
    """Whether it launches something, and is not part of a recorded collective."""
    namespace, separator, name = operator.partition("::")
    if not separator:  # a range that is noted the way operators are, such as Dynamo's
        return False
    packet = getattr(getattr(torch.ops, namespace, None), name, None) if namespace == "aten" else None
    if packet is not None:
        overloads = [getattr(packet, each) for each in packet.overloads()]
        if is_view(packet) or all(map(is_birth, overloads)):
            return False
    return not thread.startswith(_OF_PROCESS_GROUPS)


def _about(thread: str, operators: Counter[str], has_graphs: bool) -> str:
    most = ", ".join(f"{name} {count}×" for name, count in operators.most_common(_NAMED))
    more = " …" if len(operators) > _NAMED else ""
    inside = ", some of them inside compiled graphs, which are recorded" if has_graphs else ""
    return f"{operators.total()} on thread {thread} ({most}{more}){inside}"


WATCH = OperatorWatch()
