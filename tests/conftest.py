"""Nothing that a test installs or sets in torch or triton may outlive it: checked around every test."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from functools import partial
from operator import is_
from types import FunctionType, MethodType, ModuleType

import pytest

from tests.support.distribution import pytest_collection_modifyitems, pytest_xdist_make_scheduler
from tests.support.warm_python import WarmPython

__all__ = ["pytest_collection_modifyitems", "pytest_xdist_make_scheduler"]  # hooks

# The key that signs runs: not that of whoever runs the tests. Processes that tests start have the same.
made_state = ""
if "KERNELSCOPE_TESTS_STATE" not in os.environ:
    made_state = os.environ["KERNELSCOPE_TESTS_STATE"] = tempfile.mkdtemp(prefix="kernelscope-state-")
os.environ["XDG_STATE_HOME"] = os.environ["KERNELSCOPE_TESTS_STATE"]
ENVIRONMENT = dict(os.environ)  # before tests set variables

# A job in the background of a shell ignores the keyboard's signals, as does what it starts. Tests send them.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)

if importlib.util.find_spec("hypothesis"):  # a machine for tests/gpu may lack it
    from hypothesis import HealthCheck
    from hypothesis import settings as hypothesis_settings

    # Seconds on the clock say how busy the machine is, not whether the code is right.
    hypothesis_settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    hypothesis_settings.load_profile("busy")

# (module, class, methods): what a probe may patch. A module that is not loaded yet is left alone.
PATCH_TARGETS = [
    ("torch._inductor.output_code", "CompiledFxGraph", ("__init__", "__call__", "post_compile")),
    ("torch._inductor.codecache", "PyCodeCache", ("load_by_key_path",)),
    ("torch._inductor.codecache", "CppWrapperCodeCache", ("load_pybinding_async",)),
    ("torch._inductor.codecache", "AotCodeCompiler", ("compile",)),
    ("torch.export.pt2_archive._package", "AOTICompiledModel", ("__call__",)),
    *(("torch._C._aoti", f"AOTIModelContainerRunner{device}", ("run",)) for device in ("Cpu", "Cuda")),
    ("torch._C._aoti", "AOTIModelPackageLoader", ("run", "boxed_run")),
    ("torch._precompile", "PrecompiledModule", ("__call__",)),
    ("torch._dynamo.convert_frame", "CatchErrorsWrapper", ("__call__",)),
    ("torch._inductor.async_compile", "AsyncCompile", ("cpp_pybinding", "wait")),
    ("torch._inductor.graph", "GraphLowering", ("codegen", "save_output_code", "_compile_to_module")),
    (
        "torch.fx.passes.graph_transform_observer",
        "GraphTransformObserver",
        ("apply_gm_pass", "apply_graph_pass"),
    ),
    ("torch._inductor.runtime.triton_heuristics", "CachingAutotuner", ("run", "benchmark_all_configs")),
    ("torch._inductor.codegen.multi_kernel", "MultiKernelCall", ("run",)),
    *(
        (
            "torch._inductor.runtime.benchmarking",
            name,
            ("benchmark", "benchmark_cpu", "benchmark_gpu", "benchmark_gpu_with_cuda_graph"),
        )
        for name in ("Benchmarker", "TritonBenchmarker", "InductorBenchmarker", "TorchProfilerBenchmarker")
    ),
    ("torch.autograd.profiler", "profile", ("_prepare_trace",)),
    ("torch.autograd.profiler", "record_function", ("__enter__", "__exit__")),
    ("torch.utils._config_module", "ConfigModule", ("__setattr__", "__getattr__")),
    (
        "torch.cuda.graphs",
        "CUDAGraph",
        (
            "replay",
            "capture_begin",
            "capture_end",
            "begin_capture_to_if_node",
            "begin_capture_to_while_node",
            "end_capture_to_conditional_node",
        ),
    ),
    ("torch.accelerator.graphs", "Graph", ("replay", "capture_begin", "capture_end")),
    ("torch._inductor.cudagraph_trees", "CUDAGraphNode", ("_copy_inputs_and_remove_from_src",)),
    ("torch._inductor.cudagraph_trees", "CUDAGraphTreeManager", ("_run",)),
    ("torch.distributed", "Work", ("wait",)),
    ("torch._C", "Future", ("then", "add_done_callback")),
    ("threading", "Thread", ("_bootstrap_inner",)),
    ("concurrent.futures.thread", "_WorkItem", ("run",)),
    ("triton.runtime.jit", "KernelInterface", ("__getitem__",)),
    ("triton.runtime.jit", "JITFunction", ("run", "__getitem__")),
    ("triton.runtime.autotuner", "Autotuner", ("run", "_bench", "__getitem__")),
    ("triton.runtime.autotuner", "Heuristics", ("run", "__getitem__")),
    ("triton.runtime.interpreter", "GridExecutor", ("__call__",)),
    ("triton.runtime.interpreter", "InterpretedFunction", ("run", "__call__", "__getitem__")),
    ("torch._inductor.compile_fx", "_InProcessFxCompile", ("codegen_and_compile",)),
    ("torch._inductor.scheduler", "Scheduler", ("__init__", "fuse_nodes")),
    ("torch._inductor.scheduler", "WhyNoFuse", ("__call__",)),
    ("torch._inductor.select_algorithm", "AlgorithmSelectorCache", ("log_results",)),
    (
        "torch.fx.passes.graph_transform_observer",
        "GraphTransformObserver",
        ("apply_gm_pass", "apply_graph_pass"),
    ),
    *(
        ("torch._inductor.ir", name, ("codegen",))
        for name in ("InplaceBernoulliFallback", "ScatterFallback", "IndexPutFallback")
    ),
    ("torch._dynamo.eval_frame", "_NullDecorator", ("__call__",)),
    ("torch._inductor.compiler_bisector", "CompilerBisector", ("disable_subsystem", "get_backend")),
    ("torch._inductor.scheduler", "Scheduler", ("can_fuse", "fuse_two_nodes")),
    ("torch._inductor.select_algorithm", "AlgorithmSelectorCache", ("__call__",)),
    (
        "torch._inductor.runtime.triton_heuristics",
        "CachingAutotuner",
        ("__init__", "autotune_to_one_config"),
    ),
    ("kernelscope.gcu.execution.executor", "CompiledGraph", ("__call__",)),
    ("kernelscope.gcu.execution.executor", "Launch", ("run",)),
    ("kernelscope.gcu.execution.executor", "AtenCall", ("run",)),
    ("kernelscope.gcu.backend", "Inner", ("begin", "compile")),
]
# (module, functions): the same of functions.
PATCHED_FUNCTIONS = [
    ("torch.autograd.profiler", ("_run_on_profiler_start", "_run_on_profiler_stop")),
    ("torch._inductor.compile_fx", ("compile_fx", "_recursive_pre_grad_passes")),
    ("torch._inductor.graph", ("make_fallback",)),
    ("torch._inductor.aoti_eager", ("aoti_compile_with_persistent_cache", "load_aoti_eager_cache")),
    ("torch._precompile", ("_make_inlined_forward",)),
    ("torch._tensor_str", ("_str",)),
    ("torch._dynamo.convert_frame", ("format_error_msg",)),
    ("torch._dynamo.decorators", ("_set_stance",)),
    ("kernelscope.gcu.cache", ("is_fresh",)),
    *(
        (f"torch._inductor.{module}", ("set_kernel_post_grad_provenance_tracing",))
        for module in ("debug", "codegen.cpp", "codegen.triton")
    ),
]
# Where a setting that a test changes and leaves changed would act on the tests after it.
CONFIGS = ("torch._inductor.config", "torch._dynamo.config", "torch._functorch.config")
CHANGED_BY_TORCH = {"torch._inductor.config.aot_inductor.metadata"}  # what AOTInductor notes there stays
GENERATED = "torch._inductor.runtime.compile_tasks."


@dataclass(frozen=True)
class Installed:
    """What is hooked into torch at one moment."""

    methods: dict[str, object]
    counts: dict[str, int]
    wrapper_globals: frozenset[str]
    settings: dict[str, object]


def installed() -> Installed:
    if "torch" not in sys.modules:
        return Installed({}, {}, frozenset(), {})
    return Installed(patched_methods(), hook_counts(), frozenset(our_wrapper_globals()), settings())


def patched_methods() -> dict[str, object]:
    methods = {}
    for module, owner, names in PATCH_TARGETS:
        # The raw attribute: a method that shadows an inherited one is a change too.
        if attributes := getattr(getattr(sys.modules.get(module), owner, None), "__dict__", None):
            methods |= {f"{module}.{owner}.{name}": attributes.get(name) for name in names}
    for module, names in PATCHED_FUNCTIONS:
        if loaded := sys.modules.get(module):
            methods |= {f"{module}.{name}": vars(loaded).get(name) for name in names}
    return methods


def settings() -> dict[str, object]:
    """What torch's settings are, without reading them as a program does: that would change some."""
    unset = getattr(sys.modules.get("torch.utils._config_module"), "_UNSET_SENTINEL", None)
    found: dict[str, object] = {}
    for module in CONFIGS:
        for name, entry in getattr(sys.modules.get(module), "_config", {}).items():
            given = entry.user_override
            given = given.get() if isinstance(given, ContextVar) else given  # as the version of torch has it
            value = entry.default if given is unset else given
            is_open = isinstance(value, list | dict | set)  # and may be changed in its place
            full = f"{module}.{name}"
            value = None if full in CHANGED_BY_TORCH else copy(value) if is_open else value
            found[full] = "missing" if entry.hide else value
    return found


def hook_counts() -> dict[str, int]:
    torch, optimizer = sys.modules["torch"], sys.modules.get("torch.optim.optimizer")
    trace_handlers = logging.getLogger("torch.__trace").handlers
    return {
        "torch dispatch modes": torch._C._len_torch_dispatch_stack(),
        "torch function modes": torch._C._len_torch_function_stack(),
        "torch function overrides off": int(not torch._C._is_torch_function_enabled()),
        "dispatch modes noted by torch": modes_noted(),
        "gradients off": int(not torch.is_grad_enabled()),
        "autocast on": int(torch.is_autocast_enabled("cpu")),
        "deterministic": torch.get_deterministic_debug_mode(),
        "optimizer pre-hooks": len(getattr(optimizer, "_global_optimizer_pre_hooks", ())),
        "optimizer post-hooks": len(getattr(optimizer, "_global_optimizer_post_hooks", ())),
        "torch.__trace handlers": sum(map(made_by_us, trace_handlers)),
    }


def modes_noted() -> int:
    """Whether torch notes for the whole process that some thread is in a mode; Dynamo's guards go by it.

    Two more such notes of torch say less, and programs of several threads leave them set without us.
    """
    module = sys.modules.get("torch.utils._python_dispatch")
    return int(getattr(module, "_is_in_any_mode_without_ignore_compile_internals", False))


def threads_that_write() -> Iterator[threading.Thread]:
    return (thread for thread in threading.enumerate() if thread.name == "kernelscope writer")


@dataclass(frozen=True)
class LookedAt:
    """A generated module as it was when it was last looked at, which takes long where there are hundreds."""

    module: ModuleType
    names: list[str]
    values: list[object]  # kept, so that no other value can be where one of them was
    ours: list[str]

    def is_unchanged(self, module: ModuleType) -> bool:
        now = vars(module)
        return self.module is module and self.names == list(now) and all(map(is_, self.values, now.values()))


looked_at: dict[int, LookedAt] = {}


def our_wrapper_globals() -> Iterator[str]:
    """The globals of generated modules that are ours rather than Inductor's."""
    codecache = sys.modules.get("torch._inductor.codecache")
    found: list[ModuleType] = list(codecache.PyCodeCache.modules) if codecache else []
    found += [sys.modules[name] for name in list(sys.modules) if GENERATED in name]
    modules = {id(module): module for module in found}
    for forgotten in looked_at.keys() - modules.keys():
        del looked_at[forgotten]
    for number, module in modules.items():
        if number not in looked_at or not looked_at[number].is_unchanged(module):
            looked_at[number] = look_at(module)
        yield from looked_at[number].ours


def look_at(module: ModuleType) -> LookedAt:
    now = dict(vars(module))
    ours = [name for name, value in now.items() if name.startswith("_kernelscope") or made_by_us(value)]
    return LookedAt(module, list(now), list(now.values()), [f"{module.__name__}.{name}" for name in ours])


def made_by_us(value: object) -> bool:
    while isinstance(value, partial | MethodType | staticmethod | classmethod):
        value = value.func if isinstance(value, partial) else value.__func__
    # Not __module__: functools.wraps makes that the module of the function it wraps.
    home = value.__globals__.get("__name__") if isinstance(value, FunctionType) else type(value).__module__
    return str(home).partition(".")[0] == "kernelscope"


def left_behind(before: Installed, after: Installed) -> list[str]:
    found = [f"global {name} is ours" for name in after.wrapper_globals - before.wrapper_globals]
    for name, count in after.counts.items():
        if count != before.counts.get(name, 0):
            found.append(f"{name}: {before.counts.get(name, 0)} before, {count} after")
    for name, method in after.methods.items():
        # Of a module that the test itself loaded, we know only whether the method is ours.
        ours = made_by_us(method) and not at_home(name, method)
        if method is not before.methods[name] if name in before.methods else ours:
            found.append(f"{name} is not what it was")
    for name, value in after.settings.items():
        was = before.settings.get(name, value)
        if was is not value and was != value:
            found.append(f"{name} was {was!r:.60} and is {value!r:.60}")
    return sorted(found)


def at_home(name: str, method: object) -> bool:
    """Whether a method is defined where it was found: our own executor's are ours, and no patch."""
    return isinstance(method, FunctionType) and name.startswith(f"{method.__globals__['__name__']}.")


@pytest.fixture(scope="module", autouse=True)
def nothing_compiled() -> None:
    """Dynamo makes shapes dynamic that it has seen change, also when another file's tests changed them."""
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()


def forget_packages() -> None:
    """What torch noted of a package that a test built: runnable graphs of later tests would set it, too."""
    config = sys.modules.get("torch._inductor.config")
    if getattr(getattr(config, "aot_inductor", None), "metadata", None):
        config.aot_inductor.metadata = {}  # type: ignore[union-attr]


@pytest.fixture(autouse=True)
def nothing_survives() -> Iterator[None]:
    before, writing = installed(), set(threads_that_write())
    yield
    forget_packages()
    for thread in (begun := set(threads_that_write()) - writing):
        thread.join(30)  # one that was told to end ends soon, on a busy machine somewhat later
    found = left_behind(before, installed())
    if found := found + [f"a thread that writes: {thread}" for thread in begun if thread.is_alive()]:
        pytest.fail("left behind by this test:\n  " + "\n  ".join(found), pytrace=False)


@pytest.fixture(scope="session")
def warm_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmPython]:
    made = WarmPython(tmp_path_factory.mktemp("warm-python"), ENVIRONMENT)
    yield made
    made.close()


@pytest.fixture
def leftovers() -> Callable[[], list[str]]:
    """What was left behind since the test began, for tests of closing and of this check itself."""
    before = installed()
    return lambda: left_behind(before, installed())


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Names what fails when it happens: a run that is stopped or hangs never comes to its summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nFAILED {report.nodeid} ({report.when})", file=sys.__stderr__, flush=True)


def pytest_unconfigure() -> None:
    if made_state:
        shutil.rmtree(made_state, ignore_errors=True)


def pytest_report_header() -> str:
    names = [name for name in ("torch", "triton", "numpy") if importlib.util.find_spec(name)]
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
