"""CUDA graphs: replays are calls, with the hashes that the same kernels have without a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from tests.gpu.models import Attention
from tests.gpu.recording.test_recording import synchronising_calls

import kernelscope
from kernelscope import KernelCall, Run
from kernelscope.fingerprint import fingerprint


@pytest.fixture(autouse=True)
def anew() -> None:
    torch._dynamo.reset()


def program(x: torch.Tensor) -> torch.Tensor:
    y = (x @ x).relu()
    return (y.sum(0) * y.mT.cumsum(1)).softmax(-1)


def told(calls: list[KernelCall]) -> list[tuple[str, list[int], list[int]]]:
    return [
        (c.kernel_name, list(c.pre_hashes.values()), [c.post_hashes[i] for i in sorted(c.modified_args)])
        for c in calls
    ]


def kernels_in(work: Callable[[], object]) -> Counter[str]:
    """What the GPU ran, from a CUPTI trace."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        torch.cuda.synchronize()
    device = torch.autograd.DeviceType.CUDA
    return Counter(e.name for e in profile.events() if e.device_type == device)


def by_execution(run: Run) -> list[list[KernelCall]]:
    found: dict[int, list[KernelCall]] = {}
    for call in run.calls:
        found.setdefault(call.graph_call, []).append(call)
    return list(found.values())


def test_a_hundred_replays_have_the_hashes_of_the_kernels_without_a_graph() -> None:
    inputs = [torch.randn(96, 96, device="cuda") for _ in range(100)]
    plain = torch.compile(program)
    plain(inputs[0])
    with kernelscope.record(values="hash") as without:
        expected = [plain(x) for x in inputs]
    torch._dynamo.reset()
    graphed = torch.compile(program, mode="reduce-overhead")
    with kernelscope.record(values="hash") as run:
        for _ in range(3):
            graphed(inputs[0])
        begun = len(run)
        got = [graphed(x).clone() for x in inputs]
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    replayed = by_execution(run)[-100:]
    assert all(c.replay is not None and c.producer == "replay" for c in run.calls[begun:])
    assert len(replayed) == 100
    assert not run.findings
    for mine, other in zip(replayed, by_execution(without), strict=True):
        assert told(mine) == told(other)
    assert len({str(told(calls)) for calls in replayed}) == 100


def test_tensors_of_a_graph_are_read_several_at_once() -> None:
    """Weights that a product reads transposed, and slices: one launch for four, and not one for each."""
    layers = [torch.randn(64, 64, device="cuda", dtype=torch.bfloat16) for _ in range(24)]

    def products(x: torch.Tensor) -> torch.Tensor:
        for weight in layers:
            x = (x @ weight.t()).relu()[:, ::2].repeat(1, 2) * 0.1
        return x

    x = torch.randn(64, 64, device="cuda", dtype=torch.bfloat16)
    plain = torch.compile(products)
    plain(x)
    with kernelscope.record(values="hash") as without:
        plain(x)
    torch._dynamo.reset()
    graphed = torch.compile(products, mode="reduce-overhead")
    for _ in range(3):
        graphed(x)
    bare = kernels_in(lambda: graphed(x))
    with kernelscope.record(values="hash", recapture=True) as run:
        for _ in range(3):
            graphed(x)
        recorded = kernels_in(lambda: graphed(x))
    assert not run.findings
    assert told(by_execution(run)[-1]) == told(without.calls)
    read = sum(len({**c.pre_hashes, **c.post_hashes}) for c in without.calls)
    ours = recorded - bare
    assert read > 70
    assert ours.total() < read / 3, ours


def test_after_the_recording_graphs_are_clean() -> None:
    x = torch.randn(96, 96, device="cuda")
    f = torch.compile(program, mode="reduce-overhead")
    for _ in range(3):
        f(x)
    bare = kernels_in(lambda: f(x))
    with kernelscope.record(values="hash", recapture=True) as run:
        for _ in range(3):
            f(x)
        recorded = kernels_in(lambda: f(x))
    assert all(c.replay is not None for c in run.calls)
    assert all(c.post_hashes for c in run.calls)
    assert recorded.total() > bare.total(), "this trace must show our kernels"
    f(x)
    f(x)
    assert kernels_in(lambda: f(x)) == bare


@pytest.mark.parametrize("values", ["hash", "stats"])
def test_training_in_graphs(values: str) -> None:
    def steps(mode: str | None, count: int) -> tuple[Run, list[torch.Tensor], list[torch.Tensor]]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = Attention().cuda()
        compiled = torch.compile(model, mode=mode)
        inputs = [torch.randn(2, 16, 64, device="cuda") for _ in range(count)]
        losses = []
        with kernelscope.record(values=values) as run:
            for x in inputs:
                model.zero_grad()
                loss = compiled(x).square().mean()
                loss.backward()
                losses.append(loss.detach().clone())
        # The next steps are captured anew, while the last gradients are still in use.
        kept = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        for x in inputs[:3]:
            compiled(x).square().mean().backward()
        return run, losses, kept

    steps(None, 1)  # the first compilation of a process may round otherwise than later ones, recorded or not
    without, losses, gradients = steps(None, 8)
    run, same_losses, same_gradients = steps("reduce-overhead", 8)
    assert all(torch.equal(a, b) for a, b in zip(losses, same_losses, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(gradients, same_gradients, strict=True))
    assert run.findings == without.findings
    mine, other = by_execution(run), by_execution(without)
    assert [len(calls) for calls in mine] == [len(calls) for calls in other]
    assert sum(c.replay is not None for c in run.calls) >= len(run) // 2
    for one, another in zip(mine, other, strict=True):
        assert told(one) == told(another)
        if values == "stats":
            assert [c.post_stats for c in one] == [c.post_stats for c in another]


def test_a_users_own_graph() -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    x = torch.randn(32, device="cuda")
    f(x)
    graph = torch.cuda.CUDAGraph()
    with kernelscope.record(values="hash") as run:
        with torch.cuda.graph(graph):
            out = f(x)
        assert not run.calls, "nothing executes during capture"
        expected = []
        for _ in range(3):
            x.normal_()
            graph.replay()
            expected.append((fingerprint(x), fingerprint(out)))
    assert [c.replay for c in run.calls] == [0, 1, 2]
    assert [f.kind for f in run.findings] == ["fingerprints-stay"]
    for call, (found, left) in zip(run.calls, expected, strict=True):
        assert list(call.pre_hashes.values()) == [found.bits]
        assert [call.post_hashes[i] for i in call.modified_args] == [left.bits]
    torch.cuda.empty_cache()  # what the captured kernels write to must not be handed out
    others = [torch.zeros(1 << 20, device="cuda") for _ in range(20)]
    x.normal_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, x.sin() + 1)
    assert not any(t.any() for t in others)


def test_graphed_callables_and_graphs_of_before() -> None:
    def make() -> Callable[[torch.Tensor], torch.Tensor]:
        example = (torch.randn(4, 8, device="cuda"),)
        return torch.cuda.make_graphed_callables(torch.compile(torch.nn.Linear(8, 8).cuda()), example)

    x = torch.randn(4, 8, device="cuda")
    with kernelscope.record(values="hash") as run:
        graphed = make()
        before = len(run)
        graphed(x)
    assert run.calls[before:]
    assert all(c.replay == 0 and c.post_hashes for c in run.calls[before:])
    early = make()
    with kernelscope.record() as run:
        early(x)
    [finding] = run.findings
    assert finding.kind == "unseen-cuda-graph"
    assert f"{__file__}:" in finding.message


def test_a_kept_graph_of_before_is_told_kernel_by_kernel() -> None:
    pytest.importorskip("cuda.bindings")
    x = torch.randn(96, 96, device="cuda")
    compiled = torch.compile(program)
    compiled(x)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        kept = compiled(x)
    graph.replay()
    expected = kernels_in(graph.replay)
    with kernelscope.record() as run:
        for _ in range(3):
            graph.replay()
    assert {call.kind for call in run.calls} == {"cuda"}
    assert [call.replay for call in run.calls] == sorted([0, 1, 2] * expected.total())
    assert all(
        call.grid and call.config["block"] for call in run.calls if not call.kernel_name.startswith("mem")
    )
    told = Counter(call.kernel_name for call in run.calls)
    assert {n: told[n] for n in expected if n.startswith("triton_")} == {
        n: 3 * count for n, count in expected.items() if n.startswith("triton_")
    }
    [finding] = run.findings
    assert "its calls have names and grids, and no arguments" in finding.message
    del kept


def test_recapture_looks_into_graphs_of_before() -> None:
    x = torch.randn(96, 96, device="cuda")
    f = torch.compile(program, mode="reduce-overhead")
    for _ in range(3):
        kept = f(x)
    expected = kept.clone()  # eager's product may have other digits, and the softmax enlarges that
    with kernelscope.record() as run:
        f(x)
    [finding] = run.findings
    assert "torch.compile, compiled graph 0/0" in finding.message
    assert "recapture=True" in finding.message
    with kernelscope.record(values="hash", recapture=True) as run:
        again = f(x)
    assert not run.findings
    assert run.calls
    assert all(c.replay == 0 and c.post_hashes for c in run.calls)
    assert torch.allclose(again, expected, rtol=1e-3)
    del kept


def test_two_recordings_and_an_early_end() -> None:
    x = torch.randn(96, 96, device="cuda")
    f = torch.compile(program, mode="reduce-overhead")
    f(x)
    with kernelscope.record(values="hash") as outer:
        with kernelscope.record(values="stats") as inner:
            for _ in range(3):
                f(x)
        count = len(inner)
        for _ in range(3):
            f(x)
    assert len(inner) == count
    assert len(outer) == 2 * count
    assert len({tuple(map(str, told(calls))) for calls in by_execution(outer)}) == 1
    assert not inner.findings
    assert not outer.findings
    assert inner.calls[-1].post_stats


def test_no_synchronisation_in_replays() -> None:
    x = torch.randn(96, 96, device="cuda")
    f = torch.compile(program, mode="reduce-overhead")
    for _ in range(3):
        f(x)
    bare = synchronising_calls(lambda: [f(x) for _ in range(5)])
    with kernelscope.record(values="hash", recapture=True) as run:
        for _ in range(3):
            f(x)
        ours = synchronising_calls(lambda: [f(x) for _ in range(5)])
    assert run.calls[-1].post_hashes
    assert ours == bare


def test_on_disk(tmp_path: object) -> None:
    x = torch.randn(96, 96, device="cuda")
    f = torch.compile(program, mode="reduce-overhead")
    f(x)
    with kernelscope.record(values="hash", path=f"{tmp_path}/run") as run:
        for _ in range(4):
            f(x)
    loaded = kernelscope.load(f"{tmp_path}/run.kscope")
    assert told(loaded.calls) == told(run.calls)
    replayed = [c for c in loaded.calls if c.replay is not None]
    assert replayed
    assert all(c.post_hashes for c in replayed)


@pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="this torch has no accelerator.Graph")
def test_graphs_of_the_accelerator_module() -> None:
    compiled = torch.compile(program)
    x = torch.randn(96, 96, device="cuda")
    expected = compiled(x)
    with kernelscope.record(values="hash") as eager:
        compiled(x)
    stream, graph = torch.Stream(device="cuda"), torch.accelerator.Graph()
    with kernelscope.record(values="hash") as run:
        with stream, graph:
            kept = compiled(x)
        assert not len(run)
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
    assert torch.equal(kept, expected)
    assert [told(calls) for calls in by_replay(run)] == [told(list(eager.calls))] * 3
    with kernelscope.record() as run:
        graph.replay()
    assert [f.kind for f in run.findings] == ["unseen-cuda-graph"]


def by_replay(run: Run) -> list[list[KernelCall]]:
    found: dict[int, list[KernelCall]] = {}
    for call in run.calls:
        found.setdefault(call.replay, []).append(call)
    return list(found.values())
