"""Whether an operator is torch's or the program's, from its name, and from a message that names it."""

from __future__ import annotations

import pytest

from kernelscope.text.amounts import call_counts
from kernelscope.text.operator_names import is_custom, misdescribed_operator

OF_A_FAKE = (
    "expected size 4==4, stride 1==8 at dim=0; expected size 8==8, stride 4==1 at dim=1\n"
    "Error in op: torch.ops.mine.tr.default\nThis error most often comes from a incorrect fake"
)


@pytest.mark.parametrize(
    ("kind", "name", "is_own"),
    [
        ("extern", "mine.norm_.default", True),
        ("extern", "torch.ops.mine.norm_.default", True),
        ("op", "mine::norm_", True),
        ("extern", "aten.index_put_.default", False),
        ("extern", "extern_kernels.mm", False),
        ("extern", "copy_", False),
        ("cpp", "cpp_fused_add_0", False),
        ("triton", "mine.kernel", False),
    ],
)
def test_whose_operator(kind: str, name: str, is_own: bool) -> None:
    assert is_custom(kind, name) == is_own


def test_the_operator_whose_fake_is_wrong() -> None:
    assert misdescribed_operator(OF_A_FAKE) == "torch.ops.mine.tr.default"
    assert misdescribed_operator(OF_A_FAKE.replace("mine.tr", "aten.convolution")) == ""
    assert misdescribed_operator("expected size 4==4, stride 1==8 at dim=0") == ""


def test_calls_whose_graphs_are_not_known() -> None:
    assert call_counts(41, 3, 0) == "41 calls of 3 kernels"
    assert call_counts(1, 1, 1) == "1 call of 1 kernel in 1 graph"
    assert call_counts(0, 0, 0) == "0 calls of 0 kernels in 0 graphs"
