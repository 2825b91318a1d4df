"""Models of images and text."""

from __future__ import annotations

import torch
import transformers
from tests.programs.models.decoders import GROUPED
from tests.programs.models.registry import VOCABULARY, Made, images, model, padding, tokens

LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
VISION = LAYERS | {"image_size": 16, "patch_size": 8}
TEXT = LAYERS | {"vocab_size": VOCABULARY, "max_position_embeddings": 32}
IMAGE_TOKEN = 3


@model("vision-language", "transformers")
def clip() -> Made:
    text = TEXT | {"eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
    config = transformers.CLIPConfig(text_config=text, vision_config=VISION, projection_dim=16)
    given = tokens()
    given[:, -1] = 2
    made = transformers.CLIPModel(config)
    return made, {
        "input_ids": given,
        "pixel_values": images(16),
        "attention_mask": padding(),
        "return_loss": True,
    }


@model("vision-language", "transformers")
def siglip() -> Made:
    config = transformers.SiglipConfig(text_config=TEXT, vision_config=VISION)
    made = transformers.SiglipModel(config)
    return made, {"input_ids": tokens(), "pixel_values": images(16), "return_loss": True}


@model("vision-language", "transformers")
def llava() -> Made:
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**VISION),
        text_config=transformers.LlamaConfig(**GROUPED),
        image_token_index=IMAGE_TOKEN,
        vision_feature_layer=-1,
    )
    given = tokens()
    given[:, 1:5] = IMAGE_TOKEN  # 2×2 patches
    labels = torch.where(given == IMAGE_TOKEN, -100, given)
    made = transformers.LlavaForConditionalGeneration(config)
    return made, {"input_ids": given, "pixel_values": images(16), "labels": labels}
