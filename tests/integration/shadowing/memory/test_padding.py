"""Results that Inductor pads are noted, and are not an alarm."""

from __future__ import annotations

import re
from typing import Any
from unittest import mock

import torch
from torch._inductor import config
from torch._inductor.graph import GraphLowering

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


def test_gaps_on_a_cpu_are_wrong_where_inductor_does_not_pad() -> None:
    """The wrapper allocates a result with gaps, as if a layout had been mixed up."""
    original = GraphLowering._compile_to_module_lines
    dense, gaps = r"empty_strided_cpu\(\(6, 6\), \(6, 1\), torch.float32\)", "torch.empty(6, 8)[:, :6]"

    def with_gaps(self: Any, code: Any) -> Any:
        code.value, hits = re.subn(dense, gaps, code.value)
        assert hits == 1, "the result is allocated in another way"
        return original(self, code)

    with mock.patch.object(GraphLowering, "_compile_to_module_lines", with_gaps):
        result = kernelscope.check_correctness(lambda x: x @ x, (torch.randn(6, 6),))
    assert result.culprit is not None, str(result)
    assert "(8, 1)" in str(result)
    assert not result.padded
