"""Stages as text: generated code, kept stages in other words, diffs, files. Needs no compiler."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from tests.support.sample_runs import CODE, compiling, write_sample

import kernelscope
from kernelscope.events import Frame
from kernelscope.generated_code.kernels import cpp_wrapper_in, kernels_in
from kernelscope.generated_code.launch_comments import launches_in
from kernelscope.probes.compilation.fx_passes import changes
from kernelscope.stages import NoSuchStage, Shown, Stages, render
from kernelscope.stages.cached_provenance import provenance_in
from kernelscope.stages.document import document
from kernelscope.stages.export import export, fusion_text
from kernelscope.stages.json_records import from_plain, to_plain
from kernelscope.stages.records import Compilation, FxOrigin, Provenance, Stage
from kernelscope.stages.translation import translation

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs" / "stages.schema.json").read_text())

TRITON = """\
triton_poi_fused_add_0 = async_compile.triton('triton_poi_fused_add_0', '''
import triton
def triton_poi_fused_add_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    pass
''', device_str='cuda')
def call(args):
        # [Provenance debug handles] triton_poi_fused_add_0:1
        stream0 = get_raw_stream(0)
        triton_poi_fused_add_0.run(arg0_1, buf0, 8, stream=stream0)
        # [Provenance debug handles] torch.ops.aten.convolution.default:2
        buf1 = torch.ops.aten.convolution.default(buf0,
            primals_2)
        # [Provenance debug handles] extern_kernels.mm:3
        extern_kernels.mm(buf0, buf1, out=buf2)
"""


def test_kernels_and_launches_in_code() -> None:
    [kernel] = kernels_in(TRITON)
    assert (kernel.name, kernel.language, kernel.line) == ("triton_poi_fused_add_0", "triton", 1)
    assert kernel.source.startswith("\nimport triton")
    assert [(launch.kernel, launch.handle, launch.line) for launch in launches_in(TRITON)] == [
        ("triton_poi_fused_add_0", 1, 9), ("aten.convolution.default", 2, 11), ("extern_kernels.mm", 3, 14)
    ]  # fmt: skip
    assert not list(kernels_in("no python at all {"))


def test_what_inductors_cache_tells() -> None:
    mapping = {"cppCodeToPost": {"cpp_fused_0:1": ["add", "mul"]}, "postToPre": {"add": ["y"]}}
    [found] = provenance_in(7, json.dumps(mapping))
    assert found == Provenance(7, "cpp_fused_0", 1, (), (FxOrigin("add", "", ("y",)), FxOrigin("mul")))
    assert list(provenance_in(7, "no json")) == []
    assert list(provenance_in(7, None)) == []


@pytest.mark.parametrize("record", compiling())
def test_records_survive_json(record: object) -> None:
    assert from_plain(json.loads(json.dumps(to_plain(record)))) == record  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [["Nothing", 1], ["Stage", 1], [], ["Stage", 1, 2, 3, 4, {}, 6], ["Provenance", 1, "k", 1, [], [[1]]]],
)
def test_what_is_no_record_is_refused(given: list[object]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        from_plain(given)


OLD = """\
class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[8]"):
         # File: /old.py:3 in f, code: y = x.sin()
        y: "f32[8]" = l_x_.sin()
         # File: /old.py:4 in f, code: return y + 1
        add: "f32[8]" = y + 1
"""


def test_kept_stages_in_other_words() -> None:
    new = OLD.replace("/old.py:3", "/new.py:13").replace("/old.py:4", "/new.py:14").replace(" y:", " other:")
    words = translation(OLD, new)
    assert words is not None
    told = words.of(
        Provenance(1, "k", 1, (), (FxOrigin("sin", "", ("y",), (Frame("/old.py", 3), Frame("/m", 9))),))
    )
    assert isinstance(told, Provenance)
    assert told.nodes == (FxOrigin("sin", "", ("other",), (Frame("/new.py", 13, "f"),)),)
    text = words.of(Stage(1, "post_grad", "python", OLD))
    assert isinstance(text, Stage)
    assert "/old.py" not in text.text
    new = new.replace("code: y = x.sin()", "code: other = x.sin()")
    backward = "# Backward of forward node: File: /old.py:3 in f, code: y = x.sin()"
    words = translation(OLD, new)
    assert words is not None
    text = words.of(Stage(1, "post_grad", "python", backward))
    assert isinstance(text, Stage)
    assert text.text == "# Backward of forward node: File: /new.py:13 in f, code: other = x.sin()"
    assert translation(OLD, OLD + "\n        more = 1") is None
    same = translation(OLD, OLD)
    assert same is not None
    assert same.is_same


def test_changes() -> None:
    before = "\n".join(f"line {i}" for i in range(10))
    after = before.replace("line 4", "line four")
    lines = changes(before, after).splitlines()
    assert "-line 4" in lines
    assert "+line four" in lines
    assert "-line 5" not in lines
    large = "\n".join(f"line {i}" for i in range(5000))
    swapped = large.replace("line ", "LINE ")
    found = changes(large, swapped).splitlines()
    assert len(found) == 2 + 10_000


def test_views() -> None:
    stages = Stages(compiling())
    [graph] = stages
    assert graph.made == "compiled"
    assert stages["0/0"] is graph
    assert stages["0_forward"] is stages[0] is stages["0/0 forward"] is graph
    assert list(graph.stages) == ["dynamo", "pass post_grad_passes/x", "dag", "output_code", "times"]
    assert graph.stage("post_grad_passes/x").text == "-a\n+b"
    line = CODE.splitlines().index("    cpp_fused_relu_0(buf0)") + 1
    found = graph.provenance_at(line, "cpp_fused_relu_0")
    assert found is not None
    assert [n.name for n in found.nodes] == ["relu"]
    assert graph.phases == {"GraphLowering.run": 0.5}
    for wrong in ("1/0", "0/0 backward", 3):
        with pytest.raises(NoSuchStage, match="there is '0/0 forward'"):
            stages.graph(wrong)
    with pytest.raises(NoSuchStage, match="it has dynamo"):
        graph.stage("schedule")


def test_a_compilation_that_is_told_again_counts_last(tmp_path: Path) -> None:
    write_sample(tmp_path / "x.kscope")
    found = kernelscope.load(tmp_path / "x.kscope")
    kinds = [r for r in found.compiled if isinstance(r, Compilation)]
    assert [(c.id, c.made) for c in kinds] == [(0, "compiled"), (1, "compiled")]
    first = replace(kinds[1], made="", cache_key="", start_ns=0, duration_ns=-1)
    assert set(found.compiled) == set(compiling()) - {first}


def test_document_and_files(tmp_path: Path) -> None:
    [graph] = Stages(compiling())
    made = document(graph, {"torch": "2.13"})
    jsonschema.validate(made, SCHEMA)
    assert made["code"]["kernels"][0]["origin"] == ["/model.py:11 in forward"]
    assert made["wrapper"]["signatures"] == ["void cpp_fused_relu_0(float* out_ptr0)"]
    files = export(graph, tmp_path / "out", {"torch": "2.13"})
    names = {str(f.relative_to(tmp_path / "out")) for f in files}
    assert {"output_code.py", "kernels/cpp_fused_relu_0.cpp", "passes/00-post_grad_passes_x.diff"} <= names
    jsonschema.validate(json.loads((tmp_path / "out" / "document.json").read_text()), SCHEMA)
    assert "op0 with op1: no shared data (2×)" in fusion_text(graph)


def test_sections_can_be_cut() -> None:
    [graph] = Stages(compiling())
    text = render(document(graph, {}), Shown(fx=False, dag=False, wrapper=False, lines=2))
    assert "=== GENERATED CODE ===" in text
    assert "… 2 more lines" in text
    assert "HOST WRAPPER" not in text


def test_the_cpp_wrapper_is_found() -> None:
    assert cpp_wrapper_in("import x\ncpp_wrapper_src = (\nr'''\nint main;\n''')\n").strip() == "int main;"
    assert cpp_wrapper_in("x = 1") == ""
