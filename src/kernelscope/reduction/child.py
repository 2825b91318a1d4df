"""The process in which `kernelscope reduce` runs a script, and then tries its graphs."""

from __future__ import annotations

import sys
from pathlib import Path

from ..quick_start import importing, leave


def main(argv: list[str]) -> int:
    with importing():
        from ..probes.cpp_readiness import CppReadiness

        readiness = CppReadiness()
        readiness.install()
        from ..probes.compiler_warmth import load_compiler
        from .searching import search

        load_compiler()
    split = argv.index("--")
    try:
        return search(Path(argv[0]), int(argv[1]), argv[split + 1 :])
    finally:
        readiness.remove()


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
