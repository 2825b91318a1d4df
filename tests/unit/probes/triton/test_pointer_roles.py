"""Roles of a Triton kernel's pointers, from its source: text in, roles out."""

from __future__ import annotations

import textwrap

import pytest

from kernelscope.probes.triton.kernel_signatures import inductor_roles
from kernelscope.probes.triton.pointer_roles import roles_in_source


def roles(body: str) -> dict[str, str]:
    lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    found = roles_in_source(f"@triton.jit\ndef kernel(a, b, n):\n{lines}\n", "kernel")
    return {name: role for name, role in found.items() if name != "n"}  # a number, whose role nobody asks for


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param("tl.store(b + n, tl.load(a + n))", {"a": "in", "b": "out"}, id="copy"),
        pytest.param("tl.store(a + n, tl.load(a + n) + 1)", {"a": "inout"}, id="in place"),
        pytest.param("tl.atomic_add(b, tl.load(a))", {"a": "in", "b": "inout"}, id="atomic"),
        pytest.param("tl.atomic_cas(b, 0, 1)", {"b": "inout"}, id="compare and swap"),
        pytest.param("tl.store(pointer=b, value=tl.load(pointer=a))", {"a": "in", "b": "out"}, id="keywords"),
        pytest.param("tl.store(value=1.0, pointer=b)", {"b": "out"}, id="keywords in another order"),
        pytest.param("tl.store(b + tl.load(a), 1.0)", {"a": "in", "b": "out"}, id="a loaded index"),
        pytest.param("x = tl.load(a)\ntl.store(b, x)", {"a": "in", "b": "out"}, id="the value is no pointer"),
        pytest.param("p = a + n\nq = p + 1\ntl.store(q, 1.0)", {"a": "out"}, id="through variables"),
        pytest.param(
            "p: tl.tensor = a + n\ntl.store(p, 1.0)", {"a": "out"}, id="through an annotated variable"
        ),
        pytest.param("tl.store((p := b + n), 1.0)\ntl.load(p)", {"b": "inout"}, id="through a walrus"),
        pytest.param("p, q = a, b\ntl.store(q, tl.load(p))", {"a": "in", "b": "out"}, id="through a tuple"),
        pytest.param("p = tl.where(n > 0, a, b)\ntl.store(p, 1.0)", {"a": "out", "b": "out"}, id="either"),
        pytest.param("p = a if n else b\ntl.load(p)", {"a": "in", "b": "in"}, id="either, by an expression"),
        pytest.param(
            "for i in range(n):\n    tl.load(a)\n    a += 1\n    tl.store(b, 1.0)\n    b += 1",
            {"a": "in", "b": "out"},
            id="moved in a loop",
        ),
        pytest.param(
            "p = a\nfor i in range(n):\n    tl.store(p, 1.0)\n    p = b",
            {"a": "out", "b": "out"},
            id="carried back by a loop",
        ),
        pytest.param(
            "for p in (a, b):\n    tl.store(p, 1.0)", {"a": "out", "b": "out"}, id="a loop over pointers"
        ),
        pytest.param("tl.store(b, n.to(a.dtype.element_ty))", {"b": "out"}, id="a type is no pointer"),
        pytest.param(
            "x = n.to(b.dtype.element_ty)\nhelper(x)\ntl.store(b, x)", {"b": "out"}, id="nor is what has it"
        ),
        pytest.param("if a is not None:\n    tl.store(b, 1.0)", {"b": "out"}, id="a comparison"),
        pytest.param("helper(a + n)", {"a": "inout"}, id="another function"),
        pytest.param("helper(n, pointer=a)", {"a": "inout"}, id="another function, by keyword"),
        pytest.param("x = module.helper(a)\ntl.store(b, x)", {"a": "inout", "b": "out"}, id="and its value"),
        pytest.param(
            "p = tl.make_block_ptr(base=a, shape=(n,))\np = tl.advance(p, (8,))\ntl.load(p)",
            {"a": "in"},
            id="block pointer",
        ),
        pytest.param(
            "d, e = tl.make_tensor_descriptor(a), tl.make_tensor_descriptor(b)\ne.store([0], d.load([0]))",
            {"a": "in", "b": "out"},
            id="descriptor",
        ),
        pytest.param(
            "d = tl.make_tensor_descriptor(b, [n])\nd.atomic_add([0], tl.load(a))",
            {"a": "in", "b": "inout"},
            id="descriptor, atomic",
        ),
        pytest.param("p = a.to(tl.pointer_type(tl.int8))\ntl.store(p, 0)", {"a": "out"}, id="a cast pointer"),
        pytest.param("tl.device_print('n', n)", {}, id="nothing"),
    ],
)
def test_roles(body: str, expected: dict[str, str]) -> None:
    assert roles(body) == expected


def test_only_the_named_function_counts() -> None:
    source = """
        def helper(a):
            tl.store(a, 1.0)

        @triton.jit
        def kernel(a, b):
            tl.load(a)
    """
    assert roles_in_source(source, "kernel") == {"a": "in"}
    assert roles_in_source(source, "helper") == {"a": "out"}


def test_indented_source_and_keyword_only_parameters() -> None:
    source = "    @triton.jit\n    def kernel(a, *, b):\n        tl.store(b, tl.load(a))\n"
    assert roles_in_source(source, "kernel") == {"a": "in", "b": "out"}


@pytest.mark.parametrize("source", ["", "not python (", "x = 1"])
def test_a_source_without_the_function_tells_nothing(source: str) -> None:
    assert roles_in_source(source, "kernel") == {}


TEMPLATE = """
    @triton.jit
    def helper(P, out, offset, IS_STORED):
        value = tl.load(P + offset)
        if IS_STORED:
            tl.store(out + offset, value)
        return P + 1

    @triton.jit
    def triton_tem_0(arg_Q, arg_LSE, arg_MAX, arg_FULL, arg_DQ, arg_DESC, in_ptr5, in_ptr6, out_ptr0):
        HAS_FULL : tl.constexpr = False
        OUTPUT_LSE : tl.constexpr = True
        Q = arg_Q
        LSE = arg_LSE
        q = helper(Q, arg_DQ, 0, IS_STORED=True)
        tl.load(q)
        if HAS_FULL and OUTPUT_LSE:
            tl.load(arg_FULL)
        if OUTPUT_LSE:
            tl.store(LSE, 0.0)
        if not OUTPUT_LSE:
            tl.store(arg_MAX, 0.0)
        unknown.make_descriptor(arg_DESC)
        tl.atomic_add(in_ptr5 + 3, tl.load(in_ptr6), sem="relaxed")
        tl.store(out_ptr0, q)
"""


def test_the_code_of_a_template_tells_its_roles() -> None:
    """Through its own functions, without the branches that its constants rule out, and against its names."""
    names = [
        "arg_Q",
        "arg_LSE",
        "arg_MAX",
        "arg_FULL",
        "arg_DQ",
        "arg_DESC",
        "in_ptr5",
        "in_ptr6",
        "out_ptr0",
    ]
    roles = inductor_roles(TEMPLATE, "triton_tem_0", names, ())
    expected = ["in", "out", "unused", "unused", "out", "in", "inout", "in", "out"]
    assert roles == dict(zip(names, expected, strict=True))
    assert inductor_roles(TEMPLATE, "triton_tem_0", names, {"arg_DESC"})["arg_DESC"] == "inout"


def test_a_constant_that_is_assigned_again_decides_nothing() -> None:
    body = "    FLAG: tl.constexpr = False\n    FLAG = a\n    if FLAG:\n        tl.store(b, 1)\n"
    source = f"def kernel(a, b):\n{body}"
    assert roles_in_source(source, "kernel")["b"] == "out"
