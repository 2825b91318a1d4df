"""What a wrapper's text tells about its variables."""

from __future__ import annotations

import pytest

from kernelscope.shadowing.reference.wrapper_variables import WrapperText, read_text

SOURCE = """
cpp_fused_a_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
extern "C"  void  kernel(const float* in_ptr0,
                       float* out_ptr0)
{
}
''')


cpp_fused_b_1 = async_compile.cpp_pybinding(['float*', 'const float*'], r'''
extern "C"  void  kernel(float* in_out_ptr0,
                       const float* in_ptr0)
{
}
''')

def call(self, args):
    arg0_1, arg1_1 = args
    args.clear()
    buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)
    cpp_fused_a_0(arg0_1, buf0)
    buf1 = buf0; del buf0  # reuse
    cpp_fused_b_1(buf1, arg1_1)
    buf2 = empty_strided_cpu((4, ), (1, ), torch.float32)
    buf3 = buf2; del buf2  # reuse
    extern_kernels.mm(buf1, arg1_1, out=buf3)
    buf4 = torch.ops.aten.topk.default(buf3, 2)
    buf5 = buf4[0]
    buf6 = buf4[1]
    del buf4
    return (buf5, )
"""


@pytest.fixture
def text() -> WrapperText:
    return read_text(SOURCE, "wrapper.py")


def line_of(part: str) -> int:
    return next(i for i, line in enumerate(SOURCE.splitlines(), 1) if part in line)


def test_who_writes_last(text: WrapperText) -> None:
    assert text.last_write["buf0"] == line_of("cpp_fused_a_0(arg0_1")
    assert text.last_write["buf1"] == line_of("cpp_fused_b_1(buf1")
    assert text.last_write["buf3"] == line_of("extern_kernels.mm")
    assert "arg0_1" not in text.last_write


def test_a_value_goes_on_under_a_new_name_only_if_it_is_updated(text: WrapperText) -> None:
    assert text.is_read_after("buf0", line_of("cpp_fused_a_0(arg0_1"))
    assert not text.is_read_after("buf2", line_of("buf2 ="))


def test_memory_that_a_launch_fills_before_it_is_updated_is_not_read() -> None:
    """The value in buf1 ends where buf2 gets its memory, although a later launch updates what buf2 holds."""
    old = "    buf3 = buf2; del buf2  # reuse\n    extern_kernels.mm(buf1, arg1_1, out=buf3)\n"
    new = (
        "    buf8 = buf1; del buf1  # reuse\n    cpp_fused_a_0(arg0_1, buf8)\n"
        "    buf3 = buf8; del buf8  # reuse\n    cpp_fused_b_1(buf3, arg1_1)\n"
    )
    assert old in SOURCE
    text = read_text(SOURCE.replace(old, new), "wrapper.py")
    assert not text.is_read_after("buf1", line_of("cpp_fused_b_1(buf1"))
    assert text.is_read_after("buf8", line_of("cpp_fused_b_1(buf1") + 3)


def test_memory_that_a_kernel_fills_itself_before_it_updates_it_is_not_read() -> None:
    """Inductor gives what a kernel makes and what it makes of that one argument, `in_out_ptr0`."""
    made_inside = SOURCE.replace(
        "in_ptr0)\n{\n}\n''')\n\ndef", "in_ptr0)\n{\nauto out_ptr1 = in_out_ptr0;\n}\n''')\n\ndef"
    )
    assert made_inside != SOURCE
    text = read_text(made_inside, "wrapper.py")
    assert not text.is_read_after("buf0", line_of("cpp_fused_a_0(arg0_1") + 1)
    assert text.last_write["buf1"] == line_of("cpp_fused_b_1(buf1") + 1


def test_an_update_under_a_later_name_is_one_of_every_earlier_name() -> None:
    source = SOURCE.replace("buf2 = empty", "buf7 = buf1; del buf1  # reuse\n    buf2 = empty")
    source = source.replace(
        "mm(buf1, arg1_1, out=buf3)", "mm(buf2, arg1_1, out=buf3)\n    cpp_fused_b_1(buf7, arg1_1)"
    )
    chain = read_text(source, "wrapper.py")
    assert chain.goes_on_after("buf0", line_of("cpp_fused_a_0(arg0_1"))
    assert chain.goes_on_after("buf1", line_of("cpp_fused_b_1(buf1"))
    assert not chain.goes_on_after("buf2", line_of("buf2 ="))
    assert not chain.goes_on_after("buf7", 1 + len(source.splitlines()))


def test_parts_of_a_tuple(text: WrapperText) -> None:
    assert text.items_of("buf4") == ["buf5", "buf6"]
    assert text.is_read_after("buf5", line_of("buf5 ="))
    assert not text.is_read_after("buf6", line_of("buf6 ="))


def test_what_is_returned(text: WrapperText) -> None:
    assert text.returned == {"buf5"}


BRANCHES = """
def true_graph_0(args):
    true_graph_0_arg0_1, = args
    args.clear()
    true_graph_0_buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)
    extern_kernels.mm(true_graph_0_arg0_1, true_graph_0_arg0_1, out=true_graph_0_buf0)
    return (true_graph_0_buf0, )

def call(self, args):
    arg0_1, = args
    args.clear()
    buf0 = empty_strided_cpu((), (), torch.bool)
    extern_kernels.mm(arg0_1, arg0_1, out=buf0)
    buf1 = [None] * 1
    if buf0.item():
        true_graph_0_args = [arg0_1]
        buf1 = true_graph_0(true_graph_0_args)
    buf2 = buf1[0]
    return (buf2, )
"""


def test_a_condition_is_read() -> None:
    whole = read_text(BRANCHES, "wrapper.py", bodies={"true_graph_0"})
    line = next(i for i, text in enumerate(BRANCHES.splitlines(), 1) if "out=buf0" in text)
    assert whole.is_read_after("buf0", line)
    assert whole.results == ["buf2"]
    assert not any(name.startswith("true_graph_0_buf") for name in whole.last_read)


def test_the_body_of_a_branch_has_a_text_of_its_own() -> None:
    body = read_text(BRANCHES, "wrapper.py", "true_graph_0")
    assert body.results == ["true_graph_0_buf0"]
    assert "buf0" not in body.last_read
    assert {"true_graph_0_buf0", "true_graph_0_arg0_1"} <= body.variables
