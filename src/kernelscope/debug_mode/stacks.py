"""Where in the program something happened, as text."""

from __future__ import annotations

import os
import re
import sys
import traceback

import torch

from kernelscope.probes.origins import is_users

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LINE = re.compile(r'File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>.+)\n(?:    (?P<code>.*))?')
_CALLS_MODES = tuple(  # how torch calls a dispatch mode
    os.path.join(os.path.dirname(torch.__file__), *place)
    for place in (("_compile.py",), ("_dynamo", "eval_frame.py"))
)


def stack_here() -> str:
    """The stack as Python prints it, without our own frames."""
    walked = traceback.walk_stack(sys._getframe(1))
    frames = traceback.StackSummary.extract(walked, lookup_lines=False)
    own = [f for f in reversed(frames) if not f.filename.startswith(_OURS)]
    while own and own[-1].filename.endswith(_CALLS_MODES):
        own.pop()
    return "".join(traceback.StackSummary.from_list(own).format())


def innermost_user_line(trace: str | None) -> str:
    """ "File: train.py:12 in step, code: loss.backward()", or "" when every frame is a library's."""
    found = [m for m in _LINE.finditer(trace or "") if is_users(m["file"])]
    if not found:
        return ""
    last = found[-1]
    code = f", code: {last['code'].strip()}" if last["code"] else ""
    return f"File: {last['file']}:{last['line']} in {last['name']}{code}"
