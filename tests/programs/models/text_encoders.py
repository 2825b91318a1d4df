"""Encoders of text."""

from __future__ import annotations

import transformers
from tests.programs.models.registry import VOCABULARY, Made, model, padding, tokens

SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 32,
}  # fmt: skip


@model("encoder", "transformers")
def bert() -> Made:
    made = transformers.BertForMaskedLM(transformers.BertConfig(**SIZES))  # dropout 0.1, tied embeddings
    return made, {"input_ids": tokens(), "attention_mask": padding(), "labels": tokens()}


@model("encoder", "transformers")
def roberta() -> Made:
    config = transformers.RobertaConfig(**SIZES, num_labels=3)
    made = transformers.RobertaForSequenceClassification(config)
    return made, {
        "input_ids": tokens(),
        "attention_mask": padding(),
        "labels": tokens(batch=2, length=1)[:, 0] % 3,
    }


@model("encoder", "transformers")
def distilbert() -> Made:
    config = transformers.DistilBertConfig(
        vocab_size=VOCABULARY, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=32
    )
    return transformers.DistilBertForTokenClassification(config), {
        "input_ids": tokens(),
        "labels": tokens() % 2,
    }


@model("encoder", "transformers")
def albert() -> Made:
    config = transformers.AlbertConfig(**SIZES, embedding_size=16)  # all layers share their weights
    return transformers.AlbertForMaskedLM(config), {"input_ids": tokens(), "labels": tokens()}


@model("encoder", "transformers")
def deberta() -> Made:
    config = transformers.DebertaV2Config(
        **SIZES, relative_attention=True, position_buckets=8, pos_att_type=["p2c", "c2p"]
    )
    return transformers.DebertaV2Model(config), {"input_ids": tokens(), "attention_mask": padding()}


@model("encoder", "transformers")
def modernbert() -> Made:
    config = transformers.ModernBertConfig(
        **SIZES, local_attention=8, pad_token_id=0, reference_compile=False
    )
    made = transformers.ModernBertForMaskedLM(config)
    return made, {"input_ids": tokens(), "attention_mask": padding(), "labels": tokens()}
