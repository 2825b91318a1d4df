"""`kernelscope choreo run --races`: threads that use the same element, and nothing orders them.

The threads of each block run on threads of the machine, under the compiler's thread sanitizer, which knows
of every two accesses whether one of them had to wait for the other. It sees what this run does, and no more.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelscope.config import all_variables
from kernelscope.native.compiler import NativeError

from . import toolchain
from .choreo import translate

# It does not understand OpenMP itself, nor see a memcpy that becomes instructions: that must stay a call.
FLAGS = ("-std=c++17", "-O1", "-g", "-fwrapv", "-fno-builtin", "-fsanitize=thread")
# The program's own status stays, and each report has the form that is read here.
_OPTIONS = "exitcode=0 report_bugs=1 symbolize=1 color=never stack_trace_format=DEFAULT"
_NO_SANITIZER = re.compile("cannot find .*tsan|unsupported option.*thread|sanitizer.*not supported")
_ACCESS = re.compile(r"^  (?:Previous )?(?:atomic )?(read|write) of size", re.IGNORECASE)
_BY = re.compile(r" by (?:thread (?P<thread>T\d+)|main thread)")
_COPY = re.compile(r"^  Thread (T\d+) 'copy' ", re.MULTILINE)
_FATAL = re.compile("FATAL: ThreadSanitizer: (.*)")


@dataclass(frozen=True, order=True)
class Access:
    line: int  # of the program; 0: in C++ that is not in its file
    verb: str
    is_copy: bool = False  # by an asynchronous DMA

    def seen_from(self, line: int) -> str:
        where = "here" if self.line == line else f"in line {self.line}"
        return f"{self.verb} {where if self.line else 'in a function of another file'}"


@dataclass(frozen=True, order=True)
class Race:
    """Two accesses to the same memory by two threads, at least one of which writes."""

    first: Access
    second: Access

    def text(self, file: str) -> str:
        where = self.first.line or self.second.line
        at = f"{file}:{where}" if where else file
        if self.first.is_copy or self.second.is_copy:
            copy, other = sorted((self.first, self.second), key=lambda access: not access.is_copy)
            who = "another asynchronous copy" if other.is_copy else "a thread"
            accesses = f"the copy {copy.seen_from(where)}, {who} {other.seen_from(where)}"
            return f"{at}: a copy is used before its wait: of the same element, {accesses}"
        accesses = f"one {self.first.seen_from(where)}, another one {self.second.seen_from(where)}"
        return f"{at}: two threads use the same element: {accesses}, and neither waits for the other"


def run_with_races(path: Path, source: str) -> int:
    """Run its main() and report each pair of lines that race; 1 if there is one."""
    translation = translate(source, str(path), elide=False, located=True, as_threads=True)
    with tempfile.TemporaryDirectory(prefix="kernelscope-choreo-") as folder:
        status, report = _reported(translation.cpp, Path(folder), path)
    if fatal := _FATAL.search(report):
        print(f"{path}: the thread sanitizer does not run on this machine: {fatal[1]}", file=sys.stderr)
        return 1
    races = sorted(set(races_in(report, path.name)))
    for race in races:
        print(race.text(str(path)), file=sys.stderr)
    if not races and not status:
        print(f"{path}: no two threads raced in this run")
    return status or int(bool(races))


def _reported(cpp: str, folder: Path, path: Path) -> tuple[int, str]:
    """How the program ended, and what the sanitizer wrote."""
    text, binary = folder / "program.cpp", folder / "program"
    text.write_text(cpp, encoding="utf-8")
    command = toolchain.compile_command(
        *toolchain.headers_in(path.parent), str(text), "-o", str(binary), flags=FLAGS
    )
    try:
        toolchain.run(command)
    except NativeError as error:
        if _NO_SANITIZER.search(str(error)):
            advice = "install it (Debian, Ubuntu: libtsan2; Fedora: libtsan)"
            raise NativeError(f"--races needs the thread sanitizer of the C++ compiler; {advice}") from error
        raise
    environment = all_variables()
    given = environment.get("TSAN_OPTIONS", "")  # of an option that is given twice, the last value counts
    environment["TSAN_OPTIONS"] = f"{given} log_path='{folder / 'races'}' {_OPTIONS}"
    status = subprocess.run([str(binary)], check=False, env=environment).returncode
    reports = sorted(folder.glob("races.*"))
    return status, "".join(each.read_text(encoding="utf-8", errors="replace") for each in reports)


def races_in(report: str, file: str) -> Iterator[Race]:
    """What the sanitizer reports; of each access, the innermost line in this file."""
    for part in report.split("WARNING: ThreadSanitizer: data race")[1:]:
        verbs, lines, copies = [], [], []
        of_copies = set(_COPY.findall(part))
        within = False
        for line in part.splitlines():
            if access := _ACCESS.match(line):
                verbs.append(f"{access[1].lower()}s")
                lines.append(0)
                by = _BY.search(line)
                copies.append(by is not None and by["thread"] in of_copies)
                within = True
            elif not line.startswith("    #"):
                within = False
            elif within and not lines[-1] and (found := re.search(rf"{re.escape(file)}:(\d+)", line)):
                lines[-1] = int(found[1])
        if len(verbs) == 2:
            yield Race(*sorted(map(Access, lines, verbs, copies)))
