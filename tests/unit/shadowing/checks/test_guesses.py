"""Which node's value a buffer seems to hold, and who is accused where that is not known."""

from __future__ import annotations

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from kernelscope.shadowing.checks.pieces import found_apart
from kernelscope.shadowing.culprit import Culprit
from kernelscope.shadowing.graph_call_state import by_origin


def test_the_last_of_a_chain() -> None:
    """A convolution, and what is computed from it with the same shape: the last is stored."""
    x = torch.randn(2, 3, 8)
    graph = make_fx(lambda x, w: torch.conv1d(x, w).double().erf().float(), tracing_mode="fake")(
        x, torch.randn(4, 3, 3)
    ).graph
    nodes = [node for node in graph.nodes if node.op == "call_function"]
    assert len(nodes) == 4
    assert by_origin(nodes, torch.empty(2, 4, 6)) is nodes[-1]
    assert by_origin(nodes[:1], torch.empty(2, 4, 6)) is nodes[0]
    assert by_origin([nodes[0], nodes[-1]], torch.empty(2, 4, 6)) is None  # not connected by what is known
    assert by_origin(nodes, torch.empty(2, 4, 7)) is None


def test_of_a_symbolic_size_that_the_call_has_fixed() -> None:
    graph = make_fx(lambda x: (x * 2).sin(), tracing_mode="symbolic")(torch.randn(5, 3)).graph
    nodes = [node for node in graph.nodes if str(node.target) in ("aten.mul.Tensor", "aten.sin.default")]
    rows, columns = map(str, nodes[-1].meta["val"].shape)
    assert by_origin(nodes, torch.empty(7, 3), {rows: 7, columns: 3}) is nodes[-1]
    assert by_origin(nodes, torch.empty(7, 3), {rows: 5, columns: 3}) is None
    assert by_origin(nodes, torch.empty(7, 3)) is None  # it is not known


def test_a_reader_of_wrong_results_is_not_accused() -> None:
    """It was judged together with the kernel that is wrong: nothing is known of it alone."""

    def culprit(name: str, *joined: str) -> Culprit:
        return Culprit("wrong-kernel", "", 0, name, "cpp", "out_ptr0", joined=joined)

    wrong, notes = set[str](), list[str]()
    found = [culprit("first"), culprit("reader", "first"), culprit("other", "unknown"), culprit("first")]
    names = [each.kernel_name for each in found_apart(found, wrong, notes.append)]
    assert names == ["first", "other", "first"]
    assert [note.partition(" reads results of first")[0] for note in notes] == ["reader"]
