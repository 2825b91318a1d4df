"""Every way in which compiled code comes to run on a CPU: the table of docs/coverage.md, as programs."""
# ruff: noqa: E501  # one way, one line

from __future__ import annotations

import importlib.util
import multiprocessing
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._inductor import config as inductor_config

KERNELS = "every kernel, with names and roles"


@dataclass(frozen=True)
class Way:
    """One way in: what is recorded of it, or the kind of the finding that says what is not."""

    title: str
    program: Callable[[], Any]
    launches: int  # that are recorded
    finding: str = ""  # its kind
    says: str = ""  # words in it
    needs: str = ""  # attribute of torch that it is made of: "compiler.precompile"
    is_slow: bool = False  # it compiles a shared library
    seen: str = KERNELS

    @property
    def exists(self) -> bool:
        held: Any = torch
        for name in self.needs.split(".") if self.needs else ():
            held = getattr(held, name, None)
        return held is not None


def x() -> torch.Tensor:
    return torch.arange(32.0).reshape(4, 8)


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * 2 + 1


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return f(x)


def traced() -> torch.fx.GraphModule:
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(f)(x())


def folder() -> Path:
    return Path(tempfile.mkdtemp())


def precompiled(backend: str = "inductor") -> Callable[[], Any]:
    def run() -> None:
        precompile: Any = torch.compiler.precompile  # type: ignore[attr-defined]
        files = {"artifact_path": folder() / "f.py", "cache_path": folder() / "f.cache"}
        with precompile.capture(f, backend=backend, **files) as capture:
            capture(x())
        loaded = precompile.load(files["artifact_path"], files["cache_path"])
        loaded(x())

    return run


def standalone() -> None:
    torch._inductor.standalone_compile(traced(), [x()], dynamic_shapes="from_example_inputs")(x())


def standalone_loaded() -> None:
    made = torch._inductor.standalone_compile(traced(), [x()], dynamic_shapes="from_example_inputs")
    path = str(folder() / "artifact")
    made.save(path=path, format="unpacked")
    torch._inductor.CompiledArtifact.load(path=path, format="unpacked")(x())


def ahead_of_time() -> None:
    torch.compile(f, fullgraph=True).aot_compile(((x(),), {}))(x())


def package() -> None:
    exported = torch.export.export(Model(), (x(),))
    path = torch._inductor.aoti_compile_and_package(exported, package_path=str(folder() / "m.pt2"))
    torch._inductor.aoti_load_package(path)(x())


def library() -> None:
    path = torch._inductor.aot_compile(torch.export.export(Model(), (x(),)).module(), (x(),))
    torch._C._aoti.AOTIModelContainerRunnerCpu(path, 1).run([x()])


def eager_operator() -> None:
    kernels = torch.library.Library("aten", "IMPL")
    try:
        kernels._impl_with_aoti_compile("abs", "CPU")
        torch.abs(x())
    finally:
        kernels._destroy()


def exported() -> None:
    torch.export.export(Model(), (x(),)).module()(x())


def regions() -> None:
    region = torch.compiler.nested_compile_region(f)
    torch.compile(lambda x: region(region(x)))(x())


def submodules() -> None:
    layers = [Model(), Model()]
    for layer in layers:
        layer.compile()
    layers[1](layers[0](x()))


def annotated_region() -> None:
    from torch._dynamo.backends.common import aot_autograd
    from torch.fx import traceback
    from torch.fx.passes.regional_inductor import regional_inductor

    def partly(x: torch.Tensor) -> torch.Tensor:
        with traceback.annotate({"compile_with_inductor": 0}):
            y = f(x.cos())
        return y + 1

    with traceback.preserve_node_meta(enable=False):
        torch.compile(partly, backend=aot_autograd(fw_compiler=regional_inductor), fullgraph=True)(x())


def from_saved_caches() -> None:
    from torch._inductor.utils import fresh_inductor_cache

    torch.compile(f)(x())
    saved = torch.compiler.save_cache_artifacts()
    assert saved is not None
    torch._dynamo.reset()
    with fresh_inductor_cache():
        torch.compiler.load_cache_artifacts(saved[0])
        torch.compile(f)(x())


def forked() -> None:
    compiled = torch.compile(f)
    compiled(x())
    child = multiprocessing.get_context("fork").Process(target=compiled, args=(x(),))
    child.start()
    child.join()


def with_setting(function: Callable[..., Any] = f, **settings: Any) -> Callable[[], Any]:
    def run() -> None:
        with inductor_config.patch(settings):
            torch.compile(function)(x())

    return run


@torch.library.custom_op("kernelscope_ways::own", mutates_args=())
def own(x: torch.Tensor) -> torch.Tensor:
    return x + 1


own.register_fake(torch.empty_like)


def compiled_autograd() -> None:
    leaf = x().requires_grad_()
    with torch._dynamo.compiled_autograd._enable(torch.compile(fullgraph=True)):
        f(leaf).sum().backward()


def training() -> None:
    leaf = x().requires_grad_()
    torch.compile(lambda x: f(x).sin())(leaf).sum().backward()


def optimizer() -> None:
    weight = x().requires_grad_()
    weight.grad = x()
    torch.compile(torch.optim.SGD([weight], lr=0.1).step)()


def branches() -> None:
    torch.compile(lambda p, x: torch.cond(p, f, lambda x: x.cos(), (x,)))(torch.tensor(True), x())


def switch() -> None:
    from torch._higher_order_ops.switch import switch as chosen

    torch.compile(lambda i, x: chosen(i, [lambda x: x.cos(), f], (x,)))(torch.tensor(1), x())


def while_loop() -> None:
    from torch._higher_order_ops.while_loop import while_loop as loop

    torch.compile(lambda i, x: loop(lambda i, x: i < 2, lambda i, x: (i + 1, x.sin()), (i, x)))(
        torch.tensor(0), x()
    )


def scan() -> None:
    from torch._higher_order_ops.scan import scan as over

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        torch.compile(lambda start, x: over(lambda c, y: (c + y, c * y), start, x))(torch.ones(8), x())


def associative_scan() -> None:
    from torch._higher_order_ops.associative_scan import associative_scan as over

    torch.compile(lambda x: over(lambda a, b: a + b, x, 0, combine_mode="generic"))(x())


def mapped() -> None:
    from torch._higher_order_ops.map import map as over

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        torch.compile(lambda x, y: over(lambda x, y: (x + y).relu(), x, y))(x(), torch.ones(8))


def threads() -> None:
    compiled = torch.compile(f)
    for _ in range(2):
        thread = threading.Thread(target=compiled, args=(x(),))
        thread.start()
        thread.join()


def frozen() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval().double()  # float32 is packed for some CPUs
    with inductor_config.patch(freezing=True), torch.no_grad():
        torch.compile(lambda x: model(x))(x().double())


def dynamic() -> None:
    compiled = torch.compile(f, dynamic=True)
    compiled(x())
    compiled(x()[:3])


def scripted_function(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * 2


def scripted() -> None:
    torch.jit.trace(scripted_function, (x(),))(x())


def own_compiler_of_inductor() -> None:
    from torch._inductor.compile_fx import compile_fx

    torch.compile(f, backend=lambda graph, inputs: compile_fx(graph, inputs))(x())


def disabled_inside() -> None:
    left_out = torch.compiler.disable(f)
    torch.compile(lambda x: f(left_out(f(x))))(x())


def only_disabled() -> None:
    left_out = torch.compiler.disable(f)
    torch.compile(lambda x: left_out(x))(x())


HAS_AOT_COMPILE = hasattr(torch.compile(len), "aot_compile")
HAS_REGIONAL = importlib.util.find_spec("torch.fx.passes.regional_inductor") is not None
HAS_SWITCH = importlib.util.find_spec("torch._higher_order_ops.switch") is not None
NONE = "no kernel; a finding says why"
WAYS = [
    Way("`torch.compile(f)`, forward and backward", training, 2),
    Way("`module.compile()` of some modules (regional compilation)", submodules, 2),
    Way("`torch.compiler.nested_compile_region` (`invoke_subgraph`)", regions, 2, needs="compiler.nested_compile_region"),
    Way("`regional_inductor`: annotated regions of a graph", annotated_region, 1, needs="" if HAS_REGIONAL else "compile.regional", seen="every kernel of the regions, with names and roles"),
    Way("dynamic shapes (`dynamic=True`)", dynamic, 2, is_slow=True),
    Way("functions called on other threads", threads, 2),
    Way('`mode="max-autotune"`', lambda: torch.compile(lambda x: f(x) @ x.T, mode="max-autotune")(x()), 2),
    Way("freezing (`config.freezing`)", frozen, 3, is_slow=True),
    Way("graph partitions (`config.graph_partition`)", with_setting(lambda x: f(own(f(x))), graph_partition=True, custom_should_partition_ops=["kernelscope_ways::own"]), 3),
    Way("C++ wrappers (`config.cpp_wrapper`)", with_setting(cpp_wrapper=True), 1, is_slow=True),
    Way("FX wrappers (`config.fx_wrapper`)", with_setting(lambda x: x @ x.T, fx_wrapper=True), 1),
    Way("`torch._inductor.compile(graph, inputs)`", lambda: torch._inductor.compile(traced(), [x()])(x()), 1),
    Way("`torch._inductor.standalone_compile`", standalone, 1),
    Way("an artifact of `standalone_compile`, saved and loaded", standalone_loaded, 1),
    Way("`torch.compile(f, fullgraph=True).aot_compile`", ahead_of_time, 1, needs="" if HAS_AOT_COMPILE else "compile.aot_compile"),
    Way("an artifact of `torch.compiler.precompile`, loaded", precompiled(), 2, needs="compiler.precompile"),
    Way("`torch.compiler.save_cache_artifacts`, loaded into an empty cache", from_saved_caches, 2),
    Way("`torch.compile` of an exported program's module", lambda: torch.compile(torch.export.export(Model(), (x(),)).module())(x()), 1),
    Way("`torch.export` + `aoti_compile_and_package` + `aoti_load_package`", package, 1, is_slow=True),
    Way("`torch.export` + `aot_compile`, run by an `AOTIModelContainerRunner`", library, 1, is_slow=True),
    Way("a backend of one's own that calls `compile_fx`", own_compiler_of_inductor, 1),
    Way("compiled autograd", compiled_autograd, 1, is_slow=True),
    Way("a compiled optimizer step", optimizer, 1, is_slow=True),
    Way("`torch.cond`", branches, 1),
    Way("`switch`", switch, 2, needs="compiler.precompile" if not HAS_SWITCH else ""),
    Way("`while_loop`", while_loop, 5, is_slow=True),
    Way("`scan`", scan, 10, is_slow=True),
    Way("`associative_scan`", associative_scan, 1, is_slow=True),
    Way("`map`", mapped, 10, is_slow=True),
    Way("a function under `torch.compiler.disable` inside a compiled one", disabled_inside, 2, seen="the kernels around it"),
    Way("a forked process, such as a `DataLoader` worker", forked, 1, "unseen-graph", "forked", seen="the parent's kernels; a finding tells of the child's"),
    Way("nothing but a function under `torch.compiler.disable`", only_disabled, 0, "nothing-compiled", "torch.compiler.disable", seen=NONE),
    Way("`torch.jit` (TorchScript)", scripted, 0, "nothing-compiled", "TorchScript", seen=NONE),
    Way("an exported program's module, not compiled", exported, 0, "nothing-compiled", "torch.compile", seen=NONE),
    Way("eager operators that AOTInductor compiles (`Library._impl_with_aoti_compile`)", eager_operator, 0, "unseen-graph", "AOTInductor", needs="library.Library._impl_with_aoti_compile", is_slow=True, seen=NONE),
    Way("a backend of one's own that makes kernels of an unknown kind", lambda: torch.compile(f, backend=lambda graph, inputs: graph.forward)(x()), 0, "nothing-compiled", "backend", seen=NONE),
    Way('an artifact of `torch.compiler.precompile` with `backend="eager"`', precompiled("eager"), 0, "ran-in-eager", 'backend="eager"', needs="compiler.precompile", seen=NONE),
]  # fmt: skip
