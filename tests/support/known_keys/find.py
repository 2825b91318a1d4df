"""Prints a program that tells torch and Triton the keys of their own files, if a process has the same ones.

Both hash their files in every process that compiles, Triton all of libtriton (460 MB): about two CPU seconds
on a processor without instructions for SHA. `make test` does it once. A process runs the printed program when
it starts, through a .pth file and the variable KERNELSCOPE_TESTS_KEYS, whatever it has for PYTHONPATH.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch._inductor.codecache import torch_key
from torch._inductor.runtime import triton_compat

# For each module: its file, and the key that it would compute. The file tells environments apart.
Keys = dict[str, tuple[str, str]]


def found() -> Keys:
    keys = {"torch._inductor.codecache": (str(torch._inductor.codecache.__file__), torch_key().hex())}
    if triton_compat.HAS_TRITON:
        from triton.runtime import cache

        if hasattr(cache, "triton_key"):  # it was elsewhere before triton 3.5
            keys["triton.runtime.cache"] = (str(cache.__file__), cache.triton_key())
    return keys


def program(keys: Keys) -> str:
    line = "KEYS: dict[str, tuple[str, str]] = {}"
    text = Path(__file__).with_name("tell.py").read_text(encoding="utf-8")
    assert text.count(line) == 1
    return text.replace(line, f"KEYS = {keys!r}")


if __name__ == "__main__":
    print(program(found()))
