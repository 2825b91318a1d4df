"""Decoders in which a router sends each token to some of the experts."""

from __future__ import annotations

import transformers
from tests.programs.models.decoders import GROUPED, texts
from tests.programs.models.registry import Made, model


@model("mixture of experts", "transformers")
def mixtral() -> Made:
    config = transformers.MixtralConfig(**GROUPED, num_local_experts=4, num_experts_per_tok=2)
    return transformers.MixtralForCausalLM(config), texts()


@model("mixture of experts", "transformers")
def olmoe() -> Made:
    config = transformers.OlmoeConfig(**GROUPED, num_experts=4, num_experts_per_tok=2)
    return transformers.OlmoeForCausalLM(config), texts()


@model("mixture of experts", "transformers")
def qwen2_moe() -> Made:
    config = transformers.Qwen2MoeConfig(
        **GROUPED, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
        shared_expert_intermediate_size=16, output_router_logits=True,
    )  # fmt: skip
    return transformers.Qwen2MoeForCausalLM(config), texts()
