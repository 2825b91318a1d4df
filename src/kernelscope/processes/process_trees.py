"""Processes that were started, and all that those have started: waited for, and ended together.

The number of a process that has been waited for may belong to another one at once. So a signal goes to a
child of this process only as long as nothing has waited for it, and to any other process through a handle.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


def has_ended(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it does within that time; known at once when it does."""
    if child.poll() is not None:
        return True
    handle = handle_of(child.pid)
    if handle < 0:
        with suppress(subprocess.TimeoutExpired):
            child.wait(seconds)
        return child.returncode is not None
    try:
        _is_pending(handle, seconds)
    finally:
        os.close(handle)
    return child.poll() is not None


def is_running(pid: int) -> bool:
    """Whether a child of this process runs. It is not waited for, so its number stays its own."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:  # it has been waited for
        return False


def end_group(pid: int) -> None:
    """Kill a child of this process that nothing has waited for, and its process group."""
    with suppress(ProcessLookupError, PermissionError):  # it has not made its group yet, or never does
        os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def handle_of(pid: int) -> int:
    """A descriptor that stands for this process and never for a later one; -1 where there are none."""
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return -1


def end_orphan(pid: int, handle: int) -> None:
    """Kill a process that is not a child of this one, and its group; nothing if it has ended."""
    if handle < 0 or not _is_pending(handle, 0):
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGKILL)


def _is_pending(handle: int, seconds: float) -> bool:
    """Whether the process has not ended within that time; with poll, as select takes small numbers only."""
    waiting = select.poll()
    waiting.register(handle, select.POLLIN)
    return not waiting.poll(seconds * 1000)


def end_tree(child: subprocess.Popen[bytes]) -> None:
    """Kill it, and all that it has started: a compiler that hangs would hang on."""
    if child.poll() is None:
        with suppress(OSError):  # a system without /proc
            _end([Process.of(child.pid)])
        child.kill()
    child.wait()


def end_children() -> None:
    """Of this process, and theirs."""
    me = Process.of(os.getpid())
    try:
        _end(children_of([me]))
    finally:
        me.close()


@dataclass(frozen=True)
class Process:
    """One process, and never a later one with the same number."""

    pid: int
    started: str  # in ticks since the machine started
    handle: int | None  # None on a system without them

    @staticmethod
    def of(pid: int) -> Process:
        """The process that has this number now; raises OSError where none has."""
        try:
            handle: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            raise
        except (AttributeError, OSError):
            handle = None
        try:
            found = Process(pid, _stat(pid)[19], handle)
            if not found.is_there:
                raise ProcessLookupError(pid)
        except BaseException:
            if handle is not None:
                os.close(handle)
            raise
        return found

    @property
    def is_there(self) -> bool:
        """Whether it still has its number: it runs, or nothing has waited for it."""
        return self.send(0)

    def send(self, number: int) -> bool:
        """Send it a signal; False if it is gone."""
        try:
            if self.handle is not None:
                signal.pidfd_send_signal(self.handle, number)
            elif _stat(self.pid)[19] == self.started:
                os.kill(self.pid, number)
            else:
                return False
        except PermissionError:
            return True
        except OSError:
            return False
        return True

    def close(self) -> None:
        if self.handle is not None:
            os.close(self.handle)


def _end(new: list[Process]) -> None:
    found: list[Process] = []
    try:
        while new:  # what is stopped starts nothing more
            found += new
            for process in new:
                process.send(signal.SIGSTOP)
            new = children_of(found)
        for process in found:
            process.send(signal.SIGKILL)
    finally:
        for process in found:
            process.close()


def children_of(parents: Collection[Process]) -> list[Process]:
    """Those that are not among the parents themselves."""
    by_pid = {process.pid: process for process in parents if process.is_there}
    known = {(process.pid, process.started) for process in parents}
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):  # ended meanwhile
            pid = int(path.parent.name)
            if int(_stat(pid)[1]) not in by_pid:
                continue
            child = Process.of(pid)
            if (pid, child.started) in known or not _is_child(child, by_pid):
                child.close()
            else:
                found.append(child)
    return found


def _is_child(process: Process, by_pid: Mapping[int, Process]) -> bool:
    """Whether its parent is one that we know, and not another with that number. We have a handle of both."""
    try:
        parent = by_pid.get(int(_stat(process.pid)[1]))
    except OSError:
        return False
    return parent is not None and parent.is_there and process.is_there


def _stat(pid: int) -> list[str]:
    """What /proc tells after the name: the state, the parent, …, and as the 20th when it was started."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()
