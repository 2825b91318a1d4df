"""Prints 1 where Inductor's check of each vector instruction set of this processor passes; else nothing.

Inductor builds and loads a program for each set, in every process that compiles for the first time. That
takes one to two CPU seconds, also where the programs are built already. `make test` does it once, and says
the result to all processes in TORCHINDUCTOR_VEC_ISA_OK. Where a set does not work, each process finds out
for itself.
"""

from __future__ import annotations

import torch._inductor.config as config
from torch._inductor import cpu_vec_isa


def listed() -> list[str]:
    return [str(each) for each in cpu_vec_isa.valid_vec_isa_list.__wrapped__()]


def all_work() -> bool:
    """Whether the sets that pass the check are those that would be taken without it."""
    with config.patch({"cpp.vec_isa_ok": True}):
        unchecked = listed()
    with config.patch({"cpp.vec_isa_ok": None}):
        return listed() == unchecked


if __name__ == "__main__":
    print("1" if all_work() else "")
