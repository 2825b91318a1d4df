"""The trace of a compilation: sections, variables, files, and what happens when something goes wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from tests.support.warm_python import WarmPython

from kernelscope.gcu import Program, backend, load, toolchain
from kernelscope.gcu.choreo import parse, translate
from kernelscope.gcu.debug_tracer import (
    DebugTraceConfig,
    disable_debug_tracing,
    enable_debug_tracing,
    follow_environment,
)
from kernelscope.native.compiler import compiler

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs" / "stages.schema.json").read_text())
TITLES = [
    "FX GRAPH MODULE", "INTERNAL DAG REPRESENTATION", "GENERATED CHOREO DSL CODE", "HOST WRAPPER INTEGRATION",
]  # fmt: skip
HEADINGS = [
    "Generated Code", "Node Details", "Input Tensor Information", "Input Buffers", "Output Buffers",
    "Computation Nodes", "Data Flow Connections", "Complete DSL Implementation", "Function Signature",
    "Buffer Allocation & Memory Management", "Critical Host Wrapper Code",
]  # fmt: skip


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith("CONDUCTOR_")]:
        monkeypatch.delenv(name)
    follow_environment()
    yield
    follow_environment()


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def trace(capsys: pytest.CaptureFixture[str]) -> str:
    """Compile x + y on [2, 4] and give what was printed."""
    torch._dynamo.reset()
    capsys.readouterr()
    x, y = torch.arange(8.0).reshape(2, 4), torch.full((2, 4), 10.0)
    assert torch.equal(torch.compile(add, backend="gcu")(x, y), x + y)
    return capsys.readouterr().out


def document() -> dict[str, Any]:
    (path,) = Path("debug_dir").glob("debug_trace_*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    jsonschema.validate(found, SCHEMA)
    return found


def test_nothing_without_debug(capsys: pytest.CaptureFixture[str]) -> None:
    assert trace(capsys) == ""
    assert not Path("debug_dir").exists()


def test_the_guide_example(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_DEBUG", "1")
    out = trace(capsys)
    assert re.findall(r"\n={80}\n=== (.+) ===\n={80}\n", out) == TITLES
    assert re.findall(r"\n-{60}\n--- (.+) ---\n-{60}\n", out) == HEADINGS
    for text in (
        "graph():\n    %l_x_ : torch.Tensor [num_users=1] = placeholder[target=L_x_]\n",
        "target=operator.add](args = (%l_x_, %l_y_), kwargs = {})",
        "    add = l_x_ + l_y_;  l_x_ = l_y_ = None\n",
        "Node 0: l_x_\n  Op: placeholder\n  Target: L_x_\n  Args: ()\n  Kwargs: {}\n  Meta: {",
        "Input 0:\n  Shape: torch.Size([2, 4])\n  Dtype: torch.float32\n  Device: cpu\n",
        "  Data: tensor([[0., 1., 2., 3.],\n                [4., 5., 6., 7.]])\n",
        "Total nodes: 1\nInput buffers: 2\nOutput buffers: 1\n",
        "Input 0: l_x_\n  Shape: (2, 4)\n  Dtype: torch.float32\n  Scope: BufferScope.GLOBAL\n",
        "Output 0: add\n  Shape: (2, 4)\n",
        "Node 0: add\n  Inputs: [l_x_, l_y_]\n  Outputs: [add]\n  Metadata: {",
        "  Type: Elementwise operation\n",
        "Data Flow Graph:\n  Node_0_add -> (no connections)\n",
        "        l1_out.at(i) = lf.data.at(i) + rf.data.at(i);\n",
        "lf = dma.copy.async l_x_.chunkat(p, index) => local;",
        "Generated signature: choreo::spanned_data<choreo::f32, 2> kernel_",
        "Buffer: l_x_\n  Size: 32 bytes\n  Alignment: default\n  Memory type: device\n  Dtype: f32\n",
        "Data Marshalling & Execution Code:\n",
    ):
        assert text in out
    files = sorted(p.name for p in Path("debug_dir").iterdir())
    stem = document()["graph"]["name"].removeprefix("kernel_")
    assert files == sorted(
        ["choreo.h", f"debug_trace_{stem}.json", f"host_wrapper_{stem}.cpp"]
        + [f"kernel_{stem}.{kind}" for kind in ("co", "o", "so")]
    )
    parse(Path("debug_dir", f"kernel_{stem}.co").read_text())


@pytest.mark.parametrize(
    ("variable", "value", "gone", "stays"),
    [
        ("CONDUCTOR_DEBUG_FX", "0", "=== FX GRAPH", "=== INTERNAL DAG"),
        ("CONDUCTOR_DEBUG_DAG", "0", "=== INTERNAL DAG", "=== FX GRAPH"),
        ("CONDUCTOR_DEBUG_DSL", "0", "=== GENERATED CHOREO", "=== INTERNAL DAG"),
        ("CONDUCTOR_DEBUG_WRAPPER", "0", "=== HOST WRAPPER", "=== GENERATED CHOREO"),
        ("CONDUCTOR_DEBUG_META", "0", "Input Tensor Information", "Node Details"),
        ("CONDUCTOR_DEBUG_FLOW", "0", "Data Flow Connections", "Computation Nodes"),
        ("CONDUCTOR_DEBUG_MAX_ELEMENTS", "3", "[4., 5., 6., 7.]", "tensor([0., 1., 2.]) (3 of 8 elements)"),
    ],
)
def test_each_variable_changes_its_own_part(
    variable: str, value: str, gone: str, stays: str,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("CONDUCTOR_DEBUG", "1")
    whole = _steady(trace(capsys))
    monkeypatch.setenv(variable, value)
    part = _steady(trace(capsys))
    assert gone in whole
    assert gone not in part
    assert stays in part
    if variable.endswith("ELEMENTS"):
        return
    left = part.splitlines()  # what is left was there before, in the same order
    lines = iter(whole.splitlines())
    assert all(line in lines for line in left)


def _steady(out: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", out)


def test_indent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_DEBUG", "1")
    for indent in ("2", "5"):
        monkeypatch.setenv("CONDUCTOR_DEBUG_INDENT", indent)
        trace(capsys)
        (path,) = Path("debug_dir").glob("*.json")
        assert path.read_text().startswith("{\n" + " " * int(indent) + '"schema"')


def test_as_many_elements_as_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDUCTOR_DEBUG", "1")
    monkeypatch.setenv("CONDUCTOR_DEBUG_MAX_ELEMENTS", "1500")
    torch.compile(add, backend="gcu")(torch.arange(1200), torch.arange(5000, 7000)[:1200])
    out = capsys.readouterr().out
    assert all(re.search(rf"\b{number}\b", out) for number in (0, 600, 777, 1199, 5600))


def test_bad_variable_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_DEBUG_MAX_ELEMENTS", "many")
    with pytest.raises(Exception, match="CONDUCTOR_DEBUG_MAX_ELEMENTS='many': use an integer"):
        torch.compile(add, backend="gcu")(torch.ones(2), torch.ones(2))


def test_programmatic(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    enable_debug_tracing(
        DebugTraceConfig(enabled=True, max_tensor_elements=2, indent_size=4, show_wrapper=False)
    )
    out = trace(capsys)
    assert "(2 of 8 elements)" in out
    assert "HOST WRAPPER" not in out
    disable_debug_tracing()
    monkeypatch.setenv("CONDUCTOR_DEBUG", "1")
    assert trace(capsys) == ""
    with pytest.raises(TypeError, match="takes a DebugTraceConfig"):
        enable_debug_tracing(True)  # type: ignore[arg-type]


def test_the_dsl_is_the_program(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_DEBUG", "1")
    trace(capsys)
    (path,) = Path("debug_dir").glob("kernel_*.co")
    x, y = torch.randn(2, 4), torch.randn(2, 4)
    saved = load(path).call(path.stem, x, y)
    assert saved is not None
    assert torch.equal(saved, x + y)
    path.write_text(path.read_text().replace("lf.data.at(i) + rf", "lf.data.at(i) - rf"))
    edited = load(path).call(path.stem, x, y)
    assert edited is not None
    assert torch.equal(edited, x - y)


def test_a_fresh_build_of_the_saved_source_gives_the_same_bits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDUCTOR_DEBUG", "1")
    x = torch.randn(16, 50)
    result = torch.compile(lambda x: x.softmax(-1), backend="gcu")(x)
    (source,) = Path("debug_dir").glob("host_wrapper_*.cpp")
    (dsl,) = Path("debug_dir").glob("*.co")
    command = [*compiler(), *toolchain.FLAGS, "-shared", source.name, "-o", "fresh.so"]
    subprocess.run(command, cwd="debug_dir", check=True)  # with the choreo.h that lies beside it
    fresh = Program(translate(dsl.read_text()), Path("debug_dir/fresh.so").absolute())
    again = fresh.call(dsl.stem, x)
    assert again is not None
    assert torch.equal(again, result)


def test_the_document_is_filled(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_DEBUG", "1")

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(torch.nn.functional.layer_norm(x, (40,)), 0)

    torch.compile(f, backend="gcu")(torch.randn(6, 40))
    found = document()
    (kernel,) = found["code"]["kernels"]
    assert kernel["parallel"] == [f"p by {min(6, torch.get_num_threads())}"]
    assert any("dma.copy" in d and "read in place" in d for d in kernel["dma"])
    assert kernel["chunking"]
    assert any("test_tracing.py" in o for o in kernel["origin"])
    assert found["fallbacks"][0]["target"] == "aten.cumsum.default"
    assert [p["name"] for p in found["passes"]] == ["lower", "remove_unused", "share_equal", "fuse"]
    assert found["wrapper"]["build"]
    assert set(found["files"]) == {"dsl", "wrapper", "object", "library"}
    assert found["error"] is None


# -- when something goes wrong ---------------------------------------------------------------------------


def failing(match: str, capsys: pytest.CaptureFixture[str]) -> str:
    torch._dynamo.reset()
    with pytest.raises(Exception, match=match):
        torch.compile(add, backend="gcu")(torch.ones(3, 5), torch.ones(3, 5))
    return capsys.readouterr().out


def test_no_compiler(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_DEBUG", "1")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    out = failing(r"there is no C\+\+ compiler[\s\S]*install g\+\+", capsys)
    assert "=== GENERATED CHOREO DSL CODE ===" in out
    assert document()["error"]["stage"] == "build"


def test_failing_compiler(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "g++"
    script.write_text("#!/bin/sh\necho 'kernel.cpp:7: error: no such luck' >&2\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setenv("CONDUCTOR_DEBUG", "1")
    monkeypatch.setenv("CXX", str(script))
    out = failing(r"the C\+\+ compiler failed:[\s\S]*host_wrapper[\s\S]*no such luck", capsys)
    assert "compilation failed in stage build" in out
    found = document()
    assert "no such luck" in found["error"]["message"]
    assert set(found["files"]) == {"dsl", "wrapper"}


def test_slow_compiler_is_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "g++"
    script.write_text('#!/bin/sh\ncase "$*" in *--version*) exit 0;; esac\nsleep 100\n')
    script.chmod(0o755)
    monkeypatch.setenv("CONDUCTOR_DEBUG", "1")
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("CONDUCTOR_COMPILE_SECONDS", "1")
    failing(r"took more than 1 s and was stopped[\s\S]*CONDUCTOR_COMPILE_SECONDS", capsys)
    assert "took more than 1 s" in document()["error"]["message"]


def test_unsupported_operator_in_strict_mode_still_writes_the_trace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDUCTOR_DEBUG", "1")
    monkeypatch.setenv("CONDUCTOR_STRICT", "1")
    with pytest.raises(Exception, match="1 operators of this graph are not lowered"):
        torch.compile(lambda x: torch.cumsum(x, 0), backend="gcu")(torch.ones(3))
    found = document()
    assert found["error"]["stage"] == "strict"
    assert found["dag"]["nodes"]


def test_debug_folder_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("debug_dir").write_text("a file, not a folder")  # also refused to the superuser
    monkeypatch.setenv("CONDUCTOR_DEBUG", "1")
    torch.compile(add, backend="gcu")(torch.ones(3), torch.ones(3))
    said = capsys.readouterr().err
    match = re.search(r"debug_dir cannot be written \(.+\); the trace is in (\S+)", said)
    assert match
    assert list(Path(match[1]).glob("debug_trace_*.json"))
    shutil.rmtree(match[1])


def test_target_without_its_compiler(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDUCTOR_DEBUG", "1")
    monkeypatch.setenv("CONDUCTOR_TARGET", "choreo")
    failing("CONDUCTOR_TARGET=choreo: there is no `choreo` compiler on the PATH", capsys)


def test_target_gets_the_same_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "bin" / "choreo"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\ncp "$2" "$4"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CONDUCTOR_DEBUG", "1")
    monkeypatch.setenv("CONDUCTOR_TARGET", "choreo")
    assert f"{script} compiled debug_dir/kernel_" in trace(capsys)
    (handed,) = Path("debug_dir").glob("*.choreo.o")
    assert handed.read_text() == Path("debug_dir", handed.name.removesuffix(".choreo.o") + ".co").read_text()


def test_options_are_refused() -> None:
    with pytest.raises(Exception, match="takes no options"):
        torch.compile(add, backend="gcu", options={"x": 1})(torch.ones(2), torch.ones(2))
    assert backend.gcu is not None


@pytest.mark.parametrize("name", ["debug_simple_add", "add_example", "mul_example"])
def test_examples(name: str, monkeypatch: pytest.MonkeyPatch, warm_python: WarmPython) -> None:
    monkeypatch.setenv("CONDUCTOR_DEBUG", "1")
    done = warm_python.run(ROOT / "examples" / f"{name}.py")
    assert done.returncode == 0, done.stderr
    assert all(f"=== {title} ===" in done.stdout for title in TITLES)
