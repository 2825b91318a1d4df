"""What `kernelscope repro` reads out of printed graphs and wrappers."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import torch
from tests.support.training_runs import write_training

import kernelscope
from kernelscope.cli import main
from kernelscope.generated_code.printed_graph import read_fx, slice_of
from kernelscope.generated_code.wrapper import Result, View, Wrapper
from kernelscope.repro import files, script_parts
from kernelscope.repro.embedded.rounding import Reference, allowance, difference
from kernelscope.repro.embedded.tensors import arguments
from kernelscope.repro.launch_code import launch_at, needed
from kernelscope.repro.one_call import call_script, uniquely
from kernelscope.repro.sizes import learn, value_of
from kernelscope.store import folder

Capture = pytest.CaptureFixture[str]

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
    assert graph.last_write("arg1_1") == "copy_"
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


def test_arguments_that_share_memory() -> None:
    spec = {"dtype": "float32", "shape": (2,), "stride": (1,), "memory": "a"}
    given = {
        "a": spec | {"role": "in", "values": [1.0, 2.0]},
        "b": spec | {"role": "out", "offset": 1},
        "c": {"dtype": "float32", "shape": (2, 2), "stride": (1, 2), "role": "in", "values": [1, 2, 3, 4]},
    }
    made = arguments(given, {})
    made["b"][0] = 7
    assert made["a"].tolist() == [1, 7]
    assert made["c"].tolist() == [[1, 2], [3, 4]]
    assert made["c"].stride() == (1, 2)
    assert torch.isnan(made["b"][1]), "memory that holds nothing is not zero by chance"


def test_arguments_of_any_layout_and_dtype() -> None:
    def made(dtype: str, shape: tuple[int, ...], stride: tuple[int, ...], **more: object) -> torch.Tensor:
        about = {"role": "in", "dtype": dtype, "shape": shape, "stride": stride} | more
        return arguments({"x": about}, {})["x"]

    expanded = made("float32", (3, 2), (0, 1), values=[1.0, 2.0] * 3)
    assert expanded.tolist() == [[1, 2]] * 3
    assert expanded.stride() == (0, 1)
    assert made("float32", (), (), values=[2.5]).item() == 2.5
    assert made("float32", (0, 3), (3, 1)).shape == (0, 3)
    assert made("float8_e4m3fn", (2,), (1,), values=[1.0, -2.0]).float().tolist() == [1, -2]
    drawn = {"seed": 1, "min": 0.5, "max": 2.0, "mean": 1.0, "std": 0.3}
    turned = made("complex64", (50,), (1,), **drawn).abs()
    assert 0.49 < float(turned.min()) <= float(turned.max()) < 2.01
    odd = made("float32", (50,), (1,), **drawn, special={"nan": 3, "-inf": 2, "0": 7})
    assert [int(n) for n in (odd.isnan().sum(), odd.isneginf().sum(), (odd == 0).sum())] == [3, 2, 7]
    largest = made("int64", (4,), (1,), **drawn | {"min": -float(1 << 63), "max": float(1 << 63)})
    assert largest.dtype == torch.int64


def test_complex_and_8_bit_results_are_compared_by_rounding_too() -> None:
    exact = torch.randn(100, dtype=torch.complex128)
    right = exact.to(torch.complex64)
    allowed = allowance(right, exact, [], 1.0)
    assert difference(right * (1 + 1e-7), right, exact, allowed) == ""
    wrong = right.clone()
    wrong[3] += 1e-3j
    assert "1 of 100 elements differ; worst at [3]" in difference(wrong, right, exact, allowed)
    narrow = torch.randn(100, dtype=torch.float64)
    eighth = narrow.to(torch.float8_e4m3fn)
    allowed = allowance(eighth, narrow, [], 1.0)
    assert difference(eighth, eighth, narrow, allowed) == ""
    assert "elements differ" in difference((narrow + 1).to(eighth.dtype), eighth, narrow, allowed)
    ties = torch.tensor([2, 3, 4])
    unsure = allowance(ties, torch.tensor([2, 3, 5]), [ties], 1.0)
    assert difference(torch.tensor([2, 3, 5]), ties, ties, unsure) == "", "a tie that rounding decides"
    assert "1 of 3 elements differ" in difference(torch.tensor([2, 4, 4]), ties, ties, unsure)
    assert "should have [3]" in difference(torch.ones(2), torch.ones(3), None, None)


def test_rounding_is_no_difference_and_a_wrong_digit_is() -> None:
    exact = torch.rand(100, dtype=torch.float64) + 1
    right = exact.float()
    allowed = allowance(right, exact, [], 1.0)
    assert difference(right + 1e-7, right, exact, allowed) == ""
    wrong = right.clone()
    wrong[3] *= 1.0001
    assert "1 of 100 elements differ; worst at [3]" in difference(wrong, right, exact, allowed)
    wrong[3] = torch.nan
    assert "nan, not" in difference(wrong, right, exact, allowed)
    assert difference(torch.tensor([1, 2]), torch.tensor([1, 3]), None, None)
    assert "torch.float64 and should be torch.float32" in difference(exact, right, exact, allowed)


def test_rounding_in_between_is_no_difference_either() -> None:
    """What cancels is rounded in another order, and what is exact is not shaken."""

    def eager(x: torch.Tensor, count: torch.Tensor) -> dict[str, torch.Tensor]:
        threefold = x * 3
        return {
            "nothing": x.sum() - x.flip(0).sum(),
            "far": (x + 1e4).sub_(1e4),
            "near": threefold,
            "top": threefold.amax() == threefold,
            "all": count.sum() == 300,
            "odd": (1 - x.sigmoid().neg().add(1)).log(),
        }

    x = torch.randn(300, generator=torch.Generator().manual_seed(0))
    x[7] = -17.5
    given = {"x": x, "count": torch.ones(300)}
    known = Reference(eager, lambda: {name: value.clone() for name, value in given.items()})

    def said(name: str, made: torch.Tensor) -> str:
        return difference(made, known.right[name], known.exact[name], known.allowed(name))

    assert not said("nothing", torch.tensor(2e-5))
    assert said("nothing", torch.tensor(1e-2))
    assert not said("far", known.right["far"] + 1e-3)
    assert said("far", known.right["far"] + 1e-1)
    assert said("near", known.right["near"] * 1.0001)
    for name in ("top", "all"):
        assert not known.allowed(name).any(), "whatever is rounded, this is decided"
        assert said(name, ~known.right[name])
    one_less = known.right["odd"].clone()
    one_less[7] = -16.6
    assert not said("odd", one_less), "1 - p, of a p that is nearly 1"
    one_less[8] = torch.nan
    assert "1 of 300 elements differ; worst at [8]: nan" in said("odd", one_less)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    with kernelscope.record(ops="all", values="save", path=tmp_path / "saved"):
        torch.arange(6.0).add_(1)
    with kernelscope.record(ops="all", path=tmp_path / "bare"):
        torch.arange(6.0).add_(1)
    return tmp_path


def test_what_it_says_of_bad_input(recorded: Path, capsys: Capture) -> None:
    def said(*words: str) -> str:
        assert main(["repro", *words]) == 2
        return capsys.readouterr().err

    assert "give either --call N" in said("saved.kscope")
    assert "has no call 99; it has 2 calls" in said("saved.kscope", "--call", "99")
    assert "has no graph 7; it has none" in said("saved.kscope", "--graph", "7")
    assert "kernelscope run --values save" in said("bare.kscope", "--call", "1")
    with pytest.raises(SystemExit):
        main(["repro", "saved.kscope", "--call", "1", "--import", "a; b"])
    assert "give the name of a module" in capsys.readouterr().err
    assert main(["repro", "saved.kscope", "--call", "1"]) == 0
    assert "not overwritten" in said("saved.kscope", "--call", "1")
    assert main(["issue", "saved.kscope", "--reduced", "nowhere"]) == 2
    assert "nowhere was not written by `kernelscope reduce`" in capsys.readouterr().err


def test_what_reduce_says_of_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "a.py"
    script.write_text("print(1)")

    def said(*words: str) -> str:
        assert main(["reduce", *words]) == 2
        return capsys.readouterr().err

    assert "nothing to run" in said()
    assert "there is no script nowhere.py" in said("nowhere.py")
    assert "nothing to resume" in said("--resume", "a.py")
    assert "use at least 1" in said("--repeats", "0", "a.py")
    (tmp_path / "a-reduced").mkdir()
    assert "add --resume to continue" in said("a.py")


def status_of(path: Path, capsys: Capture) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(path), run_name="__main__")
    return int(left.value.code), capsys.readouterr().out


def test_scripts_of_eager_operators(tmp_path: Path, capsys: Capture) -> None:
    """Lists of tensors, dtypes, memory that is shared, names that are words of Python, a path with quotes."""
    folder = tmp_path / 'it\'s a "folder"'
    with kernelscope.record(ops="all", values="save", path=tmp_path / "r"):
        x = torch.arange(12.0).reshape(3, 4)
        torch.cat([x, x[1:]])
        x.to(torch.bfloat16)
        x[:, torch.tensor([0, 2])]
        x[1:].add_(x[:2].clone())
        torch.empty(0, 3).sum(0)
        torch.view_as_complex(x.reshape(3, 2, 2)).exp()
        (x.expand(2, 3, 4) * 2).float()
        torch.full((2,), float("-inf")).random_(3, 5)
    run = kernelscope.load(tmp_path / "r.kscope")
    statuses = {}
    for call in run.calls:
        path = files.write(call_script(run, call.index), folder / str(call.index))
        assert "kernelscope" not in path.read_text().partition("Written by kernelscope")[2]
        status, said = status_of(path, capsys)
        statuses.setdefault(call.kernel_name, status)
        assert status == 0 or call.kernel_name == "aten.random_.from", said
    wanted = {
        "aten.cat.default",
        "aten._to_copy.default",
        "aten.index.Tensor",
        "aten.add_.Tensor",
        "aten.exp.default",
    }
    assert wanted <= statuses.keys()
    assert statuses["aten.random_.from"] == 2, "nothing to compare it with"


def test_settings_that_are_no_words_keep_their_type() -> None:
    """A run has the text of a list; a script that set the text would make torch fail."""
    notes: list[str] = []
    found = {
        "aot_inductor.metadata": "{'AOTI_DEVICE_KEY': 'cpu'}", "cpp.cxx": "(None, 'g++')", "post": "<a pass>",
        "aot_inductor.filtered_kernel_names": "a,b", "max_autotune_gemm_backends": "ATEN", "cpp.simdlen": 8,
    }  # fmt: skip
    lines = script_parts.settings(found, notes)
    assert [line.partition("config.")[2] for line in lines if " = " in line] == [
        "aot_inductor.metadata = {'AOTI_DEVICE_KEY': 'cpu'}",
        "cpp.cxx = (None, 'g++')",
        "aot_inductor.filtered_kernel_names = 'a,b'",
        "max_autotune_gemm_backends = 'ATEN'",
        "cpp.simdlen = 8",
    ]
    assert notes == ["Inductor's setting post is left out: <a pass>"]


def test_an_issue_of_a_plain_run_says_which_command_tells_more(tmp_path: Path, capsys: Capture) -> None:
    path = write_training(tmp_path / "train-1.kscope", findings=False)
    words = (sys.executable, "train.py", "--epochs", "1")
    folder.write_invocation(path, folder.Invocation(words, str(tmp_path), 1, 2, 1))
    assert main(["issue", str(path), "-o", str(tmp_path / "bug")]) == 0
    out = capsys.readouterr().out
    assert "kernelscope shadow train.py --epochs 1 compares each kernel with eager" in out
    assert "kernelscope reduce train.py --epochs 1, then kernelscope issue --reduced DIR" in out
    report = (tmp_path / "bug" / "issue.md").read_text()
    assert "the program ended with status 1" in report
    assert "kernelscope shadow" not in report  # it is for whoever writes the report
