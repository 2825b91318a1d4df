"""Which events of a trace belong to recorded calls."""

from __future__ import annotations

from kernelscope.events import (
    CAPTURE_BEGINS,
    CAPTURE_ENDS,
    CAPTURED_RANGE,
    CPP_RANGE,
    INPUTS_RANGE,
    OWN_RANGE,
    READ_REPLAY,
    REPLAY_RANGE,
    UNSEEN_REPLAY,
    range_name,
)
from kernelscope.model.audit import Audit, Outside
from kernelscope.recording.audit.audit_session import is_work
from kernelscope.recording.audit.claims import Found, HostEvent, operators
from kernelscope.recording.audit.device_claims import DeviceEvent, on_device
from kernelscope.recording.audit.generated_launches import lines_that_launch


def host(name: str, start: int, end: int, thread: int = 1, correlation: int = 0) -> HostEvent:
    return HostEvent(name, thread, start, end, correlation)


def call(index: int, start: int, end: int, thread: int = 1) -> HostEvent:
    return host(range_name(index, "kernel"), start, end, thread, 1000 + index)


def test_an_operator_belongs_to_the_call_around_it_or_is_listed() -> None:
    events = [
        call(0, 0, 10), host("aten::mm", 2, 8),
        host("aten::linear", 20, 40), call(1, 25, 35), host("aten::addmm", 26, 34),  # composite: by its parts
        host("aten::sum", 50, 60), host("aten::add", 52, 58),  # one launch, not two
        host("aten::sort", 61, 69), host("aten::sort", 62, 68),  # an overload inside another
        host("aten::add_", 100, 120), host("aten::add_", 101, 102), call(2, 105, 110),  # passed on to a layer
        host("aten::mm", 2, 8, thread=2),  # the call of another thread is not its own
        host(OWN_RANGE, 70, 80), host("aten::clone", 71, 79),
        host(CPP_RANGE, 80, 90), host("aten::mm", 81, 89),
        host("compile_inner (dynamo_timed)", 90, 99), host("aten::add", 91, 92),
        host("compiled_autograd", 140, 150), host("aten::zeros_like", 141, 142),  # captures a backward pass
        host("gloo:all_gather", 5, 15, thread=3), host("aten::copy_", 6, 7, thread=3),  # its part
        host("aten::dropout", 130, 131),  # of a model in eval mode: nothing inside
    ]  # fmt: skip
    found = operators(events, is_work)
    assert (found.launches, found.nanoseconds, found.compiling) == (3, 25, 2)
    assert {(each.name, each.launches) for each in found.outside} == {
        ("aten::sum", 1), ("aten::sort", 1), ("aten::mm", 1),
    }  # fmt: skip


def test_views_allocations_and_ranges_are_not_work() -> None:
    assert is_work("aten::mm")
    assert is_work("aten::add_")
    assert is_work("aten::_local_scalar_dense")
    for name in ("aten::view", "aten::t", "aten::dropout", "aten::split", "aten::conv2d", "aten::item",
                 "aten::cudnn_is_acceptable", "inductor::_alloc_from_pool", "inductor::_reinterpret_tensor",
                 "aten::empty", "aten::empty_strided", "aten::resize_",
                 "ProfilerStep#1", "autograd::engine::evaluate_function: X", "nowhere::nothing"):  # fmt: skip
        assert not is_work(name), name


def test_a_launch_inside_compiled_code_without_a_call_is_missing() -> None:
    events = [host("## Call CompiledFxGraph abc ##", 0, 50), call(0, 1, 9), host("aten::mm", 10, 20)]
    found = operators(events, is_work)
    audit = Audit("cpu", 1, found.launches, 8e-9, found.outside, generated=2, generated_seen=1)
    assert [each.in_compiled_code for each in found.outside] == [True]
    assert audit.missing == 2
    assert audit.share_of_launches == 1 / 3
    assert Audit.from_json(audit.as_json()) == audit


def work(name: str, correlation: int, start: int, linked: int = 0) -> DeviceEvent:
    return DeviceEvent(name, correlation, linked, start, start + 10)


def test_a_kernel_of_a_gpu_belongs_to_the_call_around_its_launch() -> None:
    events = [
        call(0, 0, 10),
        host("aten::copy_", 20, 30, correlation=7),
        host("benchmark (dynamo_timed)", 50, 60, correlation=8),
        host(OWN_RANGE, 70, 80, correlation=9),
        host(INPUTS_RANGE, 90, 95, correlation=10),
        host("## Call CompiledFxGraph abc ##", 100, 120, thread=2, correlation=11),
        host("aten::mm", 101, 110, thread=2, correlation=12),
    ]  # fmt: skip
    functions = [
        host("cudaLaunchKernel", 2, 3, correlation=1), host("cudaMemcpyAsync", 21, 22, correlation=2),
        host("cuLaunchKernel", 51, 52, correlation=4), host("cuLaunchKernel", 71, 72, correlation=5),
        host("cudaLaunchKernel", 91, 92, correlation=6), host("cudaLaunchKernelExC", 105, 106, correlation=7),
    ]  # fmt: skip
    device = [
        work("triton_poi_0", 1, 200, 1000), work("Memcpy HtoD", 2, 201, 7), work("candidate", 4, 202, 8),
        work("flat", 5, 203, 9), work("copy", 6, 204, 10), work("gemm", 7, 205, 12), work("nccl", 99, 206),
    ]  # fmt: skip
    found = on_device(events, functions, device)
    assert (found.launches, found.nanoseconds, found.compiling, found.copies) == (1, 10, 1, 1)
    assert {(each.name, each.launcher, each.in_compiled_code) for each in found.outside} == {
        ("Memcpy HtoD", "aten::copy_", False), ("gemm", "aten::mm", True), ("nccl", "", False),
    }  # fmt: skip


def test_numbers_of_functions_and_of_operators_are_two_countings() -> None:
    """The operator with the number of the function that launched a kernel has nothing to do with it."""
    events = [call(0, 0, 10), host("aten::add", 20, 30, correlation=5)]
    functions = [
        host("cudaLaunchKernel", 5, 6, correlation=5),
        host("cudaEventQuery", 25, 26, correlation=1000),
    ]
    found = on_device(events, functions, [work("kernel", 5, 50, 1000), work("user kernel", 5, 60)])
    assert (found.launches, found.outside) == (2, ())


def replays_of(in_calls: list[bool], executed: int, name: str = f"{REPLAY_RANGE}3") -> Found:
    """One capture of launches, some of them in calls, and one replay."""
    events = [host(f"{CAPTURE_BEGINS}3", 0, 2), host(f"{CAPTURE_ENDS}3", 90, 92), host(name, 100, 110)]
    functions = [host("cudaGraphLaunch", 103, 104, correlation=50)]
    functions.append(host("cudaStreamIsCapturing", 5, 6, correlation=51))
    for place, is_call in enumerate(in_calls):
        start = 10 + 10 * place
        functions.append(host("cudaLaunchKernel", start + 1, start + 2, correlation=60 + place))
        if is_call:
            events.append(host(CAPTURED_RANGE, start, start + 5))
    return on_device(events, functions, [work(f"k{n}", 50, 200 + 10 * n) for n in range(executed)])


def test_what_a_replay_executes_was_launched_in_its_capture() -> None:
    assert (replays_of([True, True], 2).launches, replays_of([True, True], 2).outside) == (2, ())
    partly = replays_of([True, False, True], 3)
    assert partly.launches == 2
    assert [(each.name, each.launcher) for each in partly.outside] == [("k1", "replay 3")]
    assert replays_of([True, False], 3).launches == 0  # which of them are calls is not known
    unseen = replays_of([True, True], 2, UNSEEN_REPLAY)
    assert {each.launcher for each in unseen.outside} == {UNSEEN_REPLAY.removeprefix("kernelscope: ")}


def test_a_graph_of_before_whose_nodes_were_read_is_inside_calls() -> None:
    def replay(nodes: int, executed: int) -> Found:
        events = [host(f"{READ_REPLAY}{nodes}", 100, 110, correlation=9)]
        functions = [host("cudaGraphLaunch", 103, 104, correlation=50)]
        return on_device(events, functions, [work(f"k{n}", 50, 200 + 10 * n) for n in range(executed)])

    assert (replay(2, 2).launches, replay(2, 2).outside) == (2, ())
    assert replay(3, 2).launches == 2  # one node is a copy of nothing
    in_bodies = replay(2, 3)  # conditional nodes executed more: which of them are the nodes is not known
    assert in_bodies.launches == 0
    assert {each.launcher for each in in_bodies.outside} == {UNSEEN_REPLAY.removeprefix("kernelscope: ")}


def test_less_than_everything_is_never_called_all() -> None:
    nearly = Audit("cpu", 1, 99_999, 1.0, (Outside("aten::mm", "", 1, 1e-9, False),))
    assert nearly.summary.startswith("99.9 % of the launches and 99.9 %")


def test_lines_that_launch_in_each_execution() -> None:
    source = """
cpp_fused_0 = async_compile.cpp_pybinding(['float*'], '''text''')
def partition_0(args):
    cpp_fused_0(args[0], args[0])
def subgraph_1(args):
    extern_kernels.mm(args[0], args[0], out=args[0])
class Runner:
    def call(self, args):
        arg0_1, = args
        buf0 = empty_strided_cpu((4,), (1,), torch.float32)
        cpp_fused_0(arg0_1, buf0)
        (buf9,) = self.partitions[0]([buf0])
        buf9 = subgraph_1([buf0])
        buf9 = subgraph_1([buf0])
        extern_kernels.mm(arg0_1, buf0, out=buf0)
        buf1 = torch.ops.aten.sort.default(buf0)
        buf2 = torch.ops.inductor._reinterpret_tensor.default(buf0)
        buf3 = torch.ops.aten.view_as_real.default(buf0)
        pool1 = torch.ops.inductor._alloc_from_pool.default(buf0, 0, torch.float32, (4,), (1,))
        if buf1:
            cpp_fused_0(buf0, buf0)
        return (buf0, )
"""
    assert lines_that_launch(source) == (11, 4, 6, 6, 15, 16)
