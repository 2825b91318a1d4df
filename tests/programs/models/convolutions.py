"""Convolutional networks on images."""

from __future__ import annotations

import torch
import torchvision
from tests.programs.models.registry import Made, images, model


@model("convolution", "torchvision")
def resnet() -> Made:
    block = torchvision.models.resnet.BasicBlock
    return torchvision.models.ResNet(block, [1, 1, 1, 1], num_classes=5, width_per_group=64), {"x": images()}


@model("convolution", "torchvision")
def resnet_with_channels_last() -> Made:
    made, given = resnet()
    return made.to(memory_format=torch.channels_last), {"x": given["x"].to(memory_format=torch.channels_last)}


@model("convolution", "torchvision")
def mobilenet_v3() -> Made:
    configure = torchvision.models.mobilenetv3.InvertedResidualConfig
    made = torchvision.models.MobileNetV3(
        [
            configure(16, 3, 16, 16, True, "RE", 2, 1, 1.0),
            configure(16, 5, 32, 24, True, "HS", 2, 1, 1.0),
            configure(24, 5, 48, 24, True, "HS", 1, 1, 1.0),
        ],
        last_channel=32,
        num_classes=5,
    )
    return made, {"x": images()}


@model("convolution", "torchvision")
def densenet() -> Made:
    made = torchvision.models.DenseNet(
        growth_rate=8, block_config=(2, 2), num_init_features=16, num_classes=5, drop_rate=0.1
    )
    return made, {"x": images()}


@model("convolution", "torchvision")
def regnet() -> Made:
    blocks = torchvision.models.regnet.BlockParams.from_init_params(
        depth=4, w_0=8, w_a=8.0, w_m=2.0, group_width=8, se_ratio=0.25
    )
    return torchvision.models.RegNet(blocks, num_classes=5, stem_width=8), {"x": images()}
