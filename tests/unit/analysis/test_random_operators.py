"""Operators that draw random numbers are those that torch says draw them."""

from __future__ import annotations

import torch

from kernelscope.analysis.random_operators import (
    RANDOM_OPERATORS,
    adopts_memory,
    draws,
    is_random,
    leaves_memory_unwritten,
)


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


def test_operators_that_take_a_storage_have_an_input_that_is_not_seen() -> None:
    """`broadcast_object_list` makes tensors of such memory, other memory on each rank."""
    taking = {
        f"aten.{schema.name.partition('::')[2]}.{schema.overload_name or 'default'}"
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::") and any(str(a.type) == "Storage" for a in schema.arguments)
    }
    assert "aten.set_.source_Storage" in taking
    assert {name for name in taking if not adopts_memory(name)} == set()
    assert adopts_memory("aten.from_file.default")
    assert not adopts_memory("aten.set_.source_Tensor")


def test_operators_that_resize_leave_memory_unwritten() -> None:
    """All of them but those of sparse tensors, which have their own memory, and one that copies."""
    resizing = {
        schema.name.partition("::")[2]
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::") and "resize" in schema.name
    }
    dense = {name for name in resizing if "sparse" not in name and "copy" not in name}
    assert "resize_" in dense
    assert {name for name in dense if not leaves_memory_unwritten(f"aten.{name}.default")} == set()
    assert not leaves_memory_unwritten("aten.fill_.Scalar")
