"""Odd nodes lead to the program and to their kernels: operators without results, seeds, what a pass made."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import torch
from tests.integration.stages.staged_programs import SCHEMA, line_of
from tests.support import stage_checks

import kernelscope
from kernelscope.stages.document import document


@torch.library.custom_op("kernelscope_tests::stages_add_into", mutates_args=("x",))
def add_into(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y)


def test_an_operator_that_returns_nothing_has_its_place_in_the_schedule(cache: Path) -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        add_into(x, y.exp())
        return x * 2

    with kernelscope.record(stages=True) as run:
        torch.compile(forward)(torch.randn(4), torch.randn(4))
    assert not [f for f in run.findings if f.kind == "recorder-error"], run.findings
    [graph] = run.stages
    jsonschema.validate(made := document(graph, run.info.versions), SCHEMA)
    assert made["dag"]["buffers"]
    [launch] = [p for p in graph.provenance if p.kernel.endswith("stages_add_into.default")]
    assert any("add_into" in node.name for node in launch.nodes)


def test_extern_kernels_that_torch_does_not_number(cache: Path) -> None:
    def forward(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        largest = x.scatter_reduce(1, i, y, "amax")
        put = torch.zeros(5, 5, dtype=torch.bool).index_put((i[:, 0],), y > 0, accumulate=True)
        return largest, put, x.clone().bernoulli_(0.7)

    x, i = torch.randn(5, 5), torch.randint(0, 5, (5, 5))
    with kernelscope.record(stages=True) as run:
        torch.compile(forward)(x, i, x + 1)
    assert not run.findings
    stage_checks.check_calls(run, Path(__file__))
    [graph] = run.stages
    named = {p.kernel for p in graph.provenance}
    assert {"aten.scatter_reduce_.two", "aten.bernoulli_.float"} <= named
    assert all(p.nodes for p in graph.provenance)


def test_seeds_lead_to_what_draws_with_them(cache: Path) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.dropout(x.sin(), 0.5)
        return y + torch.rand_like(x)

    with kernelscope.record(stages=True) as run:
        torch.compile(forward)(torch.ones(8, 8))
    [graph] = run.stages
    [seeds] = [n for p in graph.provenance for n in p.nodes if "inductor_seeds" in n.target]
    lines = {
        line_of("y = torch.nn.functional.dropout(x.sin(), 0.5)"),
        line_of("return y + torch.rand_like(x)"),
    }
    assert seeds.frames[0].line in lines
    assert len(seeds.pre_grad) == 2
    assert set(seeds.pre_grad) <= set(stage_checks.places_of_nodes(graph.stage("pre_grad").text))


def test_a_node_that_a_pass_made_leads_to_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor pads some products, by timing; the padding has a stack trace and nothing else."""
    from torch._inductor import config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))

    def pad(graph: torch.fx.Graph) -> None:
        [product] = graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)
        left, right = product.args
        with graph.inserting_before(product):
            padded = graph.call_function(torch.ops.aten.constant_pad_nd.default, (left, [0, 0, 0, 1]))
            padded.meta = {"val": torch.empty(9, 8), "stack_trace": product.meta["stack_trace"]}
            longer = graph.call_function(torch.ops.aten.mm.default, (padded, right))
            longer.meta = {"val": torch.empty(9, 8), "stack_trace": product.meta["stack_trace"]}
            part = graph.call_function(torch.ops.aten.slice.Tensor, (longer, 0, 0, 8))
            part.meta = dict(product.meta)
        product.replace_all_uses_with(part)
        graph.erase_node(product)

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y).relu()

    torch._dynamo.reset()
    x = torch.randn(8, 8)
    with config.patch(post_grad_custom_post_pass=pad), kernelscope.record(stages=True) as run:
        torch.testing.assert_close(torch.compile(program)(x, x), program(x, x))
    [graph] = run.stages
    nodes = {node.name: node.pre_grad for launch in graph.provenance for node in launch.nodes}
    assert nodes["constant_pad_nd_default"] == ("matmul",)
