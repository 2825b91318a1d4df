"""Operators that draw random numbers are those that torch says draw them."""

from __future__ import annotations

import torch

from kernelscope.analysis.random_operators import RANDOM_OPERATORS, draws, is_random


def test_as_torch_tags_them() -> None:
    tagged = set()
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        operator, _, overload = rest.partition(".")
        if space != "aten":
            continue
        op = getattr(getattr(torch.ops.aten, operator), overload or "default", None)
        if op is not None and torch.Tag.nondeterministic_seeded in op.tags:
            tagged.add(operator)
    # Another torch may have a few more or less; those that everybody uses are always there.
    assert len(tagged ^ RANDOM_OPERATORS) < 12, tagged ^ RANDOM_OPERATORS
    common = {"rand", "randn", "randint", "bernoulli", "native_dropout", "uniform_"}
    assert common <= tagged & RANDOM_OPERATORS


def test_names_as_recorded() -> None:
    for name in ("aten.randn.default", "aten::randn", "torch.ops.aten.randn.default"):
        assert is_random(name)
    for name in ("aten.mm.default", "cpp_fused_randn_0", "extern_kernels.addmm"):
        assert not is_random(name)


def test_a_chance_of_nothing_draws_nothing() -> None:
    attention = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    assert draws(attention, {"dropout_p": 0.1})
    assert not draws(attention, {"dropout_p": 0.0})
    assert draws("aten.native_dropout.default", {"p": 0.5, "train": True})
    assert not draws("aten.native_dropout.default", {"p": 0.5, "train": False})
    assert draws("aten.randn.default", {})
