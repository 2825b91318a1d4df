"""Reading generated wrappers: which calls they make, in which words, and that marking changes nothing."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import pytest

from kernelscope.generated_code.calls import PREFIX, ArgText
from kernelscope.generated_code.kernels import GeneratedKernel
from kernelscope.generated_code.wrapper import Wrapper
from kernelscope.probes.python_wrappers import hooked_source
from kernelscope.probes.python_wrappers.hooked_source import Hook, bind, hooked

SOURCE = """
# AOT ID: ['3_forward']
import torch
async_compile = make()

cpp_fused_relu_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r\'\'\'
extern "C" void kernel(const float* in_ptr0, float* out_ptr0) {}
\'\'\')

def partition_0(args):
    buf9, = args
    cpp_fused_relu_0(buf9, buf9)
    return (buf9,)

class Runner:
    def __init__(self, partitions):
        cpp_fused_relu_0(1, 2)

    def call(self, args):
        arg0_1, arg1_1 = args
        buf0 = empty_strided_cpu((4, 4), (4, 1), torch.float32)
        extern_kernels.addmm(arg0_1, reinterpret_tensor(arg1_1, (4, 4), (1, 4), 0), arg0_1, alpha=1, out=buf0)
        del arg1_1
        # a comment
        buf1 = buf0; del buf0  # reuse
        buf2 = torch.ops.mylib.both.default([buf1, arg0_1], -2, None, "text")
        cpp_fused_relu_0(buf1, reinterpret_tensor(buf2, (4, 4), (4, 1), 8 * 2))
        buf1.copy_(buf2[0], False)
        reinterpret_tensor(buf1, (2, 2), (2, 1), 0).zero_()
        return (buf1, )

runner = Runner([])
call = runner.call

def benchmark_compiled_module(times=10):
    cpp_fused_relu_0(3, 4)
"""


def everything(path: str, kernels: Mapping[str, GeneratedKernel]) -> bool:
    return path not in ("make", "reinterpret_tensor", "Runner")


@pytest.fixture
def wrapper() -> Wrapper:
    return Wrapper(SOURCE, "wrapper.py", everything)


def line_of(text: str) -> int:
    [number] = [n for n, line in enumerate(SOURCE.splitlines(), start=1) if text in line]
    return number


def test_every_chosen_call_in_the_order_of_the_text(wrapper: Wrapper) -> None:
    assert [c.path for c in wrapper.callsites] == [
        "cpp_fused_relu_0", "empty_strided_cpu", "extern_kernels.addmm", "torch.ops.mylib.both.default",
        "cpp_fused_relu_0", ".copy_", ".zero_",
    ]  # fmt: skip
    assert len({c.hook for c in wrapper.callsites}) == 7
    assert all(c.hook.startswith(f"{PREFIX}{c.line}_") for c in wrapper.callsites)


def test_lines_are_those_of_the_text(wrapper: Wrapper) -> None:
    lines = [c.line for c in wrapper.callsites[1:]]
    assert lines == [
        line_of(text)
        for text in ("empty_strided_cpu", "extern_kernels.addmm", "mylib", "8 * 2", ".copy_", ".zero_")
    ]


def test_arguments_keep_the_wrappers_words(wrapper: Wrapper) -> None:
    _, empty, addmm, both, kernel, copy, zero = wrapper.callsites
    assert [a.name for a in addmm.args] == ["arg0_1", "arg1_1", "arg0_1"]
    assert addmm.kwargs == {"alpha": ArgText("", True), "out": ArgText("buf0", False)}
    items, number, nothing, text = both.args
    assert items.items == (ArgText("buf1", False), ArgText("arg0_1", False))
    assert (number.literal, nothing.literal, text.literal) == (True, True, True)
    assert [a.name for a in kernel.args] == ["buf1", "buf2"]
    assert [a.name for a in copy.args] == ["buf1", "buf2[0]", ""]
    assert [a.name for a in zero.args] == ["buf1"]
    assert [c.target for c in (empty, addmm, both, kernel)] == ["buf0", "", "buf2", ""]


def test_the_head_and_the_kernels(wrapper: Wrapper) -> None:
    assert wrapper.aot_name == "3_forward"
    kernel = wrapper.kernels["cpp_fused_relu_0"]
    assert kernel.maker == "cpp_pybinding"
    assert kernel.source.strip().startswith('extern "C"')


def test_a_call_that_is_not_chosen_is_left_alone() -> None:
    assert not Wrapper(SOURCE, "wrapper.py", lambda path, kernels: False).callsites


@pytest.mark.parametrize(
    ("statement", "is_static"),
    [
        ("buf0 = empty_strided_cpu((4, 4), (4, 1), torch.float32)", True),
        ("buf0 = empty_strided_cpu((s77, 4), (4, 1), torch.float32)", False),
        ("buf0 = empty_strided_cuda((4, 2*s0), (4, 1), torch.float32)", False),
        ("assert_size_stride(arg0_1, (s77, ), (1, ), 'input')", False),
        ("assert_size_stride(arg0_1, (8, ), (1, ), 'input')", True),
        ("buf0 = alloc_from_pool(pool0, 0, torch.float32, (s0, ), (1, ))", False),
        ("buf0 = alloc_from_pool(pool0, 0, torch.float32, (8, ), (1, ))", True),
        ("buf0 = reinterpret_tensor(arg0_1, (u0, 2), (2, 1), 0)", False),
        ("kernel(arg0_1, s77)", True),
    ],
)
def test_symbols_in_a_shape_make_a_wrapper_dynamic(statement: str, is_static: bool) -> None:
    source = f"def call(args):\n    arg0_1, = args\n    {statement}\n    return (arg0_1,)\n"
    assert Wrapper(source, "w.py", lambda path, kernels: False).is_static is is_static


def test_what_comes_after_a_line(wrapper: Wrapper) -> None:
    after = wrapper.statement_after
    assert after(line_of("extern_kernels.addmm")) == line_of("# reuse"), "neither `del` nor a comment counts"
    assert after(line_of("mylib")) == line_of("8 * 2")
    assert after(line_of(".zero_")) is None, "a return ends it"
    assert after(line_of("cpp_fused_relu_0(buf9")) is None, "another function's statements do not count"


def run(is_hooked: bool) -> list[Any]:
    """What executing the wrapper calls, with the original code or with the marked one."""
    log: list[Any] = []

    class Named:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Named:
            return Named(f"{self._name}.{attribute}")

        def __call__(self, *args: Any, **kwargs: Any) -> Named:
            log.append((self._name, len(args), sorted(kwargs)))
            return Named("result")

        def __getitem__(self, index: int) -> Named:
            return self

    names = ("extern_kernels", "empty_strided_cpu", "reinterpret_tensor")
    namespace: dict[str, Any] = {name: Named(name) for name in names} | {"make": lambda: Named("made")}
    exec(compile(SOURCE.replace("import torch", "torch = extern_kernels"), "wrapper.py", "exec"), namespace)
    runner = namespace["runner"]
    log.clear()
    if is_hooked:
        wrapper = Wrapper(SOURCE, "wrapper.py", everything)
        function = type(runner).call
        original = function.__code__

        def hook(path: str) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                log.append(("hook", path))
                if path.startswith("."):
                    return getattr(args[0], path[1:])(*args[1:], **kwargs)
                root, *rest = path.split(".")
                target = namespace[root]
                for name in rest:
                    target = getattr(target, name)
                return target(*args, **kwargs)

            return call

        hooks = {callsite.hook: Hook(hook(callsite.path)) for callsite in wrapper.callsites}
        before = set(namespace)
        codes = bind(hooked(wrapper, "wrapper.py"), hooks)
        function.__code__ = codes[original.co_qualname, original.co_firstlineno]
        assert set(namespace) == before
    runner.call([Named("arg0_1"), Named("arg1_1")])
    return log


def test_marked_code_calls_the_same_in_the_same_order() -> None:
    marked = run(is_hooked=True)
    assert [entry for entry in marked if entry[0] != "hook"] == run(is_hooked=False)
    assert [path for name, *path in marked if name == "hook"] == [
        ["empty_strided_cpu"], ["extern_kernels.addmm"], ["torch.ops.mylib.both.default"],
        ["cpp_fused_relu_0"], [".copy_"], [".zero_"],
    ]  # fmt: skip


def test_notes_stand_before_launches_that_stay_as_they_were(wrapper: Wrapper) -> None:
    """The text behind a note runs exactly what the wrapper said, receiver and all."""
    log: list[Any] = []

    class Thing:
        def __init__(self, name: str) -> None:
            self._name = name

        def __call__(self, *args: Any, **kwargs: Any) -> Thing:
            log.append((self._name, len(args)))
            return Thing("made")

        def __getattr__(self, name: str) -> Thing:
            return Thing(name)

        def __getitem__(self, key: Any) -> Thing:
            return self

    class Bus:
        def note(self, entry: Any) -> None:
            log.append(entry)

    noted = frozenset(c.hook for c in wrapper.callsites)
    names = {c.steady: c.path for c in wrapper.callsites}
    here = types.SimpleNamespace(graph_call=7)
    thing = Thing("given")
    namespace: dict[str, Any] = {
        "extern_kernels": thing, "torch": thing, "cpp_fused_relu_0": Thing("cpp"),
        "empty_strided_cpu": Thing("empty"), "reinterpret_tensor": lambda *args: thing,
    }  # fmt: skip
    brief = types.SimpleNamespace(pack=lambda *entry: entry)
    clock = types.SimpleNamespace(monotonic_ns=lambda: 5)
    constants = names | {
        hooked_source.BUS: Bus(), hooked_source.HERE: here, hooked_source.TIME: clock,
        hooked_source.COMPACT_CALL: brief,
    }  # fmt: skip
    codes = bind(hooked(wrapper, "wrapper.py", noted), constants)
    code = next(code for (name, _), code in codes.items() if name == "Runner.call")
    call = types.FunctionType(code, namespace)
    call(None, [thing, thing])
    assert log == [
        ("empty_strided_cpu", 7, 5), ("empty", 3), ("extern_kernels.addmm", 7, 5), ("addmm", 3),
        ("torch.ops.mylib.both.default", 7, 5), ("default", 4), ("cpp_fused_relu_0", 7, 5), ("cpp", 2),
        (".copy_", 7, 5), ("copy_", 2), (".zero_", 7, 5), ("zero_", 0),
    ]  # fmt: skip
    before = len(log)
    here.graph_call = -1
    call(None, [thing, thing])
    assert not any(entry[1:] == (-1, 5) for entry in log[before:]), "outside of a graph nothing is noted"


def test_a_launch_inside_an_expression_keeps_its_hook() -> None:
    source = "def call(args):\n    x = outer(inner(1))\n    return launch(x)\n"
    text = Wrapper(source, "w.py", everything)
    [code] = hooked(text, "w.py", frozenset(c.hook for c in text.callsites)).values()
    assert {c.hook for c in text.callsites} <= set(code.co_consts)
    assert not {c.steady for c in text.callsites} & set(code.co_consts)
