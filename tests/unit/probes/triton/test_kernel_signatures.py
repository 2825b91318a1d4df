"""Names and roles from the text of a kernel."""

from __future__ import annotations

import pytest

from kernelscope.probes.triton.kernel_signatures import cpp_arguments

HEAD = '#include <torch/csrc/inductor/cpp_prefix.h>\nextern "C"  void  kernel('


def kernel(params: str, body: str = "") -> str:
    return f"{HEAD}{params})\n{{\n    {{\n        {body}\n    }}\n}}\n"


def test_names_and_roles() -> None:
    source = kernel(
        "float* in_out_ptr0,\n                       const int64_t* in_ptr0,\n"
        "                       const float* in_ptr1,\n                       bfloat16* out_ptr1,\n"
        "                       const int64_t ks0,\n                       const double ks1"
    )
    assert list(cpp_arguments(source)) == [
        ("in_out_ptr0", "inout"), ("in_ptr0", "in"), ("in_ptr1", "in"), ("out_ptr1", "out"),
        ("ks0", "scalar"), ("ks1", "scalar"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        "atomic_add(&out_ptr0[static_cast<int64_t>(x0 + 4L*tmp5)], static_cast<float>(tmp7));",
        "atomic_add_vec<float, 2, 1>(out_ptr0, tmp9, tmp3, static_cast<int64_t>(3L));",
        "out_ptr0[static_cast<int64_t>(x1 + 9L*tmp6)] += tmp9;",
        "(tmp9 + at::vec::Vectorized<float>::loadu(out_ptr0 + int64_t(x1))).store(out_ptr0 + 1);",
        "(tmp9 + at::vec::VectorizedN<double,2>::loadu(out_ptr0 + int64_t(x1), 4)).store(out_ptr0);",
    ],
)
def test_accumulation_reads_what_it_writes(body: str) -> None:
    assert cpp_arguments(kernel("const float* in_ptr0, float* out_ptr0", body))[1] == ("out_ptr0", "inout")


@pytest.mark.parametrize(
    "body",
    [
        "out_ptr0[static_cast<int64_t>(x0)] = tmp0; out_ptr1[static_cast<int64_t>(x0)] += tmp1;",
        "atomic_add(&out_ptr1[x0], tmp7); tmp0.store(out_ptr0 + x0);",
        "tmp_acc0 += out_ptr00[x0]; out_ptr00[1] += 3; atomic_add(&out_ptr01[0], out_ptr0);",
        "out_ptr0[x0] = x0 += 1;",
    ],
)
def test_what_others_do_is_not_its_own(body: str) -> None:
    assert cpp_arguments(kernel("float* out_ptr0", body)) == (("out_ptr0", "out"),)


@pytest.mark.parametrize("params", ["", "void", "  "])
def test_no_arguments(params: str) -> None:
    assert cpp_arguments(kernel(params)) == ()


def test_a_source_without_signature_has_no_names() -> None:
    assert cpp_arguments("int helper(float* a) { return 1; }") == ()


def test_the_signature_of_the_kernel_not_of_a_helper() -> None:
    source = "static inline float twice(const float* x) { return *x; }\n" + kernel("float* out_ptr0")
    assert list(cpp_arguments(source)) == [("out_ptr0", "out")]
