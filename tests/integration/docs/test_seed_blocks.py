"""The documents' code blocks on a CPU-only machine, through Inductor's C++ kernels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
import torch
from tests.support import seed_blocks
from tests.support.seed_block_texts import BLOCKS
from tests.support.seed_blocks import CHECKS, Given


@pytest.fixture(scope="module")
def place() -> Iterator[Given]:
    torch._dynamo.reset()
    yield seed_blocks.given("cpu", "cpp")
    torch._dynamo.reset()


@pytest.mark.parametrize("name", BLOCKS)
def test_block(name: str, place: Given) -> None:
    seed_blocks.run_and_check(name, place)


def test_every_block_is_checked() -> None:
    assert BLOCKS.keys() == CHECKS.keys()


@pytest.mark.parametrize("name", BLOCKS)
def test_only_import_and_device_are_changed(name: str, place: Given) -> None:
    before, after = BLOCKS[name].splitlines(), seed_blocks.text_of(name, place).splitlines()
    changed = [line for line, now in zip(before, after, strict=True) if line != now]
    assert all("import DebugMode" in line or "device='cuda'" in line for line in changed), changed
    compile("\n".join(after), name, "exec")


def test_divergence_is_found(place: Given) -> None:
    """The search block on a program whose second kernel is given another number in its second run."""
    factors = count(1)
    steps = [torch.compile(f) for f in (lambda x, n: x.abs(), lambda x, n: x * n, lambda x, n: x.exp())]

    def program(inputs: torch.Tensor) -> torch.Tensor:
        result, number = inputs, torch.tensor(float(next(factors)))
        for step in steps:
            result = step(result, number)
        return result

    program(torch.ones(8, 8, requires_grad=True)).sum().backward()
    space, printed = seed_blocks.run("debugging non-determinism", place, compiled_fn=program)
    names = [c.kernel_name for c in space["triton_calls1"][:3]]
    assert names == ["cpp_fused_abs_0", "cpp_fused_mul_0", "cpp_fused_exp_0"]
    found = [line for line in printed.splitlines() if "DIVERGENCE" in line]
    assert found[0] == "FIRST DIVERGENCE at kernel 1: cpp_fused_mul_0"


def test_pattern_2_on_equal_runs_is_silent(place: Given) -> None:
    name = "pattern 2: find non-deterministic kernel"
    calls = seed_blocks.open_names(name, place)["calls1"]
    _, printed = seed_blocks.run(name, place, calls1=calls, calls2=calls)
    assert printed == ""


def test_an_unmet_claim_is_noticed(place: Given) -> None:
    """The checks can fail: here the list of calls is empty, and the arguments are swapped."""
    name = "pattern 1: quick output check"
    space, printed = seed_blocks.run(name, place, compiled_fn=lambda x: x)
    with pytest.raises(AssertionError, match="no cpp call"):
        CHECKS[name](space, printed, place)
