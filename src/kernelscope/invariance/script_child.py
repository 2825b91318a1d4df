"""The process in which `kernelscope invariance` runs a script; its result goes to a file."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

from kernelscope.determinism.noted_calls import NotedCall, NotedCalls, name_of
from kernelscope.shadowing.script_child import run_words

from .api import check_invariance
from .batches import Dims, parsed_dims
from .result import InvarianceResult
from .script_result import script_form, script_text


def main(argv: list[str]) -> int:
    split = argv.index("--")
    answer, dim, ops, verbose = Path(argv[0]), parsed_dims(argv[1]), argv[2], argv[3] == "verbose"
    calls, found = NotedCalls(ops), list[InvarianceResult]()
    with calls.noting():
        failed = run_words(argv[split + 1 :])
    try:
        found = calls.each(lambda call: _checked(call, dim, ops))
    except Exception as error:  # the program's own, with another number of rows
        traceback.print_exc()
        failed = failed or f"with other rows: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
    form = script_form(found, ops, calls.left_out, failed)
    form = {"result": form, "text": script_text(found, verbose=verbose), "failed": failed}
    answer.write_text(json.dumps(form), encoding="utf-8")
    return 0


def _checked(call: NotedCall, dim: Dims, ops: str) -> InvarianceResult:
    result = check_invariance(call.target, args=call.args, kwargs=call.kwargs, dim=dim, ops=ops)
    result.function = name_of(call.target)
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
