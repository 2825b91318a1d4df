"""While an asynchronous copy is under way, its target is not used, and its source is not written."""

from __future__ import annotations

import pytest

from kernelscope.gcu.choreo import ChoreoError, translate

KERNEL = "__cok__ { void k(int* a) {} }\n"
# what stands between a copy and its wait, and more of the program
REFUSED = {
    "an element of a whole source": (
        "a = dma.copy.async x => local; x.at(0) = 1;",
        "`x` is written while the asynchronous DMA `a` copies from it; write `wait a;` first",
    ),
    "a sum into a source": ("a = dma.copy.async x => local; x.at(1) += 1;", "`x` is written while"),
    "an atomic one": ("a = dma.copy.async x => local; __atomic_add(x.at(0), 1);", "`x` is written while"),
    "another copy into a source": ("a = dma.copy.async x => local; dma.copy y => x;", "`x` is written while"),
    "the tile that is copied": (
        "foreach t in [2] { a = dma.copy.async x.chunkat(t) => local;"
        " foreach i in [4] { x.chunkat(t).at(i) = 1; } wait a; } a = dma.copy.async y => local;",
        "`x` is written while",
    ),
    "a tile with a name": (
        "t = x.subspan(4).at(1); a = dma.copy.async t => local; foreach i in [4] { t.at(i) = 1; }",
        "`x` is written while",
    ),
    "every element, by a loop": (
        "a = dma.copy.async x.subspan(4).at(1) => local; foreach i in x.span { x.at(i) = 1; }",
        "`x` is written while",
    ),
    "numbers within the tile": ("a = dma.copy.async x.subspan(4).at(1) => local; x.at(5) = 1;", "is written"),
    "the source of a copy that another one follows": (
        "local s32 [8] m; b = dma.copy.async x => m; a = dma.copy.async m => y after b; x.at(0) = 1;",
        "`x` is written while the asynchronous DMA `b`",
    ),
    "an element of a tile that is filled": (
        "local s32 [16] b; a = dma.copy.async x => b.subspan(8).at(1); y.at(0) = b.at(9);",
        "this part of `b` is the target of `a`, and is used before its wait; write `wait a;` first",
    ),
    "the whole buffer of that tile": (
        "local s32 [16] b; a = dma.copy.async x => b.subspan(8).at(1); foreach i in [16] { b.at(i) = 1; }",
        "this part of `b`",
    ),
    "that tile, for a kernel": (
        "local s32 [16] b; a = dma.copy.async x => b.subspan(8).at(1); call k(b.subspan(8).at(1));",
        "this part of `b`",
    ),
    "one of several buffers": (
        "local s32 [8] b[2]; a = dma.copy.async x => b[0]; dma.copy b[0] => y;",
        "this part of `b`",
    ),
}
ALLOWED = {
    "another tile": "a = dma.copy.async x.subspan(4).at(1) => local; x.at(3) = 1;",
    "reading the source": "a = dma.copy.async x => local; y.at(0) = x.at(0);",
    "what may be another tile": "a = dma.copy.async x.subspan(4).at(1) => local;"
    " foreach i in x.span { if (i < 4) { x.at(i) = 1; } }",
    "the other one of two buffers": "local s32 [8] b[2]; a = dma.copy.async x => b[0]; dma.copy b[1] => y;",
    "the tile before, in a ring": "with t in [4] { f = dma.copy.async x.chunkat(t) => local; g = dma.any;"
    " foreach t(1:) { g = dma.copy.async x.chunkat(t) => local; wait f;"
    " foreach j in [2] { x.chunkat(t - 1).at(j) = f.at(j); } swap(f, g); } wait f; }"
    " a = dma.copy.async y => local;",
    "the tile of an outer round": "foreach t in [4] { foreach j in [2] { x.chunkat(t).at(j) = 1; }"
    " f = dma.copy.async x.chunkat(t) => local; wait f; } a = dma.copy.async y => local;",
    "the shape": "local s32 [16] b; a = dma.copy.async x => b.subspan(8).at(1); local s32 [b.span] c;",
}


def program(body: str) -> str:
    return f"{KERNEL}__co__ void f(s32 [8] x, s32 [8] y) {{\n{body}\nwait a;\n}}"


@pytest.mark.parametrize("name", REFUSED)
def test_a_use_that_comes_too_early_is_refused(name: str) -> None:
    body, message = REFUSED[name]
    with pytest.raises(ChoreoError) as caught:
        translate(program(body), "bad.co")
    assert message in caught.value.message
    assert caught.value.line == 3


@pytest.mark.parametrize("name", ALLOWED)
def test_what_may_be_another_tile_is_allowed(name: str) -> None:
    translate(program(ALLOWED[name]), "good.co")
