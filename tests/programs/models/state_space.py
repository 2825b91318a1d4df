"""State space models: a scan along the text."""

from __future__ import annotations

import transformers
from tests.programs.models.decoders import texts
from tests.programs.models.registry import VOCABULARY, Made, model


@model("state space", "transformers")
def mamba() -> Made:
    config = transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=16, state_size=4, num_hidden_layers=2, expand=2, use_cache=False,
        time_step_rank=4,
    )  # fmt: skip
    return transformers.MambaForCausalLM(config), texts(6)


@model("state space", "transformers")
def mamba2() -> Made:
    config = transformers.Mamba2Config(
        vocab_size=VOCABULARY, hidden_size=16, state_size=4, num_hidden_layers=2, expand=2, num_heads=4,
        head_dim=8, n_groups=1, chunk_size=4, use_cache=False,
    )  # fmt: skip
    return transformers.Mamba2ForCausalLM(config), texts(8)
