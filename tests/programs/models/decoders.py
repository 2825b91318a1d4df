"""Decoders of text."""

from __future__ import annotations

from typing import Any

import transformers
from tests.programs.models.registry import VOCABULARY, Made, model, padding, tokens

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 32, "use_cache": False,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
GROUPED = SIZES | {"num_key_value_heads": 2}


def texts(length: int = 12) -> dict[str, Any]:
    given = tokens(length)
    return {"input_ids": given, "labels": given}


@model("decoder", "transformers")
def gpt2() -> Made:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=32, use_cache=False,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config), texts()


@model("decoder", "transformers")
def llama() -> Made:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**GROUPED)), texts()


@model("decoder", "transformers")
def mistral() -> Made:
    config = transformers.MistralConfig(**GROUPED, sliding_window=4)
    return transformers.MistralForCausalLM(config), texts() | {"attention_mask": padding()}


@model("decoder", "transformers")
def gemma() -> Made:
    config = transformers.GemmaConfig(**GROUPED, head_dim=8)
    return transformers.GemmaForCausalLM(config), texts()


@model("decoder", "transformers")
def gemma2() -> Made:
    config = transformers.Gemma2Config(**GROUPED, head_dim=8, sliding_window=4, query_pre_attn_scalar=8)
    return transformers.Gemma2ForCausalLM(config), texts()


@model("decoder", "transformers")
def qwen3() -> Made:
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**GROUPED, head_dim=8)), texts()


@model("decoder", "transformers")
def phi3() -> Made:
    config = transformers.Phi3Config(**GROUPED, resid_pdrop=0.1, embd_pdrop=0.1)
    return transformers.Phi3ForCausalLM(config), texts()


@model("decoder", "transformers")
def gpt_neox() -> Made:
    config = transformers.GPTNeoXConfig(**SIZES, hidden_dropout=0.1, attention_dropout=0.1)
    return transformers.GPTNeoXForCausalLM(config), texts()


@model("decoder", "transformers")
def opt() -> Made:
    config = transformers.OPTConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64,
        max_position_embeddings=32, word_embed_proj_dim=32, use_cache=False,
    )  # fmt: skip
    return transformers.OPTForCausalLM(config), texts() | {"attention_mask": padding()}


@model("decoder", "transformers")
def bloom() -> Made:
    config = transformers.BloomConfig(
        vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4, use_cache=False, hidden_dropout=0.1
    )
    return transformers.BloomForCausalLM(config), texts()
