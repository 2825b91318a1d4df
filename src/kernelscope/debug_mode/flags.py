"""What a DebugMode lists and keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernelscope.config import stock_form_from_environment


@dataclass(kw_only=True, eq=False, repr=False)
class Flags:
    """The parameters of `DebugMode`, which describes them."""

    record_torchfunction: bool = False
    record_faketensor: bool = False
    record_realtensor: bool = True
    record_tensor_attributes: Sequence[str] | None = None
    record_nn_module: bool = False
    store_original_args: bool = False
    record_stack_trace: bool = False
    record_output: bool = True
    record_ids: bool = False
    record_profiler_context: bool = True
    record_localtensor: bool = True
    run_compile_with_interpreter: bool = False
    record_triton_kernels: bool = True
    stock_form: bool = field(default_factory=stock_form_from_environment)
