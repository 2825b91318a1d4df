"""Results that Inductor pads are noted, and are not an alarm."""

from __future__ import annotations

import torch
from torch._inductor import config

import kernelscope

X = torch.randn(4, 6, 33, generator=torch.Generator().manual_seed(1))
W = torch.randn(33, 97, generator=torch.Generator().manual_seed(2))


def multiplies(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.relu(x @ W), x.sum(0)


def test_padded_results_are_a_note() -> None:
    torch._dynamo.reset()
    # On a CPU Inductor pads only if it is told to.
    padding = config.patch(
        disable_padding_cpu=False, comprehensive_padding=True, pad_outputs=True, padding_stride_threshold=0
    )
    with padding, kernelscope.shadow() as result:
        made = torch.compile(multiplies)(X)
    assert [each.stride() for each in made] == [(768, 128, 1), (64, 1)], "Inductor does not pad these"
    assert (bool(result), result.status) == (False, 0), str(result)
    first, second = result.to_dict()["padded"]
    assert (first["function"], first["result"]) == ("multiplies", "result 0")
    assert (first["strides"], first["eager_strides"]) == ((768, 128, 1), (582, 97, 1))
    assert (second["strides"], second["eager_strides"]) == ((64, 1), (33, 1))
    assert "Result 0 of multiplies is padded" in str(result)
    assert "Result 1 of multiplies is padded" in result._repr_html_()
