"""What `kernelscope repro` reads out of printed graphs and wrappers."""

from __future__ import annotations

from kernelscope.generated_code.printed_graph import read_fx, slice_of
from kernelscope.generated_code.wrapper import Result, View, Wrapper
from kernelscope.repro.launch_code import launch_at, needed
from kernelscope.repro.one_call import uniquely
from kernelscope.repro.sizes import learn, value_of

GRAPH = """
class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "Sym(s77)", arg1_1: "f32[s77, 8][8, 1]cpu", arg2_1: "f32[8][1]cpu"):
        # File: a.py:1 in f, code: x.sin()
        sin: "f32[s77, 8][8, 1]cpu" = torch.ops.aten.sin.default(arg1_1)
        add: "f32[s77, 8][8, 1]cpu" = torch.ops.aten.add.Tensor(sin, arg2_1);  sin = arg2_1 = None
        seeds: "i64[2][1]cpu" = torch.ops.prims.inductor_seeds.default(2, device(type='cpu'))
        seed: "i64[][]cpu" = torch.ops.prims.inductor_lookup_seed.default(seeds, 0);  seeds = None
        rand: "f32[8][1]cpu" = torch.ops.prims.inductor_random.default([8], seed, 'rand');  seed = None
        mul: "f32[s77, 8][8, 1]cpu" = torch.ops.aten.mul.Tensor(add, rand);  rand = None
        copy_: "f32[s77, 8][8, 1]cpu" = torch.ops.aten.copy_.default(arg1_1, add);  arg1_1 = copy_ = None
        return (mul, add)

    class true_graph_0(torch.nn.Module):
        def forward(self, arg0_1: "f32[8][1]cpu"):
            exp: "f32[8][1]cpu" = torch.ops.aten.exp.default(arg0_1);  arg0_1 = None
            return (exp,)
"""

WRAPPER = """
from torch._inductor.async_compile import AsyncCompile
import torch
async_compile = AsyncCompile()
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor
other = 1
cpp_fused_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
kernel
''')

def call(args):
    arg0_1, arg1_1 = args
    buf0 = empty(8)
    cpp_fused_0(arg0_1, buf0, s77)
    buf1 = buf0; del buf0  # reuse
    extern_kernels.mm(reinterpret_tensor(buf1, (8, 1), (1, 8), 0), buf1, out=buf2)
    buf3 = torch.ops.aten.topk.default(buf2, 3)
    buf4 = buf3[0]
    buf5 = buf3[1]
    return (buf4, reinterpret_tensor(buf1, (4, 2), (2, 1), 0), )
"""


def test_a_printed_graph() -> None:
    graph = read_fx(GRAPH)
    assert graph.symbols == {"arg0_1": "s77"}
    assert graph.inputs["arg1_1"] == ("s77", "8")
    assert graph.results == ("mul", "add")
    assert graph.last_write("arg1_1") == ("copy_", "copy_")
    part = slice_of(graph, "add", frozenset({"arg1_1", "arg2_1"}))
    assert [line.name for line in part.lines] == ["sin", "add"]
    assert not part.missing
    assert slice_of(graph, "add", frozenset({"sin", "arg2_1"})).given == ("sin", "arg2_1")
    assert slice_of(graph, "mul", frozenset({"add"})).missing == ("seeds",), "seeds are not drawn again"
    drawn = slice_of(graph, "mul", frozenset({"add", "seeds"}))
    assert [line.name for line in drawn.lines] == ["seed", "rand", "mul"]
    assert slice_of(graph, "add", frozenset({"sin"})).missing == ("arg2_1",)
    body = read_fx(GRAPH, "true_graph_0")
    assert (list(body.inputs), list(body.lines), body.results) == (["arg0_1"], ["exp"], ("exp",))
    assert not read_fx(GRAPH, "false_graph_0").lines
    assert not read_fx("no graph at all").lines
    assert not read_fx("def f(:").lines


def test_lines_that_change_a_tensor() -> None:
    """As Dynamo traces them: without these lines a script computes something else."""
    graph = read_fx(
        "def forward(self, L_x_):\n"
        "    l_x_ = L_x_\n"
        "    l_x_ += 1;  iadd = l_x_\n"
        "    iadd[0] = 5;  setitem = iadd;  setitem = None\n"
        "    return (iadd,)\n"
    )
    assert [line.code for line in graph.lines.values()] == [
        "l_x_ = L_x_", "l_x_ += 1", "iadd = l_x_", "iadd[0] = 5", "setitem = iadd",
    ]  # fmt: skip


WRITING = """
class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[10, 8][8, 1]cpu", arg1_1: "f32[8, 8][8, 1]cpu"):
        as_strided: "f32[8, 8]" = torch.ops.aten.as_strided.default(arg0_1, [8, 8], [8, 1], 8)
        add: "f32[8, 8]" = torch.ops.aten.add.Tensor(as_strided, 1);  as_strided = None
        part: "f32[8, 8]" = torch.ops.aten.as_strided.default(arg0_1, [8, 8], [8, 1], 8)
        copy_: "f32[8, 8]" = torch.ops.aten.copy_.default(part, add);  copy_ = None
        other: "f32[8, 8]" = torch.ops.aten.as_strided.default(arg0_1, [8, 8], [8, 1], 16)
        mul: "f32[8, 8]" = torch.ops.aten.mul.Tensor(other, 2);  other = None
        into = torch.ops.mine.into.default(arg1_1, mul)
        sub: "f32[8, 8]" = torch.ops.aten.sub.Tensor(arg1_1, 2)
        copy__1: "f32[8, 8]" = torch.ops.aten.copy_.default(arg1_1, sub)
        return (mul, sub)
"""


def test_what_is_written_before_it_is_read() -> None:
    graph, given = read_fx(WRITING), frozenset({"arg0_1", "arg1_1"})
    named = [line.name for line in slice_of(graph, "mul", given).lines]
    assert named == ["as_strided", "add", "part", "copy_", "other", "mul"]
    assert [line.name for line in slice_of(graph, "add", given).lines] == ["as_strided", "add"]
    assert [line.name for line in slice_of(graph, "sub", given | {"mul"}).lines] == ["into", "sub"]
    assert graph.is_written("arg0_1"), "a part of it"
    assert not read_fx(GRAPH).is_written("arg2_1")


LISTS = """
class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[3][1]cpu", arg1_1: "f32[2][1]cpu", arg2_1: "f32[3][1]cpu"):
        _foreach_add = torch.ops.aten._foreach_add_.Scalar([arg0_1, arg1_1], 2)
        getitem: "f32[3][1]cpu" = _foreach_add[0];  _foreach_add = None
        mul: "f32[3][1]cpu" = torch.ops.aten.mul.Tensor(getitem, arg2_1);  arg2_1 = None
        _foreach_mul = torch.ops.aten._foreach_mul.Scalar([arg1_1, getitem], 3);  arg1_1 = None
        return (mul, _foreach_mul)
"""


def test_a_list_that_is_written_and_not_returned() -> None:
    """Each of its tensors is written, and the items of the result are those tensors."""
    graph = read_fx(LISTS)
    assert graph.lines["_foreach_add"].writes == ("arg0_1", "arg1_1")
    assert graph.lines["_foreach_mul"].writes == ()
    assert graph.memory_of("getitem") == "arg0_1"
    assert graph.view_of("getitem") == "getitem"
    assert graph.last_write("arg1_1") == ("_foreach_add", "_foreach_add[1]")
    assert graph.last_write("arg2_1") == ("", "")
    assert graph.lines["_foreach_add"].statement == (
        "_foreach_add = [arg0_1, arg1_1]; torch.ops.aten._foreach_add_.Scalar(_foreach_add, 2)"
    )
    assert graph.lines["_foreach_mul"].statement == graph.lines["_foreach_mul"].code


def test_sizes_are_numbers_and_nothing_else() -> None:
    known = {"s0": 4}
    assert value_of("2*s0 + 1", known) == 9
    assert value_of("s0//3", known) == 1
    assert value_of("s0**2 + 1", known) == 17
    assert value_of(7, known) == 7
    for text in ("s1", "s0/0", "__import__('os')", "s0.bit_length()", "9**9**9", "[1]", "(", "s0//0"):
        assert value_of(text, known) is None
    learn(known, ["s0", "s1", "2*s2"], [5, 6, 7])
    assert known == {"s0": 4, "s1": 6}


def test_a_launch_in_a_wrapper() -> None:
    wrapper = Wrapper(WRAPPER)
    line = 1 + WRAPPER.splitlines().index("    cpp_fused_0(arg0_1, buf0, s77)")
    launch = launch_at(
        wrapper, line, [("arg0_1", "in_ptr0"), ("buf0", "out_ptr0"), ("s77", "")], positional=True
    )
    assert launch is not None
    assert launch.call == "cpp_fused_0(in_ptr0, out_ptr0, s77)"
    assert launch.free == ("cpp_fused_0", "s77")
    code = "\n".join(needed(wrapper, launch.free))
    assert "async_compile = AsyncCompile()" in code
    assert "kernel\n" in code
    assert code.endswith("async_compile.wait(globals())")
    assert "other" not in code
    names = [("buf1", "self"), ("buf1", "mat2"), ("buf2", "out")]
    product = launch_at(wrapper, line + 2, names, positional=False)
    assert product is not None
    assert product.call == "extern_kernels.mm(self, mat2, out=out)"
    assert wrapper.targets(line + 3) == {0: "buf4", 1: "buf5"}
    assert wrapper.results() == [Result("buf4"), Result("buf1", View(("4", "2"), ("2", "1"), "0"))]
    function = wrapper.function_at(line)
    assert function is not None
    assert function.name == "call"
    assert wrapper.is_read_after("buf0", line)
    assert not wrapper.is_read_after("buf0", line + 1), "it is only freed"
    assert wrapper.function_at(1) is None
    assert wrapper.renamed["buf1"] == "buf0"
    assert launch_at(wrapper, 1000, [], positional=True) is None
    assert not Wrapper.of_any_text("no ( python").functions


PARTS = """
def call(args):
    buf2 = empty_strided_cpu((4, 4), (4, 1), torch.float32)
    buf0 = reinterpret_tensor(buf2, (2, 4), (4, 1), 0)  # alias
    cpp_fused_0(arg0_1, buf0)
    buf1 = reinterpret_tensor(buf2, (2, 4), (4, 1), 8)  # alias
    cpp_fused_1(arg0_1, buf1)
    return (buf2, )
"""


def test_who_reads_memory_reads_its_parts() -> None:
    """The parts that a concatenation is made of are never mentioned again."""
    wrapper = Wrapper(PARTS)
    assert wrapper.is_read_after("buf0", 5)
    assert wrapper.is_read_after("buf1", 7)
    assert not wrapper.is_read_after("buf0", 8)
    assert not wrapper.is_read_after("buf9", 5)


def test_names_that_can_be_variables() -> None:
    assert uniquely(["x", "x", "tensors[0]", "0"]) == ["x", "x_2", "tensors_0_", "_0"]
    assert uniquely(["from", "torch"], taken=("torch",)) == ["from_", "torch_2"]
