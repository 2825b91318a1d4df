"""The nodes of a launch, without those whose values it only reads."""

from __future__ import annotations

import json

from kernelscope.stages import Stages
from kernelscope.stages.computed_nodes import computed_nodes
from kernelscope.stages.records import FRAME, Compilation, FxOrigin, Provenance, Record, Stage

TEXT = """
class GraphModule(torch.nn.Module):
    def forward(self, arg0_1: "f32[8][1]cpu"):
        exp: "f32[8][1]cpu" = torch.ops.aten.exp.default(arg0_1);  arg0_1 = None
        view: "f32[2, 4][4, 1]cpu" = torch.ops.aten.reshape.default(exp, [2, 4])
        sum_1: "f32[2][1]cpu" = torch.ops.aten.sum.dim_IntList(view, [1])
        log: "f32[2][1]cpu" = torch.ops.aten.log.default(sum_1);  sum_1 = None
        mul: "f32[8][1]cpu" = torch.ops.aten.mul.Tensor(exp, 2);  exp = None
        return (log, mul)
"""


def staged(buffers: dict[str, str]) -> list[Record]:
    dag = {
        "inputs": [], "outputs": [], "edges": [], "groups": [], "nodes": [],
        "buffers": [{"name": name, "node": node} for name, node in buffers.items()],
    }  # fmt: skip
    return [
        Compilation(0, "0/0", FRAME, name="forward", made="compiled"),
        Compilation(1, "0/0", "inference", 0, "0_inference", "key", "compiled"),
        Stage(1, "post_grad", "python", TEXT),
        Stage(1, "dag", "json", json.dumps(dag)),
    ]


def names(
    buffers: tuple[str, ...], nodes: tuple[str, ...], read: set[str], held: dict[str, str]
) -> list[str]:
    origins = tuple(FxOrigin(name, f"aten.{name}", (), ()) for name in nodes)
    launch = Provenance(1, "cpp_fused_1", 1, buffers, origins)
    [graph] = Stages(staged(held)).graphs
    return [node.name for node in computed_nodes(graph, launch, read)]


HELD = {"buf0": "exp", "buf1": "log", "buf2": "mul"}


def test_what_is_read_is_not_computed() -> None:
    assert names(("buf1",), ("log", "sum_1", "exp"), {"buf0"}, HELD) == ["log", "sum_1"]
    assert names(("buf2",), ("mul", "exp"), {"buf0"}, HELD) == ["mul"]


def test_what_is_computed_again_is_computed() -> None:
    assert names(("buf2",), ("mul", "exp"), {"arg0_1"}, HELD) == ["mul", "exp"]
    assert names(("buf0", "buf2"), ("mul", "exp"), {"arg0_1"}, HELD) == ["mul", "exp"]


def test_nodes_that_lead_elsewhere_are_left_out() -> None:
    assert names(("buf2",), ("mul", "sum_1"), {"buf0"}, HELD) == ["mul"]


def test_a_value_that_is_read_through_a_view() -> None:
    assert names(("buf1",), ("log", "sum_1", "exp"), {"buf9"}, {**HELD, "buf9": "view"}) == ["log", "sum_1"]


def test_all_of_them_where_nothing_is_known() -> None:
    assert names(("buf7",), ("exp", "log"), {"buf0"}, HELD) == ["exp", "log"]
    assert names(("buf1",), ("unheard_of",), {"buf0"}, HELD) == ["unheard_of"]
