"""Which events of a trace belong to recorded calls."""

from __future__ import annotations

from kernelscope.events import CPP_RANGE, OWN_RANGE, range_name
from kernelscope.model.audit import Audit, Outside
from kernelscope.recording.audit.audit_session import is_work
from kernelscope.recording.audit.claims import DeviceEvent, HostEvent, on_device, operators
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
        host("aten::mm", 2, 8, thread=2),  # the call of another thread is not its own
        host(OWN_RANGE, 70, 80), host("aten::clone", 71, 79),
        host(CPP_RANGE, 80, 90), host("aten::mm", 81, 89),
        host("compile_inner (dynamo_timed)", 90, 99), host("aten::add", 91, 92),
    ]  # fmt: skip
    found = operators(events, is_work)
    assert (found.launches, found.nanoseconds, found.compiling) == (2, 20, 1)
    assert {(each.name, each.launches) for each in found.outside} == {("aten::sum", 1), ("aten::mm", 1)}


def test_views_allocations_and_ranges_are_not_work() -> None:
    assert is_work("aten::mm")
    assert is_work("aten::add_")
    for name in ("aten::view", "aten::t", "aten::empty", "aten::empty_strided", "aten::resize_",
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


def test_a_kernel_of_a_gpu_belongs_to_the_call_around_its_launch() -> None:
    events = [
        call(0, 0, 10),
        host("cudaLaunchKernel", 2, 3, correlation=1),
        host("aten::copy_", 20, 30, correlation=7), host("cudaMemcpyAsync", 21, 22, correlation=2),
        host("cudaGraphLaunch", 40, 41, correlation=3),
        host("benchmark (dynamo_timed)", 50, 60, correlation=8),
        host("cuLaunchKernel", 51, 52, correlation=4),
    ]  # fmt: skip
    device = [
        DeviceEvent("triton_poi_fused_0", 1, 100), DeviceEvent("Memcpy HtoD", 2, 50),
        DeviceEvent("triton_red_fused_1", 3, 30), DeviceEvent("cutlass_gemm", 3, 20),
        DeviceEvent("triton_poi_fused_0", 4, 5), DeviceEvent("nccl", 99, 10),
    ]  # fmt: skip
    found = on_device(events, device, {"triton_red_fused_1"})
    assert (found.launches, found.nanoseconds, found.compiling) == (2, 130, 1)
    assert {(each.name, each.launcher) for each in found.outside} == {
        ("Memcpy HtoD", "aten::copy_"), ("cutlass_gemm", "cudaGraphLaunch"), ("nccl", ""),
    }  # fmt: skip


def test_less_than_everything_is_never_called_all() -> None:
    nearly = Audit("cpu", 1, 99_999, 1.0, (Outside("aten::mm", "", 1, 1e-9, False),))
    assert nearly.summary.startswith("99.9 % of the launches and 99.9 %")


def test_lines_that_launch_once_in_each_execution() -> None:
    source = """
cpp_fused_0 = async_compile.cpp_pybinding(['float*'], '''text''')
class Runner:
    def call(self, args):
        arg0_1, = args
        buf0 = empty_strided_cpu((4,), (1,), torch.float32)
        cpp_fused_0(arg0_1, buf0)
        extern_kernels.mm(arg0_1, buf0, out=buf0)
        buf1 = torch.ops.aten.sort.default(buf0)
        buf2 = torch.ops.inductor._reinterpret_tensor.default(buf0)
        if buf1:
            cpp_fused_0(buf0, buf0)
        return (buf0, )
"""
    assert lines_that_launch(source) == {7, 8, 9}
