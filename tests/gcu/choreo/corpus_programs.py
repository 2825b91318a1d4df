"""The programs of the corpus as one library, and as one executable."""

from __future__ import annotations

import re
from pathlib import Path

from kernelscope.gcu.choreo import translate
from kernelscope.gcu.choreo.cpp.function import FunctionCode
from kernelscope.gcu.choreo.cpp.to_cpp import Translation

PROGRAMS = sorted((Path(__file__).parent / "corpus").glob("*.co"))
PARTS = ("CHOREO_HOST", "CHOREO_THREADS", "CHOREO_FRAGMENTS", "CHOREO_ATOMICS")  # of the header
_DEFINES = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)


def together(elide: bool = True, as_threads: bool = False, paths: list[Path] = PROGRAMS) -> Translation:
    """All programs as one, which is one compilation instead of many."""
    parts = [*(f"#define {name}\n" for name in PARTS), '#include "choreo.h"\n']
    functions: list[FunctionCode] = []
    for number, path in enumerate(paths):
        source = path.read_text(encoding="utf-8")
        made = translate(source, str(path), elide=elide, located=True, as_threads=as_threads)
        functions += made.functions
        # A main() may end without a return, another function may not.
        body = made.cpp.replace("int main()", "void run()")
        body = re.sub(r"^#include <.*>$", "", body, flags=re.MULTILINE)
        undo = "".join(f"#undef {name}\n" for name in dict.fromkeys(_DEFINES.findall(source)))
        cpp = re.sub(rf"^#define ({'|'.join(PARTS)})$", "", body, flags=re.MULTILINE)
        parts.append(f"namespace p{number} {{\n{cpp}\n}}\n{undo}")
    calls = " ".join(f"p{number}::run();" for number in range(len(paths)))
    return Translation("\n".join([*parts, f"int main() {{ {calls} return 0; }}\n"]), tuple(functions))
