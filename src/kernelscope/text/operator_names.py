"""Whose operator it is, from its name alone."""

from __future__ import annotations

import re

_OF_TORCH = frozenset((
    "aten", "prims", "extern_kernels", "inductor", "inductor_prims", "mkldnn", "mkldnn_prepacked", "onednn",
    "quantized", "quantized_decomposed", "_quantized", "sparse", "torchvision", "higher_order", "fsdp",
    "symm_mem", "c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "_dtensor",
    "rngprims", "debugprims", "profiler", "mkl", "quantization", "_native", "streams", "export",
    "static_runtime", "flex_lib",
))  # fmt: skip
_IN_ERROR = re.compile(r"Error in op: (torch\.ops\.[\w.]+)")  # generated code, of sizes and strides


def is_custom(kernel_kind: str, kernel_name: str) -> bool:
    """Whether it is an operator of the program's own, or of a package: it may depend on anything."""
    namespace, *name = kernel_name.removeprefix("torch.ops.").replace("::", ".").split(".")
    return kernel_kind in ("op", "extern") and bool(name) and namespace not in _OF_TORCH


def misdescribed_operator(message: str) -> str:
    """The operator whose result is not what its fake implementation says; empty where none is, or torch's."""
    found = _IN_ERROR.search(message)
    return found[1] if found is not None and is_custom("extern", found[1]) else ""
