"""Packages of AOTInductor whose launches can be seen."""

from __future__ import annotations

from typing import Any

from .instrumented_graphs import instrumenting


def aoti_compile_and_package(exported_program: Any, *args: Any, **kwargs: Any) -> str:
    """`torch._inductor.aoti_compile_and_package`, for a package that tells of its launches.

    It runs everywhere, also without kernelscope; inside a recording, its kernels and their values are seen.

    Example:
        path = kernelscope.aoti_compile_and_package(torch.export.export(model, (x,)), package_path="m.pt2")
        model = torch._inductor.aoti_load_package(path)
        with kernelscope.values.observe("2"):
            model(x)
    """
    import torch._inductor

    with instrumenting():
        path: str = torch._inductor.aoti_compile_and_package(exported_program, *args, **kwargs)
    return path
