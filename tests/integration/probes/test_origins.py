"""Every call knows the user's line that it comes from, and it is the right one.

Inductor writes the launch of a C++ kernel down only after it has entered the node that comes next, so the
entry that stands before the launch is often that node's; and its cache keeps the stack of the program that
was compiled first.
"""

from __future__ import annotations

import inspect
import json
import linecache
import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.torch_release import RELEASE
from tests.support.warm_python import WarmPython
from torch import Tensor
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_inductor_cache
from torch.nn import functional as F

import kernelscope
from kernelscope import KernelCall

HERE = Path(__file__)
SRC = HERE.parents[3] / "src"


def block(x: Tensor, w: Tensor) -> Tensor:
    a = torch.sin(x)
    b = a @ w
    c = torch.cos(b)
    d = c @ w
    return torch.tanh(d)


FORWARD = [
    ("cpp_fused_sin_0", "a = torch.sin(x)"),
    ("extern_kernels.mm", "b = a @ w"),
    ("cpp_fused_cos_1", "c = torch.cos(b)"),
    ("extern_kernels.mm", "d = c @ w"),
    ("cpp_fused_tanh_2", "return torch.tanh(d)"),
]
BACKWARD = [
    ("cpp_fused_tanh_backward_0", "return torch.tanh(d)"),
    ("extern_kernels.mm", "d = c @ w"),
    ("extern_kernels.mm", "d = c @ w"),
    ("cpp_fused_mul_neg_sin_1", "c = torch.cos(b)"),
    # The product and the sum of the two gradients of w; torch 2.11 says where the sum comes from.
    ("extern_kernels.addmm", "b = a @ w" if RELEASE > (2, 11) else "c = torch.cos(b)"),
]


def text_at(call: KernelCall) -> str:
    assert call.origin is not None, f"{call} has no origin"
    return Path(call.origin.file).read_text().splitlines()[call.origin.line - 1].strip()


def seen(calls: list[KernelCall]) -> list[tuple[str, str]]:
    return [(c.kernel_name, text_at(c)) for c in calls]


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(8, 8, generator=generator), torch.randn(8, 8, generator=generator)
    return x, w.requires_grad_()


def step(function: Callable[..., Tensor]) -> None:
    function(*inputs()).sum().backward()


@pytest.fixture(scope="module")
def compiled() -> Callable[..., Tensor]:
    function: Callable[..., Tensor] = torch.compile(block)
    step(function)
    return function


def test_compiled_before_the_recording(compiled: Callable[..., Tensor]) -> None:
    with kernelscope.record() as run:
        step(compiled)
    assert seen(run.calls) == FORWARD + BACKWARD
    assert [c.phase for c in run.calls] == ["forward"] * len(FORWARD) + ["backward"] * len(BACKWARD)
    assert {c.origin.function for c in run.calls if c.origin} == {"block"}
    assert {Path(c.origin.file) for c in run.calls if c.origin} == {HERE}


def test_compiled_inside_the_recording(compiled: Callable[..., Tensor]) -> None:
    """Another compilation of the same function: from the cache, and with another id."""
    torch._dynamo.reset()
    with kernelscope.record() as run:
        step(torch.compile(block))
        step(compiled)
    assert seen(run.calls) == (FORWARD + BACKWARD) * 2


def test_after_a_fresh_cache() -> None:
    """`PyCodeCache.modules` is empty after the block; the function compiled in it lives on."""
    torch._dynamo.reset()
    function = torch.compile(block)
    with fresh_inductor_cache(), torch.no_grad():
        function(*inputs())
    with kernelscope.record() as run, torch.no_grad():
        function(*inputs())
    assert seen(run.calls) == FORWARD


def dropped(x: Tensor, w: Tensor) -> Tensor:
    a = torch.sin(x)
    b = a @ w
    c = F.dropout(torch.exp(b), 0.5)
    return torch.sort(c).values


def test_the_seed_belongs_to_the_line_that_uses_it() -> None:
    """The node that draws it has no stack, and stands before everything else."""
    function = torch.compile(dropped)
    with kernelscope.record() as run, torch.no_grad():
        function(*inputs())
    lines = dict(seen(run.calls))
    assert lines["aten.randint.low_out"] == "c = F.dropout(torch.exp(b), 0.5)"
    assert lines["aten.sort.stable"] == "return torch.sort(c).values"
    [fused] = [text for name, text in lines.items() if name.startswith("cpp_fused_") and "exp" in name]
    assert fused == "c = F.dropout(torch.exp(b), 0.5)"


def rewritten(x: Tensor, w: Tensor) -> Tensor:
    both = torch.cat([x @ x, x @ w], 1)
    return torch.tanh(both)


def test_nodes_that_a_pass_inserted_still_have_a_line() -> None:
    """A pass moves tanh before cat and gives the new nodes no stack: a line close by is better than none."""
    function = torch.compile(rewritten)
    with kernelscope.record() as run, torch.no_grad():
        function(*inputs())
    source, first = inspect.getsourcelines(rewritten)
    for call in run.calls:
        assert call.origin is not None
        assert first < call.origin.line < first + len(source)


class Norm(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


def test_a_module_of_the_library_is_at_the_users_line() -> None:
    module = torch.compile(Norm())
    with kernelscope.record() as run, torch.no_grad():
        module(torch.randn(4, 8))
    for call in run.calls:
        assert text_at(call) == "return self.norm(x)"


# -- Inductor's cache keeps the stack of the first compilation -------------------------------------------

PROGRAM = textwrap.dedent(
    """
    import json, sys
    import torch, kernelscope
    from torch._dynamo.utils import counters

    def block(x, w):
        a = torch.sin(x)
        b = a @ w
        c = torch.cos(b)
        d = c @ w
        return torch.tanh(d)

    function = torch.compile(block)
    w = torch.ones(8, 8, requires_grad=True)
    with kernelscope.record() as run:
        function(torch.ones(8, 8), w).sum().backward()
    lines = open(__file__).read().splitlines()
    texts = [(c.kernel_name, lines[c.origin.line - 1].strip(), c.origin.file) for c in run.calls]
    misses = counters["inductor"]["fxgraph_cache_miss"] + counters["aot_autograd"]["autograd_cache_miss"]
    print(json.dumps({"texts": texts, "misses": misses}))
    """
)


def printed(python: WarmPython, program: Path, cache: Path) -> dict[str, Any]:
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(cache), "PYTHONPATH": str(SRC)}
    done = python.run(program, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_another_process_with_a_warm_cache_also_after_the_file_was_edited(
    tmp_path: Path, warm_python: WarmPython
) -> None:
    program, cache = tmp_path / "program.py", tmp_path / "cache"
    program.write_text(PROGRAM)
    cold = printed(warm_python, program, cache)
    assert cold["misses"] > 0
    assert [(name, text) for name, text, _ in cold["texts"]] == FORWARD + BACKWARD
    warm = printed(warm_python, program, cache)
    program.write_text("# a line\n# and another\n" + PROGRAM)
    moved = printed(warm_python, program, cache)
    for later in (warm, moved):
        assert later["misses"] == 0, "this was to be a test of a warm cache"
        assert later["texts"] == cold["texts"]
    assert {file for *_, file in cold["texts"]} == {str(program)}


def one(x: Tensor) -> Tensor:
    return torch.erf(x) @ x


def other(x: Tensor) -> Tensor:
    return torch.erf(x) @ x


def test_two_functions_with_the_same_graph() -> None:
    torch.compile(one)(torch.ones(8, 8))
    with kernelscope.record() as run:
        torch.compile(other)(torch.ones(8, 8))
    assert {c.origin.function for c in run.calls if c.origin} == {"other"}


def inner(x: Tensor) -> Tensor:
    y = torch.erf(x) @ x
    return y.cosh()


def copy_of_inner(x: Tensor) -> Tensor:
    # One line further down, and written otherwise.
    y = (torch.erf(x)  @  x)  # fmt: skip
    return y.cosh()


def renamed_inner(t: Tensor) -> Tensor:
    product = torch.erf(t) @ t
    return product.cosh()


def calls_inner(x: Tensor) -> Tensor:
    return inner(x) @ x


def calls_copy(x: Tensor) -> Tensor:
    return copy_of_inner(x) @ x


class CallsRenamed(torch.nn.Module):
    def forward(self, t: Tensor) -> Tensor:
        return renamed_inner(t) @ t


@pytest.mark.parametrize(
    ("program", "names"),
    [(calls_copy, {"copy_of_inner", "calls_copy"}), (CallsRenamed(), {"renamed_inner", "forward"})],
)
def test_a_graph_of_another_program_has_the_lines_of_this_one(
    program: Callable[[Tensor], Tensor], names: set[str]
) -> None:
    """Also in the functions that it calls; with the same variables autograd's cache answers, too."""
    with fresh_inductor_cache():
        torch.compile(calls_inner)(torch.ones(8, 8, requires_grad=True)).sum().backward()
        torch._dynamo.reset()
        misses = counters["inductor"]["fxgraph_cache_miss"]
        with kernelscope.record() as run:
            torch.compile(program)(torch.ones(8, 8, requires_grad=True)).sum().backward()
    assert counters["inductor"]["fxgraph_cache_miss"] == misses, "this was to be a test of a warm cache"
    assert {c.phase for c in run.calls} == {"forward", "backward"}
    origins = [frame for c in run.calls for frame in c.site.origin if Path(frame.file) == HERE]
    assert {frame.function for frame in origins} == names
    firsts = {c.origin.function for c in run.calls if c.origin}
    assert firsts == names
    for function in names:
        code: Any = getattr(program, function, None) or globals()[function]
        source, start = inspect.getsourcelines(code)
        lines = {frame.line for frame in origins if frame.function == function}
        assert all(start < line < start + len(source) for line in lines), (function, lines)
    products = [text_at(c) for c in run.calls if c.kernel_name == "extern_kernels.mm"]
    assert products[0] in {"y = (torch.erf(x)  @  x)  # fmt: skip", "product = torch.erf(t) @ t"}


def test_a_module_made_of_the_library_alone_has_the_callers_line() -> None:
    model = torch.compile(torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.GELU()))
    step = torch.compile(torch.optim.SGD(model.parameters()).step)
    with kernelscope.record() as run:
        model(torch.ones(2, 16)).sum().backward()
        step()
    texts = {linecache.getline(c.origin.file, c.origin.line).strip() for c in run.calls if c.origin}
    assert all(c.origin is not None for c in run.calls)
    assert texts == {"model(torch.ones(2, 16)).sum().backward()", "step()"}


def test_graphs_are_numbered_within_a_run() -> None:
    f = torch.compile(lambda x: x.sin() + 2)
    for _ in range(2):
        with kernelscope.record() as run:
            f(torch.ones(3))
        assert [g.id for g in run.graphs] == [0]
        assert run.select(graph=0) == run.calls
