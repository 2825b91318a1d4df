"""Random programs with views, judged by shadow: no alarm, and a fault in any launch is named."""

from __future__ import annotations

import random

import torch
from tests.integration.faults.wrong_element import wrong_element
from tests.programs.bare_results import fails_alone, is_true_alarm
from tests.programs.random_views import RandomProgram, random_program

import kernelscope
from kernelscope import ShadowResult


def left_out(result: ShadowResult) -> list[str]:
    return [str(u) for u in result.unchecked if not u.kernel_name.startswith("stage")]


def assert_clean(result: ShadowResult) -> None:
    assert not result, str(result)
    assert not left_out(result), str(result)


def shadowed(program: RandomProgram, device: str) -> tuple[ShadowResult, list[torch.Tensor]]:
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        made = program.run(torch.compile(program.function(), dynamic=program.dynamic), device)
    return result, made


def assert_judged_right(seed: int, device: str = "cpu") -> None:
    """Clean without a fault; with one in any launch, that launch is named."""
    program, draw = random_program(random.Random(seed)), random.Random(seed)
    try:
        result, made = shadowed(program, device)
    except Exception:
        if fails_alone(program, device):
            return  # torch cannot compile it, with or without kernelscope
        raise
    if result and is_true_alarm(result, program, device):
        return  # a bug of Inductor, named rightly
    assert not result, f"{program.text}\n{result}"
    if not result.counts.launches:
        return  # views alone
    assert not left_out(result), f"{program.text}\n{result}"
    with wrong_element(draw.randrange(result.counts.launches), draw.randrange(1000)) as planted:
        wrong, others = shadowed(program, device)
    if not planted.kernel or (not wrong and _same(made, others)):
        return  # an operator of ATen, or an output that is not read
    named = {name for c in wrong.culprits for name in (c.kernel_name, *c.joined)}
    assert planted.kernel in named, f"{planted.kernel}\n{program.text}\n{wrong}"


def _same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in zip(a, b, strict=True))
