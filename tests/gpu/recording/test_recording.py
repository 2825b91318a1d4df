"""Recording on a real GPU: launches, hashes without synchronisation, memory, streams."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from tests.gpu.models import Block
from torch._inductor.graph import GraphLowering

import kernelscope
from kernelscope import Run
from kernelscope.fingerprint import fingerprint

# Waits of the host for the device, and what can hide one.
SYNCHRONISING = {
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cudaMemcpy",
    "cuStreamSynchronize",
    "cuCtxSynchronize",
    "cuEventSynchronize",
}


@contextmanager
def generated_code() -> Iterator[list[str]]:
    """The wrappers that Inductor writes inside the block, in the order it writes them."""
    sources: list[str] = []
    before = vars(GraphLowering).get("save_output_code")
    GraphLowering.save_output_code = staticmethod(sources.append)
    try:
        yield sources
    finally:
        GraphLowering.save_output_code = before


def launches_in(source: str) -> list[str]:
    """Kernels in the order that the wrapper's text launches them, by regular expressions alone."""
    body = source[source.index("def call(") :].split("\nrunner =")[0]
    found = re.findall(
        r"^\s+(?:\w+ = )?(?:(\w+)\.run\(|(extern_kernels\.\w+)\(|torch\.ops\.([\w.]+)\()", body, re.M
    )
    return [next(name for name in each if name) for each in found]


@pytest.fixture(scope="module")
def block() -> tuple[Callable[[], torch.Tensor], list[str]]:
    """A compiled training step, and the wrappers of its two graphs."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = Block().cuda().bfloat16()
    x = torch.randn(2, 16, 64, device="cuda", dtype=torch.bfloat16)
    compiled = torch.compile(model)

    def step() -> torch.Tensor:
        model.zero_grad()
        out = compiled(x)
        out.sum().backward()
        return out

    with torch._inductor.utils.fresh_inductor_cache(), generated_code() as sources:
        step()
    return step, list(sources)


def test_calls_equal_the_launches_in_the_wrappers(
    block: tuple[Callable[[], torch.Tensor], list[str]],
) -> None:
    step, sources = block
    with kernelscope.record() as run:
        step()
    forward, backward = sources
    names = [c.kernel_name for c in run.calls]
    assert names == launches_in(forward) + launches_in(backward)
    assert {c.kind for c in run.calls} == {"triton", "extern"}
    assert all(c.origin is not None and c.origin.file.endswith("models.py") for c in run.calls)
    for call in run.select(kind="triton"):
        signature = re.search(rf"def {re.escape(call.kernel_name)}\(([^)]*)\)", forward + backward)
        assert signature is not None
        params = [p.split(":")[0].strip() for p in signature[1].split(",") if "constexpr" not in p]
        assert list(call.arg_names) == params
        assert call.grid is not None
        assert len(call.grid) == 3
        assert call.grid[0] >= 1
        assert call.config["num_warps"] >= 1
        assert call.stream == torch.cuda.current_stream().cuda_stream


def test_results_are_bit_identical_and_hashes_repeat(
    block: tuple[Callable[[], torch.Tensor], list[str]],
) -> None:
    step, _ = block
    bare = step()
    hashes = []
    for _ in range(3):
        with kernelscope.record(values="hash") as run:
            recorded = step()
        assert torch.equal(bare, recorded)
        assert not run.findings
        hashes.append([(c.kernel_name, c.pre_hashes, c.post_hashes) for c in run.calls])
    assert hashes[0] == hashes[1] == hashes[2]
    last_forward = run.select(phase="forward")[-1]
    written = [last_forward.post_hashes[i] for i in last_forward.modified_args]
    assert fingerprint(recorded.detach()).bits in written


def synchronising_calls(work: Callable[[], object]) -> list[str]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
    return sorted(e.name for e in profile.events() if e.name in SYNCHRONISING)


@pytest.mark.parametrize("ops", ["graph", "all"])
@pytest.mark.parametrize("values", ["off", "hash"])
def test_no_synchronisation_beyond_the_bare_runs(
    block: tuple[Callable[[], torch.Tensor], list[str]], values: str, ops: str
) -> None:
    step, _ = block

    def recorded() -> Run:
        with kernelscope.record(values=values, ops=ops) as run:
            step()
        return run

    recorded()
    bare = synchronising_calls(step)
    ours = synchronising_calls(recorded)
    assert ours == bare


def test_the_check_sees_a_synchronisation(block: tuple[Callable[[], torch.Tensor], list[str]]) -> None:
    step, _ = block
    assert len(synchronising_calls(lambda: step().sum().item())) > len(synchronising_calls(step))


def test_peak_memory_at_level_hash(block: tuple[Callable[[], torch.Tensor], list[str]]) -> None:
    big = torch.randn(64, 1024, 1024, device="cuda")

    @torch.compile
    def wide(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).relu().cumsum(0) + x.transpose(1, 2)

    def peak(work: Callable[[], object]) -> int:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        work()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()

    wide(big)
    bare = peak(lambda: wide(big))

    def recorded() -> None:
        with kernelscope.record(values="hash") as run:
            wide(big)
        assert run.calls

    recorded()
    assert peak(recorded) - bare <= 64 << 20


def test_streams_are_told_apart() -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    x = torch.randn(1024, device="cuda")
    f(x)
    side = torch.cuda.Stream()
    with kernelscope.record(values="hash") as run:
        f(x)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            f(x)
    first, second = run.calls
    assert second.stream == side.cuda_stream != first.stream
    assert first.post_hashes == second.post_hashes


def test_bits_agree_between_cpu_and_cuda() -> None:
    for dtype in (
        torch.float32,
        torch.bfloat16,
        torch.int64,
        torch.bool,
        torch.float8_e4m3fn,
        torch.complex64,
    ):
        host = (torch.randn(1000) * 3).to(dtype)
        device = host.cuda()
        assert fingerprint(device).bits == fingerprint(host).bits
        assert fingerprint(device[1:]).bits == fingerprint(host[1:]).bits
        strided = host.as_strided((10, 20), (1, 40))
        assert fingerprint(device.as_strided((10, 20), (1, 40))).bits == fingerprint(strided).bits
