"""The process in which `kernelscope precision` runs a script; its result goes to a file."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

from kernelscope.determinism.noted_calls import NotedCall, NotedCalls, name_of
from kernelscope.precision.api import precision_map
from kernelscope.precision.result import PrecisionMap
from kernelscope.shadowing.script_child import run_words

from .form import script_form, script_text


def main(argv: list[str]) -> int:
    split = argv.index("--")
    answer, options = Path(argv[0]), json.loads(argv[1])
    calls, found = NotedCalls(options["ops"]), list[PrecisionMap]()
    with calls.noting():
        failed = run_words(argv[split + 1 :])
    try:
        found = calls.each(lambda call: _mapped(call, options))
    except Exception as error:  # the program's own
        traceback.print_exc()
        failed = failed or f"when run again: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
    form = script_form(found, options["ops"], calls.left_out, failed)
    text = script_text(found, verbose=options["verbose"])
    answer.write_text(json.dumps({"result": form, "text": text}), encoding="utf-8")
    return 0


def _mapped(call: NotedCall, options: dict[str, Any]) -> PrecisionMap:
    result = precision_map(
        call.target, args=call.args, kwargs=call.kwargs, output=options["output"],
        tolerance=options["tolerance"], formats=options["formats"], ops=options["ops"],
    )  # fmt: skip
    result.function = name_of(call.target)
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
