"""Models that read one text and write another."""

from __future__ import annotations

import transformers
from tests.programs.models.registry import VOCABULARY, Made, model, padding, tokens


@model("encoder-decoder", "transformers")
def t5() -> Made:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, use_cache=False,
        relative_attention_num_buckets=8, decoder_start_token_id=0, is_gated_act=True,
        feed_forward_proj="gated-gelu",
    )  # fmt: skip
    made = transformers.T5ForConditionalGeneration(config)
    return made, {"input_ids": tokens(), "attention_mask": padding(), "labels": tokens(7)}


@model("encoder-decoder", "transformers")
def bart() -> Made:
    config = transformers.BartConfig(
        vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=32,
        use_cache=False,
    )  # fmt: skip
    made = transformers.BartForConditionalGeneration(config)
    return made, {"input_ids": tokens(), "attention_mask": padding(), "labels": tokens(7)}
