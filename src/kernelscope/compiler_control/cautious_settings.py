"""The configs of torch's compiler that can change a result, each with its most cautious value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PASSES = ("pre_grad_passes", "joint_graph_passes", "post_grad_passes")  # as torch's bisector calls them
INDUCTOR, AUTOGRAD, DYNAMO = "torch._inductor.config", "torch._functorch.config", "torch._dynamo.config"

# Config → what to try instead. A program that has this value already has nothing to switch off.
CAUTIOUS: dict[str, Any] = {
    f"{INDUCTOR}.{name}": value
    for name, value in {
        # passes over the graph
        "pattern_matcher": False,
        "split_cat_fx_passes": False,
        "efficient_conv_bn_eval_fx_passes": False,
        "group_fusion": False,
        "batch_fusion": False,
        "freezing": False,
        "joint_graph_constant_folding": False,
        "reorder_for_locality": False,
        "permute_fusion": False,
        "b2b_gemm_pass": False,
        # numerics
        "fallback_random": True,
        "emulate_precision_casts": True,
        "emulate_division_rounding": True,  # its name before eager_numerics
        "eager_numerics.division_rounding": True,
        "eager_numerics.disable_ftz": True,
        "numerics": "strict",  # in newer versions: these three, and reductions as in eager
        "deterministic": True,
        "batch_invariant": True,
        "layout_optimization": False,
        "comprehensive_padding": False,
        "shape_padding": False,
        "conv_1x1_as_mm": False,
        # scheduling and memory
        "epilogue_fusion": False,
        "prologue_fusion": False,
        "max_fusion_size": 1,
        "aggressive_fusion": False,
        "loop_ordering_after_fusion": False,
        "combo_kernels": False,
        "inplace_buffers": False,
        "allow_buffer_reuse": False,
        "memory_planning": False,
        "reorder_for_peak_memory": False,
        "split_reductions": False,
        "unroll_reductions_threshold": 1,
        "static_launch_user_defined_triton_kernels": False,
        # autotuning
        "max_autotune": False,
        "max_autotune_pointwise": False,
        "max_autotune_gemm": False,
        "coordinate_descent_tuning": False,
        # C++
        "cpp.simdlen": 1,
        "cpp.threads": 1,
        "cpp.enable_tiling_heuristics": False,
        "cpp.enable_loop_tail_vec": False,
        "cpp.enable_concat_linear": False,
        "cpp.enable_kernel_profile": False,
        "cpp.enable_unsafe_math_opt_flag": False,
        "cpp.enable_floating_point_contract_flag": "off",
        "cpp.fallback_scatter_reduce_sum": True,
        "cpp.weight_prepack": False,
        "cpp.max_horizontal_fusion_size": 1,
        # Triton
        "triton.cudagraphs": False,
        "triton.cudagraph_trees": False,
        "triton.persistent_reductions": False,
        "triton.cooperative_reductions": False,
        "triton.multi_kernel": 0,
        "triton.tile_reductions": False,
        "triton.use_block_ptr": False,
        "triton.prefer_nd_tiling": False,
        "triton.codegen_upcast_to_fp32": True,
        "triton.divisible_by_16": False,
    }.items()
} | {
    f"{AUTOGRAD}.cse": False,
    f"{AUTOGRAD}.activation_memory_budget": 1.0,
    f"{DYNAMO}.automatic_dynamic_shapes": False,
    f"{DYNAMO}.specialize_float": True,
}


def split(name: str) -> tuple[str, str]:
    """The module of a config, and its name there."""
    for module in (INDUCTOR, AUTOGRAD, DYNAMO):
        if name.startswith(f"{module}."):
            return module, name.removeprefix(f"{module}.")
    raise ValueError(f"{name} is not a config of torch's compiler")


def switchable(values: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """The configs that a program can switch off: those without the cautious value, and those it has changed.

    `values` are the configs while it was compiled, `changed` the defaults of those that it has set.
    """
    found = {name: value for name, value in CAUTIOUS.items() if name in values and values[name] != value}
    return found | {name: value for name, value in changed.items() if name not in CAUTIOUS}
