"""Shadowing on a GPU: Inductor's Triton kernels, cuBLAS, and the user's own kernels."""

# ruff: noqa: E501  # one fault, one line
from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from fnmatch import fnmatchcase
from typing import Any

import pytest
import torch
from tests.integration.faults.planting import Plant, in_call, in_kernel
from tests.programs import clean_programs
from tests.programs import triton_kernels as kernels
from tests.programs.triton_kernels import BLOCK, blocks
from torch import nn
from torch._inductor.utils import fresh_cache

import kernelscope
from kernelscope import ShadowResult


def shadowed(
    fn: Callable[..., Any], *args: Any, backward: bool = False, offload: bool = False
) -> ShadowResult:
    torch._dynamo.reset()
    with fresh_cache(), kernelscope.shadow(offload=offload) as result:
        given = [a.clone().requires_grad_(backward and a.is_floating_point()) for a in args]
        made = torch.compile(fn)(*given)
        if backward:
            made.float().square().sum().backward()
        torch.cuda.synchronize()
    torch._dynamo.reset()
    return result


def data(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", generator=torch.Generator("cuda").manual_seed(0)).to(dtype)


def block(dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    return clean_programs.Block(64, 4).to("cuda", dtype)


CLEAN: dict[str, Callable[[], tuple[Callable[..., Any], list[torch.Tensor], bool]]] = {
    "mlp": lambda: (nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 8)).cuda(), [data(32, 64)], True),
    "block": lambda: (block(torch.float32), [data(2, 64, 64)], True),
    "block in bfloat16": lambda: (block(torch.bfloat16), [data(2, 64, 64, dtype=torch.bfloat16)], True),
    "layer norm": lambda: (nn.LayerNorm(1024).cuda(), [data(64, 1024)], True),
    "softmax": lambda: (lambda x: x.softmax(-1), [data(64, 1000)], True),
    "split reduction": lambda: (lambda x: x.sum() + x.square().mean(), [data(1 << 20)], True),
    "dropout": lambda: (lambda x: nn.functional.dropout(x.sin(), 0.3), [data(64, 100)], True),
    "scatter": lambda: (lambda x, i: torch.zeros(10, 8, device="cuda").index_add(0, i, x), [data(64, 8), torch.arange(64, device="cuda") % 10], True),
    "convolution": lambda: (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).cuda(), [data(4, 3, 16, 16)], True),
    "convolution with a bias, in bfloat16": lambda: (nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(2), nn.LayerNorm(196)).cuda().bfloat16(), [data(4, 3, 16, 16, dtype=torch.bfloat16)], False),
    "convolution with a bias, then in place": lambda: (nn.Sequential(nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Conv2d(4, 8, 1), nn.Hardsigmoid()).cuda(), [data(4, 8, 1, 1)], True),
    "in place": lambda: (lambda x: x.mul_(2).add_(1).sum(0), [data(16, 16)], False),
    "half": lambda: (lambda x: nn.functional.gelu(x * 3) / 7, [data(64, 64, dtype=torch.float16)], True),
}  # fmt: skip


@pytest.mark.parametrize("name", CLEAN)
def test_no_alarm(name: str) -> None:
    fn, args, backward = CLEAN[name]()
    result = shadowed(fn, *args, backward=backward)
    assert not result, str(result)
    assert result.status == 0, str(result)
    assert not [u for u in result.unchecked if not u.kernel_name.startswith("stage")], str(result)


@pytest.mark.parametrize("kernel", ["", "triton_*"])
def test_graphs_of_torch_compile_are_checked_launch_by_launch(kernel: str) -> None:
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 8)).cuda()
    plant = in_kernel(r"0\.7071067811865476", "0.7171067811865476")() if kernel else nullcontext()
    with fresh_cache(), kernelscope.shadow() as result, plant:
        compiled = torch.compile(model, mode="reduce-overhead")
        for _ in range(5):
            compiled(data(32, 64)).square().sum().backward()
    torch._dynamo.reset()
    assert bool(result) == bool(kernel), str(result)
    if kernel:
        assert result.culprit is not None
        assert fnmatchcase(result.culprit.kernel_name, kernel)
    assert not [each for each in result.unchecked if "replay" in each.reason], str(result)
    assert result.counts.launches >= 5 * 4
    assert any("launch by launch" in note for note in result.notes)


def test_references_on_the_cpu() -> None:
    result = shadowed(lambda x: (x @ x).relu().sum(1), data(32, 32), backward=True, offload=True)
    assert not result, str(result)
    assert result.counts.buffers


FAULTS: dict[str, tuple[Callable[..., Any], int, Plant, str, bool]] = {
    "operator": (lambda x, y: x.sin() + y, 2, in_kernel(r"tl_math\.sin\(", "tl_math.cos("), "add", False),
    "constant": (lambda x, y: nn.functional.gelu(x), 1, in_kernel(r"0\.7071067811865476", "0.7171067811865476"), "mul_2", False),
    "mask": (lambda x, y: x.sum(1), 1, in_kernel(r"r0_index < r0_numel", "r0_index < r0_numel - 3"), "sum_1", False),
    "index": (lambda x, y: x[:, 1:] * 2, 1, in_kernel(r"1 \+ x0", "x0"), "mul", False),
    "precision": (lambda x, y: x * y, 2, in_kernel(r"tmp0 \* tmp1", "(tmp0 * tmp1).to(tl.bfloat16).to(tl.float32)"), "mul", False),
    "swapped": (lambda x, y: x - 2 * y, 2, in_call(r"run\(arg(\d)_1, arg(\d)_1", r"run(arg\2_1, arg\1_1"), "sub", False),
    "product": (lambda x, y: x @ y, 2, in_call(r"extern_kernels\.mm\(arg(\d)_1, arg(\d)_1", r"extern_kernels.mm(arg\2_1, arg\1_1"), "mm", False),
    "gradient": (lambda x, y: (x * 3).tanh(), 1, in_kernel(r"3\.0", "2.0", kernel="tanh_backward"), "mul_", True),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(name: str) -> None:
    fn, count, plant, node, backward = FAULTS[name]
    args = [data(100, 100), data(100, 100).cos()][:count]
    with plant() as canary:
        result = shadowed(lambda *given: fn(*given, *([None] * (2 - len(given)))), *args, backward=backward)
    canary.assert_planted()
    assert result.culprit is not None, str(result)
    assert result.culprit.verdict == "wrong-kernel"
    assert result.culprit.node.startswith(node), str(result)
    if canary.kernels:
        assert result.culprit.kernel_name == canary.kernels[0], str(result)
    assert {c.kernel_name for c in result} == {result.culprit.kernel_name}, str(result)


def scale(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    kernels.scale_kernel[blocks(x.numel())](x + 1, BLOCK, out, x.numel(), 3.0)
    return out.relu()


def test_a_users_kernel_is_judged_by_its_own_launch() -> None:
    result = shadowed(scale, data(100))
    assert not result, str(result)
    assert not [u for u in result.unchecked if u.kernel_name == "scale_kernel"], str(result)


def test_a_users_kernel_that_is_launched_wrongly_is_named() -> None:
    with in_call(r"(scale_kernel_0\.run\(\w+, \w+, \d+), 3\.0", r"\1, 2.0")() as canary:
        result = shadowed(scale, data(100))
    canary.assert_planted()
    assert result.culprit is not None, str(result)
    assert (result.culprit.kernel_name, result.culprit.argument) == ("scale_kernel", "out_ptr")


def test_a_custom_operator_that_draws_draws_once() -> None:
    """Shadow executes it again, and the program's next numbers are those of a run without shadow."""
    lib = torch.library.Library("kernelscope_drawing", "DEF")
    executed: list[int] = []

    def draw(x: torch.Tensor) -> torch.Tensor:
        executed.append(1)
        torch.rand(5, device=x.device)
        return x * 2

    lib.define("draw(Tensor x) -> Tensor")
    lib.impl("draw", draw, "CUDA")
    lib.impl("draw", torch.empty_like, "Meta")
    x = data(8)
    try:
        torch.manual_seed(3)
        draw(x)
        expected = torch.rand(4, device="cuda")
        executed.clear()
        torch._dynamo.reset()
        with fresh_cache(), kernelscope.shadow() as result:
            compiled = torch.compile(lambda x: torch.ops.kernelscope_drawing.draw(x.sin()).cos())
            compiled(x)
            executed.clear()
            torch.manual_seed(3)
            compiled(x)
            found = torch.rand(4, device="cuda")
    finally:
        lib._destroy()
        torch._dynamo.reset()
    assert len(executed) > 1
    assert torch.equal(found, expected)
    assert not result.culprits


@pytest.mark.parametrize("layer", [nn.GRU, nn.LSTM])
@pytest.mark.parametrize("chance", [0.0, 0.5])
@torch._dynamo.config.patch(allow_rnn=True)
def test_recurrent_layers_that_a_library_computes(layer: Any, chance: float) -> None:
    """cuDNN has TF32, and drops out inside; torch loses the dropout where it decomposes the layer."""
    torch.manual_seed(0)
    network = layer(8, 8, 2, dropout=chance).cuda()
    result = shadowed(lambda x: network(x)[0], data(5, 3, 8), backward=True)
    assert ["it draws none" in c.reason for c in result.culprits] == [True] * bool(chance), str(result)


class Patches(nn.Module):
    """An image in patches, as a vision transformer begins; the bias of its convolution starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.cut, self.norm = nn.Conv2d(3, 32, 4, 4), nn.LayerNorm(32)
        self.first = nn.Parameter(torch.randn(1, 1, 32))
        nn.init.zeros_(self.cut.bias)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = self.cut(x).flatten(2).transpose(1, 2)
        made: torch.Tensor = self.norm(torch.cat([self.first.expand(len(x), -1, -1), patches], 1))
        return made


def test_a_bias_that_starts_at_zero_is_one_that_the_convolution_lacks() -> None:
    """Inductor adds it later. With the digits of TF32 nobody sees from the values that it is missing."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = Patches().cuda()
    compiled, optimizer = torch.compile(model), torch.optim.SGD(model.parameters(), 1e-2)
    with fresh_cache(), kernelscope.shadow() as result:
        for _ in range(3):
            optimizer.zero_grad()
            made = compiled(data(2, 3, 16, 16))
            (made * data(*made.shape)).mean().backward()
            optimizer.step()
    torch._dynamo.reset()
    assert not result, str(result)


@pytest.mark.parametrize("layer", [nn.GRU, nn.LSTM])
def test_recurrent_layers_round_in_every_step(layer: Any) -> None:
    """In bfloat16 the compiled steps round where a library's do not."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    hidden, head = layer(16, 24, 2, batch_first=True, bidirectional=True).cuda(), nn.Linear(48, 97).cuda()

    def forward(x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = head(hidden(x)[0])
        return made

    with torch._dynamo.config.patch(allow_rnn=True), kernelscope.shadow() as result:
        compiled = torch.compile(forward)
        with torch.autocast("cuda", torch.bfloat16):
            made = compiled(data(2, 6, 16))
        made.float().square().mean().backward()
    torch._dynamo.reset()
    assert not result, str(result)


def test_a_device_with_two_names_has_seeds_of_two_kinds() -> None:
    """`cuda` and `cuda:0`: Inductor makes seeds for each, and numbers them apart."""

    def drawn(x: torch.Tensor) -> torch.Tensor:
        chosen = torch.rand_like(x) * torch.randint(0, 3, x.shape, device="cuda")
        return x + chosen + torch.bernoulli(x.sigmoid()) + torch.randn(4, device="cuda").sum()

    result = kernelscope.check_correctness(drawn, (data(32, 16),))
    assert result.status == 0, str(result)
    assert result.counts.regions == 1
