from __future__ import annotations
def accumulate(tensors, log, first):  # placeholder until the kernels are in
    return [False] * len(tensors)
