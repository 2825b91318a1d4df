"""Networks on images, of timm."""

from __future__ import annotations

import timm
import torch
from tests.programs.models.registry import Made, images, model


@model("convolution", "timm")
def convnext() -> Made:
    made = timm.models.ConvNeXt(depths=(1, 1, 2, 1), dims=(8, 16, 24, 32), num_classes=5, drop_path_rate=0.1)
    return made, {"x": images(64)}


@model("convolution", "timm")
def efficientnet() -> Made:
    blocks = [["ds_r1_k3_s1_e1_c8_se0.25"], ["ir_r2_k3_s2_e4_c16_se0.25"], ["ir_r1_k5_s2_e4_c24_se0.25"]]
    made = timm.models.EfficientNet(
        timm.models._efficientnet_builder.decode_arch_def(blocks), num_classes=5, stem_size=8,
        num_features=32, act_layer=torch.nn.SiLU, drop_rate=0.1, drop_path_rate=0.1,
    )  # fmt: skip
    return made, {"x": images()}


@model("vision transformer", "timm")
def timm_vit() -> Made:
    made = timm.models.VisionTransformer(
        img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4, num_classes=5, drop_rate=0.1,
        drop_path_rate=0.1, init_values=0.1,
    )  # fmt: skip
    return made, {"x": images()}


@model("vision transformer", "timm")
def timm_swin() -> Made:
    made = timm.models.SwinTransformer(
        img_size=32, patch_size=2, embed_dim=16, depths=(2, 2), num_heads=(2, 4), window_size=4, num_classes=5
    )
    return made, {"x": images()}


@model("vision transformer", "timm")
def mlp_mixer() -> Made:
    made = timm.models.MlpMixer(img_size=32, patch_size=8, num_blocks=2, embed_dim=32, num_classes=5)
    return made, {"x": images()}
