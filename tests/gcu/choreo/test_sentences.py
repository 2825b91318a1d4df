"""Mistakes that people make: each gets a sentence that says what, where, and what to write instead."""

from __future__ import annotations

import pytest

from kernelscope.gcu.choreo import ChoreoError, translate

HEAD = """__cok__ { void k(int* a) {} }
__co__ void g(s32 [4] x) { }
__co__ void f(s32 [4] x, s32 [2, 3] y, int n) {
"""
MISTAKES = {
    "x.at(0) = x[1];": "an element of data is written `.at(i, j)`, not as in host code",
    "y.at(0, 0) = y[1][2];": "an element of data is written `.at(i, j)`",
    "y.at(0, 0) = y(1);": "an element of data is written `.at(i, j)`",
    "x[0] = 1;": "an element of data is written `.at(i, j)`",
    "x.at(0) = y + 1;": "a number is expected here, not data of shape [2, 3]; write `.at(…)` for one of its",
    "a = dma.copy x => local; x.at(0) = a * 2;": "not data of shape [4]; write `.at(…)`",
    "x.at(0) = y.span;": "a number is expected here, not 2 numbers; name one of them by its place",
    "local s32 [4] b[2]; x.at(0) = b;": "not an array of buffers; write `b[…].at(…)`",
    "x.at(0) = twice(n);": "`twice` is not declared; a function of the C++ in this file is called by",
    "twice(n);": "does nothing; a function of the C++ in this file is called by `call name(…);`",
    "call g(x);": "`g` is a `__co__` function, which only host code calls; write what both need as a kernel",
    "if (n = 1) { }": "expected `)`, found `=`; equality is written `==`",
    "if (n == 1 and n == 2) { }": "expected `)`, found `and`; write `&&`",
    "local s32 [4] b, c; swap(b, c);": "`b` is not a future; only the results of copies can be exchanged",
    'println("open);': 'this string is never closed; write a `"` at its end, on the same line',
    "println('a');": "characters and strings are written between double quotes",
    "/* x.at(0) = 1;": "this comment is never closed; write `*/` at its end",
    "else { }": "`else` has no `if` before it",
    "__co__ void h() { }": "begins another function, which cannot stand inside this one",
    "__syncthreads();": "`__syncthreads` is CUDA's; all threads of a block wait at `sync.shared;`",
    "unsigned v = 1;": "`unsigned` is a type of C++; use s32, u32, s64, u8",
    "x.at(0) = sqrtf(2.0f);": "`sqrtf` is not declared; in Choreo it is `__sqrtf(…)`",
    "local f32 [4] v {0}; v.at(0) <<= 2;": "`<<` needs integers, not f32",
    "mutable f32 v = 1.0f; v |= 2;": "`|` needs integers, not f32",
    "x.at(0) = x.at(1) << 32;": "a number of 32 bits cannot be shifted by 32",
    "x.at(0) >>= 40;": "a number of 32 bits cannot be shifted by 40",
    "local s32 [4] b; x.at(0) = b.at(1);": "`b` is read, but nothing writes to it; copy data into it, or",
    "local s32 [4] b; dma.copy b => x;": "`b` is read, but nothing writes to it",
    "std::cout << 3;": "`std::` is C++; `println(…)` prints, and a kernel that `call` runs may be any C++",
    "foreach i of [4] { x.at(i) = 1; }": "expected `in`, found `of`",
    "x.at(0) = x.at(1) ** 2;": "expected an expression, found `*`; a power is `__pow(x, y)`",
    "x.at(0) = *x;": "expected an expression, found `*`; there are no pointers: write `x.at(…)`",
    "x.at(0) = 1 << 40;": "a number of 32 bits cannot be shifted by 40",
    "x.at(0) = 5000000000;": "5000000000 does not fit into s32",
    "mutable u8 v = 256;": "256 does not fit into u8",
    "mutable s16 v = 0; v = -40000;": "-40000 does not fit into s16",
    "local s8 [4] v {300}; x.at(0) = v.at(0);": "300 does not fit into s8",
    "do { } while (n > 0);": "`do` is C++; write `while (…) { … }`",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_gets_advice(text: str) -> None:
    with pytest.raises(ChoreoError) as caught:
        translate(f"{HEAD}{text}\n}}", "bad.co")
    assert MISTAKES[text] in caught.value.message
    assert caught.value.line == 4


FITTING = "o.at(0) = 4294967295; mutable u32 v = -1; mutable s64 w = 5000000000; o.at(1) = v + w * 0;"


def test_a_sign_may_change_and_what_is_not_declared_is_not_returned() -> None:
    translate(f"__co__ auto f() {{ s32 [2] o; {FITTING} return o; }}", "good.co")
    with pytest.raises(ChoreoError, match="`o` is not declared"):
        translate("__co__ auto f(s32 [4] x) { return o; }", "bad.co")


SHAPED = """__co__ auto f(s32 [4, 6] x) {
  g = MAKE x.subspan(2, 3).at(1, 1) => local;
  s32 [g.span] out;
  dma.copy g => out;
  return out;
}
"""


def test_the_shape_of_a_result_may_be_that_of_a_copy() -> None:
    """A pad has another shape, which is only known where it is made."""
    assert "mdspan<2>(2, 3)" in translate(SHAPED.replace("MAKE", "dma.copy"), "f.co").cpp
    with pytest.raises(ChoreoError, match="write its size in numbers, or in dimensions of the parameters"):
        translate(SHAPED.replace("MAKE", "dma.pad<{0, 0}, {0, 1}, {0, 0}, 0>"))
