"""Generated C++ wrappers as text: what is made of their launches."""

from __future__ import annotations

import json
import re

import pytest

from kernelscope.probes.cpp_wrappers.cpp_text import arguments, input_names, wrapper_name
from kernelscope.probes.cpp_wrappers.instrumented_code import instrument
from kernelscope.probes.cpp_wrappers.shim_signatures import (
    Descriptions,
    described_shim,
    kernel_sources,
    operator_of_shim,
)

WRAPPER = """
#include <torch/csrc/inductor/aoti_include/cpu.h>
#ifdef SOMETHING
#include <something>
#endif
namespace torch::aot_inductor {
void AOTInductorModel::run_impl(
    AtenTensorHandle* input_handles,
    AtenTensorHandle* output_handles
) {
    auto inputs = steal_from_raw_handles_to_raii_handles(input_handles, 2);
    auto arg0_1 = std::move(inputs[0]);
    auto arg1_1 = std::move(inputs[1]);
    AtenTensorHandle buf0_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(1, a, b, f32, cpu, this->device_idx_, &buf0_handle));
    RAIIAtenTensorHandle buf0(buf0_handle);
    cpp_fused_relu_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()), 3L);
    // Topologically Sorted Source Nodes: [mm], Original ATen: [aten.mm]
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(buf1, buf0, RAIIAtenTensorHandle(tmp_arg1_1_0),
        wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(arg0_1, 2, x, y, 0L)), 1L, 1L));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_convolution(buf0, arg1_1, 0,
        std::array<int64_t, 1>{1L}.cbegin(), 1, p, 1, d, 1, 0, o, 1, 1L, &buf2_handle));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_view_as_real(buf2, &buf3_handle));
    arg0_1.reset();
} // AOTInductorModel::run_impl
} // namespace torch::aot_inductor
"""
KERNELS = """
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  cpp_fused_relu_0(const float* in_ptr0,
                       float* out_ptr0,
                       const int64_t ks0)
{
    out_ptr0[0] = in_ptr0[0];
}
"""


def metas(code: str) -> list[tuple[list[str], dict[str, object]]]:
    """What the instrumented code says of its launches, read back from its C strings."""
    found = []
    for _, literals in re.findall(r"kernelscope_meta_(\d+)\[\] =\n((?:\".*\"\n?)+);", code):
        pieces = re.findall(r'^"(.*)"$', literals, re.MULTILINE)
        text = re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), "".join(pieces))
        names, _, rest = text.partition("\n")
        found.append((names.split("\t"), json.loads(rest)))
    return found


def test_a_wrapper() -> None:
    made = instrument(WRAPPER, Descriptions(WRAPPER, KERNELS, None), {"source": WRAPPER})
    assert made.launches == 3
    assert made.unseen == []
    graph, relu, addmm, _ = metas(made.code)
    assert graph[1]["inputs"] == ["arg0_1", "arg1_1"]
    assert graph[1]["source"] == WRAPPER
    assert relu[0] == ["cpp_fused_relu_0"]
    assert relu[1]["args"] == [
        ["in_ptr0", "in", "arg0_1"],
        ["out_ptr0", "out", "buf0"],
        ["ks0", "scalar", ""],
    ]
    assert addmm[0] == ["aoti_torch_cpu_addmm_out", "addmm", "extern_kernels.addmm", "aten.addmm.out"]
    assert [arg[:3] for arg in addmm[1]["args"]] == [  # type: ignore[attr-defined]
        ["out", "out", "buf1"], ["self", "in", "buf0"], ["mat1", "in", "arg1_1"], ["mat2", "in", "arg0_1"],
        ["beta", "scalar", ""], ["alpha", "scalar", ""],
    ]  # fmt: skip
    assert addmm[1]["nodes"] == "[mm]"
    code = made.code
    assert "kernelscope::into((float*)(buf0.data_ptr()), buf0)" in code
    assert code.count("RAIIAtenTensorHandle(tmp_arg1_1_0)") == code.count("tmp_arg1_1_0") - code[
        : code.index("void AOTInductorModel")
    ].count("tmp_arg1_1_0")  # evaluated once
    assert "aoti_torch_cpu_view_as_real(buf2, &buf3_handle)" in code.split("run_impl", 1)[1]  # no launch
    assert "nullptr, std::array<int64_t, 1>{1L}.cbegin()" in code  # a pointer stays one
    assert "kernelscope::birth(" in code
    # After the includes, not inside a condition.
    assert code.index("#include <something>") > code.index("namespace kernelscope {")


def test_other_text_is_left_alone() -> None:
    assert instrument("int main() {}", Descriptions("", "", None), {}).code == "int main() {}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f(a, b)", ["a", "b"]),
        ('f("a, (b", g(x, y), {1, 2})', ['"a, (b"', "g(x, y)", "{1, 2}"]),
        ("f(std::array<int64_t, 2>{1, 2}.data(), a < b)", ["std::array<int64_t, 2>{1, 2}.data()", "a < b"]),
        ("f()", []),
    ],
)
def test_arguments(text: str, expected: list[str]) -> None:
    found, end = arguments(text, 2)
    assert found == expected
    assert text[end] == ")"
    with pytest.raises(ValueError, match="does not end"):
        arguments(text[:-1], 2)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("buf3", "buf3"),
        ("(float*)(buf3.data_ptr())", "buf3"),
        ("&buf7_handle", "buf7"),
        ("RAIIAtenTensorHandle(tmp_primals_4_0)", "primals_4"),
        ("wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(l1_weight, 2, a, b, 0L))", "l1_weight"),
        ("nullptr", ""),
        ("1L", ""),
    ],
)
def test_names(text: str, name: str) -> None:
    assert wrapper_name(text) == name


def test_shims() -> None:
    assert str(operator_of_shim("aoti_torch_cpu_addmm_out")) == "aten.addmm.out"
    assert str(operator_of_shim("aoti_torch_cuda_topk")) == "aten.topk.default"
    assert operator_of_shim("aoti_torch_nothing_at_all") is None
    topk = described_shim("aoti_torch_cpu_topk")
    assert topk is not None
    assert [arg for arg in topk.args if arg[1] != "scalar"] == [
        ("self", "in", "value"), ("ret0", "out", "returns"), ("ret1", "out", "returns"),
    ]  # fmt: skip
    copy = described_shim("aoti_torch_copy_")
    assert copy is not None
    assert copy.args[0][:2] == ("self", "inout")
    assert described_shim("aoti_torch_unheard_of") is None


def test_sources_of_kernels() -> None:
    [(name, source)] = kernel_sources(KERNELS).items()
    assert name == "cpp_fused_relu_0"
    assert source.startswith('extern "C"')
    assert source.endswith("}")


def test_inputs() -> None:
    assert input_names(WRAPPER) == ["arg0_1", "arg1_1"]


LOOKED_UP = """
void inductor_entry_impl(
    AtenTensorHandle* input_handles
) {
    auto inputs = steal_from_raw_handles_to_raii_handles(input_handles, 2);
    auto arg0_1 = std::move(inputs[0]);
    RAIIAtenTensorHandle buf6;
    {
        auto var_0 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(arg0_1, 2, a, b, 0L));
        AtenTensorHandle tmp_var_0;
        aoti_torch_new_tensor_handle(arg1_1, &tmp_var_0);
        std::array<StableIValue, 2> dispatch_vars{from(var_0.release()), from(tmp_var_0)};
        AOTI_TORCH_ERROR_CODE_CHECK(
            aoti_torch_call_dispatcher("aten::mm", "", dispatch_vars.data())
        );
        buf6 = torch::stable::detail::to<AtenTensorHandle>(dispatch_vars[0]);
    }
    {
        auto var_1 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(arg0_1, 2, a, b, 4L));
        stack.emplace_back(c10::IValue(*torch::aot_inductor::tensor_handle_to_tensor_pointer(var_1)));
        static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::relu_", "");
    }
    RAIIAtenTensorHandle buf7;
    {
        AtenTensorHandle tmp_var_0;
        aoti_torch_new_tensor_handle(buf6, &tmp_var_0);
        AOTI_TORCH_ERROR_CODE_CHECK(
            aoti_torch_call_dispatcher("aten::_conj", "", dispatch_vars.data())
        );
        buf7 = torch::stable::detail::to<AtenTensorHandle>(dispatch_vars[0]);
    }
} // inductor_entry_impl
"""


def test_operators_that_are_looked_up() -> None:
    """Views that are made for the call are its inputs; what only makes a view is no launch."""
    made = instrument(LOOKED_UP, Descriptions(LOOKED_UP, "", None), {})
    assert made.launches == 2
    _, mm, relu = metas(made.code)
    assert mm[1]["args"] == [["self", "in", "arg0_1"], ["mat2", "in", "arg1_1"], ["result0", "out", "buf6"]]
    assert relu[1]["args"] == [["self", "inout", "arg0_1"]]
    lines = [line.strip() for line in made.code.splitlines()]
    first = lines.index("kernelscope::Kept kernelscope_var_0(var_0);")
    assert lines[first - 1].startswith("auto var_0 = ")
    told = "kernelscope_meta_1, {}ull, kernelscope_var_0, arg1_1, buf6);"
    assert lines[first + 1] == f"kernelscope::around(0, {told.format(3)}"
    assert f"kernelscope::around(1, {told.format(4)}" in lines[first:]
    assert "kernelscope::around(1, kernelscope_meta_2, 1ull, kernelscope_var_1);" in lines


def test_what_a_proxy_makes_is_made_once() -> None:
    """What one operator made is not made again by the next, which writes to it."""
    wrapper = """
void AOTInductorModel::run_impl(
    AtenTensorHandle* input_handles
) {
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_new_uninitialized_tensor(&buf1_handle));
    aoti_torch_proxy_executor_call_function(proxy_executor, 0, 0, ints, 2, std::array<AtenTensorHandle, 2>{arg0_1, buf1}.cbegin());
    aoti_torch_proxy_executor_call_function(proxy_executor, 1, 0, ints, 1, std::array<AtenTensorHandle, 1>{buf1}.cbegin());
} // AOTInductorModel::run_impl
"""  # noqa: E501  # as it is generated
    nodes = json.dumps({"nodes": [{"node": {"target": f"aten::{name}"}} for name in ("sin", "relu_")]})
    made = instrument(wrapper, Descriptions(wrapper, "", nodes), {})
    _, sin, relu = metas(made.code)
    assert sin[0] == ["aten.sin.default", "sin"]
    assert sin[1]["args"][-1][2] == [["self", "in", "arg0_1"], ["result0", "out", "buf1"]]  # type: ignore[index]
    assert relu[1]["args"][-1][2] == [["self", "inout", "buf1"]]  # type: ignore[index]
