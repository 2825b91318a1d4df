"""Threads that run functions with C++ wrappers at once, while others compile: each launch is one call."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config as inductor_config
from torch.fx.experimental.proxy_tensor import make_fx

import kernelscope
from kernelscope.fingerprint import fingerprint
from kernelscope.probes.cpp_wrappers import launch_log

EXECUTIONS = 20
Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
WEIGHT = torch.arange(64.0).reshape(8, 8)
_numbers = count(1)


def raised(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ weight) + 1


def summed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x @ weight).sin().sum(0)


LAST_KERNELS: dict[Function, str] = {raised: "cpp_fused_add_relu_0", summed: "cpp_fused_sin_sum_0"}


@pytest.fixture(scope="module")
def compiled() -> Iterator[dict[Function, Function]]:
    """Each compiled inside a recording; threads change places as often as they can."""
    torch._dynamo.reset()
    interval = sys.getswitchinterval()
    with inductor_config.patch(cpp_wrapper=True):
        functions: dict[Function, Function] = {f: torch.compile(f, dynamic=False) for f in LAST_KERNELS}
        with kernelscope.record():
            for function in functions.values():
                function(torch.ones(4, 8), WEIGHT)
        sys.setswitchinterval(1e-5)
        yield functions
    sys.setswitchinterval(interval)
    torch._dynamo.reset()


@pytest.mark.parametrize("plan", [(raised, summed), (raised, raised, raised, summed)], ids=["2", "4"])
@pytest.mark.parametrize(
    ("values", "on_disk"), [("off", False), ("off", True), ("hash", False), ("hash", True), ("save", True)]
)
def test_each_launch_of_each_thread_is_one_call(
    compiled: dict[Function, Function],
    plan: tuple[Function, ...],
    values: str,
    on_disk: bool,
    tmp_path: Path,
) -> None:
    start = threading.Barrier(len(plan), timeout=60)
    inputs = [torch.full((4, 8), float(i + 1)) for i in range(len(plan))]

    def work(i: int) -> int:
        start.wait()
        for _ in range(EXECUTIONS):
            torch.testing.assert_close(compiled[plan[i]](inputs[i], WEIGHT), plan[i](inputs[i], WEIGHT))
        return threading.get_ident()

    path = tmp_path / "run" if on_disk else None
    with kernelscope.record(path=path, values=values) as run, ThreadPoolExecutor(len(plan)) as pool:
        threads = list(pool.map(work, range(len(plan))))
    if on_disk:
        run = kernelscope.load(tmp_path / "run.kscope")
    assert not run.findings
    assert [call.index for call in run.calls] == list(range(2 * EXECUTIONS * len(plan)))
    assert Counter((call.thread, call.kernel_name) for call in run.calls) == {
        (thread, name): EXECUTIONS
        for thread, function in zip(threads, plan, strict=True)
        for name in ("aoti_torch_cpu_mm_out", LAST_KERNELS[function])
    }
    assert len(run.kernels) == 3
    assert len({call.graph_call for call in run.calls}) == EXECUTIONS * len(plan)
    for i, thread in enumerate(threads):
        own = [call for call in run.calls if call.thread == thread]
        assert [call.kernel_name for call in own[1::2]] == [LAST_KERNELS[plan[i]]] * EXECUTIONS
        assert [call.recorded.start_ns for call in own] == sorted(call.recorded.start_ns for call in own)
        if values != "off":
            _assert_values(own, inputs[i], compiled[plan[i]](inputs[i], WEIGHT), saved=values == "save")


def _assert_values(calls: list[Any], x: torch.Tensor, result: torch.Tensor, *, saved: bool) -> None:
    product = fingerprint(x @ WEIGHT).bits
    for mm, last in zip(calls[::2], calls[1::2], strict=True):
        assert mm.pre_hashes[mm.arg_names.index("self")] == fingerprint(x).bits
        assert mm.post_hashes[mm.arg_names.index("out")] == product
        assert product in last.pre_hashes.values()
        assert fingerprint(result).bits in last.post_hashes.values()
        if saved:
            assert (mm.value("self") == x.numpy()).all()


@pytest.mark.slow
@pytest.mark.parametrize("values", ["off", "hash"])
def test_threads_compile_while_others_run(compiled: dict[Function, Function], values: str) -> None:
    """Where a wrapper that was loaded just now runs at once, it is connected to its log."""
    x, stop = torch.ones(4, 8), threading.Event()

    def work(function: Function) -> tuple[int, int]:
        executions = 0
        while not stop.is_set():
            compiled[function](x, WEIGHT)
            executions += 1
        return threading.get_ident(), executions

    def compile_new(number: int) -> torch.Tensor:
        result: torch.Tensor = torch.compile(lambda x: (x + number / 7).cos())(x)
        return result

    with kernelscope.record(values=values) as run, ThreadPoolExecutor(4) as pool:
        busy = [pool.submit(work, function) for function in (raised, summed)]
        try:
            results = list(pool.map(compile_new, [next(_numbers), next(_numbers)]))
        finally:
            stop.set()
        executions = dict(each.result() for each in busy)
    assert not run.findings
    counts = Counter((call.thread in executions, call.kernel_name) for call in run.calls)
    assert counts[False, "cpp_fused_add_cos_0"] == 2
    assert counts[True, "aoti_torch_cpu_mm_out"] == sum(executions.values()) > 2
    if values == "hash":
        hashes = {each for call in run.calls for each in call.post_hashes.values()}
        assert {fingerprint(result).bits for result in results} <= hashes


@pytest.mark.slow
def test_a_wrapper_runs_while_another_thread_connects_what_was_loaded(
    compiled: dict[Function, Function], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were loaded before, and not connected yet."""
    x, look = torch.ones(4, 8), launch_log.loaded_libraries
    others: list[threading.Thread] = []

    def look_slowly() -> set[tuple[str, str]]:
        if not others:
            others.append(threading.Thread(target=second, args=(x,)))
            others[0].start()
            others[0].join(0.5)
        return look()

    with kernelscope.record() as run:
        first, second = (torch._inductor.compile(graph, [x]) for graph in (_another(x), _another(x)))
        monkeypatch.setattr(launch_log, "loaded_libraries", look_slowly)
        first(x)
        others[0].join()
    assert not run.findings
    assert len(run) == 2


def _another(x: torch.Tensor) -> torch.fx.GraphModule:
    number = next(_numbers) / 7
    return make_fx(lambda x: (x - number).exp())(x)
