"""Transformers on images."""

from __future__ import annotations

import torch
import transformers
from tests.programs.models.registry import Made, images, model

LABELS = torch.tensor([0, 1])


@model("vision transformer", "transformers")
def vit() -> Made:
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32,
        patch_size=8, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config), {"pixel_values": images(), "labels": LABELS}


@model("vision transformer", "transformers")
def swin() -> Made:
    config = transformers.SwinConfig(
        image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
    )
    return transformers.SwinForImageClassification(config), {"pixel_values": images(), "labels": LABELS}


@model("vision transformer", "transformers")
def dinov2() -> Made:
    config = transformers.Dinov2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8,
        use_swiglu_ffn=True, mlp_ratio=2,
    )  # fmt: skip
    return transformers.Dinov2Model(config), {"pixel_values": images()}


@model("vision transformer", "transformers")
def segformer() -> Made:
    config = transformers.SegformerConfig(
        num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[16, 32], patch_sizes=[7, 3],
        strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=16, num_labels=3,
    )  # fmt: skip
    labels = torch.randint(3, (2, 32, 32))
    return transformers.SegformerForSemanticSegmentation(config), {"pixel_values": images(), "labels": labels}
