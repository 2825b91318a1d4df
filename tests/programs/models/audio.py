"""Models of sound."""

from __future__ import annotations

import torch
import transformers
from tests.programs.models.registry import VOCABULARY, Made, model, tokens


@model("audio", "transformers")
def whisper() -> Made:
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY, num_mel_bins=16, d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
        max_source_positions=20, max_target_positions=16, use_cache=False, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=3, suppress_tokens=None, begin_suppress_tokens=None,
        dropout=0.1,
    )  # fmt: skip
    made = transformers.WhisperForConditionalGeneration(config)
    return made, {"input_features": torch.randn(2, 16, 40), "labels": tokens(7)}


@model("audio", "transformers")
def wav2vec2() -> Made:
    config = transformers.Wav2Vec2Config(
        vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        conv_dim=(16, 16, 16), conv_kernel=(10, 3, 3), conv_stride=(5, 2, 2), num_feat_extract_layers=3,
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, layerdrop=0.0, mask_time_prob=0.0,
    )  # fmt: skip
    return transformers.Wav2Vec2Model(config), {"input_values": torch.randn(2, 800)}


@model("audio", "transformers")
def audio_spectrogram_transformer() -> Made:
    config = transformers.ASTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, patch_size=8,
        frequency_stride=6, time_stride=6, max_length=32, num_mel_bins=16, hidden_dropout_prob=0.1,
    )  # fmt: skip
    made = transformers.ASTForAudioClassification(config)
    return made, {"input_values": torch.randn(2, 32, 16), "labels": torch.tensor([0, 1])}
