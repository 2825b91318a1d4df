"""Parts of image generators."""

from __future__ import annotations

import diffusers
import torch
from tests.programs.models.registry import Made, images, model

BLOCKS = {"block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8}


@model("U-Net", "diffusers")
def unet() -> Made:
    made = diffusers.UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8, dropout=0.1, **BLOCKS,
    )  # fmt: skip
    return made, {"sample": images(16), "timestep": torch.tensor([3, 7]), "return_dict": False}


@model("U-Net", "diffusers")
def unet_with_text() -> Made:
    made = diffusers.UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, cross_attention_dim=16, attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), **BLOCKS,
    )  # fmt: skip
    return made, {
        "sample": images(16, channels=4),
        "timestep": torch.tensor([3, 7]),
        "encoder_hidden_states": torch.randn(2, 5, 16),
        "return_dict": False,
    }


@model("diffusion", "diffusers")
def image_autoencoder() -> Made:
    made = diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4, sample_size=16, **BLOCKS,
    )  # fmt: skip
    return made, {"sample": images(16), "return_dict": False}


@model("diffusion", "diffusers")
def diffusion_transformer() -> Made:
    made = diffusers.DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=8, in_channels=4, num_layers=2, sample_size=8, patch_size=2,
        num_embeds_ada_norm=10, norm_num_groups=8,
    )  # fmt: skip
    return made, {
        "hidden_states": images(8, channels=4),
        "timestep": torch.tensor([3, 7]),
        "class_labels": torch.tensor([1, 4]),
        "return_dict": False,
    }
