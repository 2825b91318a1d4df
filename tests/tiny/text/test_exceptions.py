"""Which line a run keeps of an exception that ended the program: the user's, not the one of a library."""

from __future__ import annotations

import json
import linecache
import os
import sys
from types import ModuleType, TracebackType

import pytest
from torch._dynamo.exc import BackendCompilerFailed
from torch._inductor.exc import CppCompileError

import kernelscope
from kernelscope.text.exceptions import in_one_line, noted

CALLER = "def caller(fail):\n    fail()\n"
LIBRARIES = {
    "installed": "/home/me/venv/lib/python3.11/site-packages/torch/nn/modules/module.py",
    "of the distribution": "/usr/lib/python3/dist-packages/numpy/core.py",
    "the standard library": json.decoder.__file__,
    "kernelscope in a clone": os.path.join(os.path.dirname(kernelscope.__file__), "probes", "patching.py"),
    "a wrapper of Inductor": f"/tmp/torchinductor_me/ab/c{'a2' * 25}b.py",
    "made up": "<eval_with_key>.7",
}


def raised(program: str, library: str) -> TracebackType | None:
    """The traceback of an exception in the library, which line 2 of the program called."""
    program_names: dict[str, object] = {}
    exec(compile(CALLER, program, "exec"), program_names)
    library_names: dict[str, object] = {}
    exec(compile("def inner():\n\n\n    raise ValueError('no')\n", library, "exec"), library_names)
    try:
        program_names["caller"](library_names["inner"])  # type: ignore[operator]
    except ValueError as error:
        trace = error.__traceback__
        return None if trace is None else trace.tb_next  # without the line above
    finally:
        linecache.clearcache()
    return None


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_line_of_an_exception_in_a_library_is_the_programs(library: str) -> None:
    at = noted(ValueError, ValueError("no"), raised("/home/me/train.py", LIBRARIES[library]))["exception_at"]

    assert at == "/home/me/train.py:2 in caller"


def test_the_innermost_of_the_programs_files_counts() -> None:
    at = noted(ValueError, ValueError("no"), raised("/home/me/train.py", "/home/me/model.py"))["exception_at"]

    assert at == "/home/me/model.py:4 in inner"


def test_a_torch_of_a_clone_is_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    clone = ModuleType("torch")
    clone.__file__ = "/home/me/pytorch/torch/__init__.py"
    monkeypatch.setitem(sys.modules, "torch", clone)

    trace = raised("/home/me/train.py", "/home/me/pytorch/torch/_dynamo/eval_frame.py")

    assert noted(ValueError, ValueError("no"), trace)["exception_at"] == "/home/me/train.py:2 in caller"


def test_a_program_without_a_file_has_its_outermost_line() -> None:
    trace = raised("<string>", LIBRARIES["installed"])

    assert noted(ValueError, ValueError("no"), trace)["exception_at"] == "<string>:2 in caller"


def test_what_the_compiler_raised_in_one_line() -> None:
    output = "In file included from a.h:1\nc.cpp:7:3: error: no member named 'erfinv'\nc.cpp:9:1: error: more"
    failed = CppCompileError(["g++", "c.cpp"], output)

    assert in_one_line(failed) == "CppCompileError: c.cpp:7:3: error: no member named 'erfinv'"
    assert in_one_line(BackendCompilerFailed("inductor", failed, None)) == in_one_line(failed)
    assert in_one_line(ValueError()) == "ValueError: "

    own = ValueError("the second")
    own.__cause__ = KeyError("the first")
    assert in_one_line(own) == "ValueError: the second"
