"""The lines of a graph out of a cache are those of the program that loaded it, or are left out."""

from __future__ import annotations

from kernelscope.probes.dynamo.cached_lines import PresentLines, lines_of_trace


def stack(*lines: tuple[str, int, str, str]) -> str:
    return "".join(f'  File "{f}", line {n}, in {name}\n    {text}\n    ^^^^\n' for f, n, name, text in lines)


def numbers(lines: PresentLines, trace: str) -> list[tuple[str, int]]:
    return [(line.file, line.line) for line in lines_of_trace(lines.trace(trace))]


def test_the_same_program_keeps_its_lines() -> None:
    traces = [stack(("a.py", 3, "f", "y = g(x)"), ("a.py", 9, "g", "return x + 1"))]
    lines = PresentLines(traces, "", [*traces, stack(("a.py", 4, "f", "return y"))])
    assert numbers(lines, traces[0]) == [("a.py", 3), ("a.py", 9)]


def test_equal_lines_that_moved_are_told_apart() -> None:
    """Line 11 of the file as it is now has the text of line 11 as it was, and is another one."""
    old = [stack(("a.py", n, "f", "x = relu(x)")) for n in (10, 11, 12)]
    new = [stack(("a.py", n, "f", "x = relu(x)")) for n in (11, 12, 13)]
    lines = PresentLines(old, "", new)
    assert [numbers(lines, each) for each in old] == [[("a.py", 11)], [("a.py", 12)], [("a.py", 13)]]


def test_of_equal_lines_some_of_which_were_fused_away_the_distance_tells() -> None:
    kept = [stack(("a.py", 10, "f", "x = relu(x)")), stack(("a.py", 12, "f", "x = x @ w"))]
    new = [("b.py", 25, "f", "x = relu(x)"), ("b.py", 30, "f", "x = relu(x)"), ("b.py", 32, "f", "x = x@w")]
    lines = PresentLines(kept, "", [stack(each) for each in new])
    assert [numbers(lines, each) for each in kept] == [[("b.py", 30)], [("b.py", 32)]]


def test_inner_calls_follow_outer_ones_into_another_file() -> None:
    old = stack(("a.py", 3, "f", "y = block(x)"), ("a.py", 9, "block", "return x.sin()"))
    new = stack(("b.py", 7, "forward", "z = layer( t )"), ("lib.py", 2, "layer", "return x.sin()"))
    lines = PresentLines([old], "", [new])
    assert numbers(lines, old) == [("b.py", 7), ("lib.py", 2)]


def test_another_text_between_the_same_neighbours_corresponds() -> None:
    old = [
        ("a.py", n, "f", text) for n, text in ((1, "a = x.sin()"), (2, "b = a @ w"), (3, "return b.cos()"))
    ]
    new = [
        ("b.py", n, "g", text) for n, text in ((5, "a = x.sin()"), (8, "c = a @ w"), (9, "return b.cos()"))
    ]
    lines = PresentLines(map(stack, old), "", map(stack, new))
    assert numbers(lines, stack(old[1])) == [("b.py", 8)]


def test_what_cannot_be_told_is_left_out() -> None:
    """Two lines of this program for one of the other's: neither is certain, and the other's is wrong."""
    called = ("a.py", 3, "f", "y = block(x)")
    old = stack(called, ("a.py", 9, "block", "return x.sin().cos()"))
    new = [
        stack(called, ("a.py", n, "block", text)) for n, text in ((9, "x = x.sin()"), (10, "return x.cos()"))
    ]
    lines = PresentLines([old], "", new)
    assert numbers(lines, old) == [("a.py", 3)]
    assert lines.trace("not a stack of the graph") == ""
    assert PresentLines([old], "", []).trace(old) == ""


def test_comments_of_a_stage() -> None:
    text = """
        # File: a.py:1 in f, code: a = x.sin()
        sin = torch.ops.aten.sin.default(x)

        # Backward of forward node: File: a.py:2 in f, code: b = a @ w
        mm = torch.ops.aten.mm.default(sin, w)
        # File: other.py:1 in h, code: c
        cos = torch.ops.aten.cos.default(mm)
"""
    new = [stack(("b.py", 5, "g", "a = x.sin()")), stack(("b.py", 6, "g", "b = a@w"))]
    kept = [stack(("a.py", 2, "f", "b = a @ w"))]
    assert (
        PresentLines(kept, text, new).stage(text)
        == """
        # File: b.py:5 in g, code: a = x.sin()
        sin = torch.ops.aten.sin.default(x)

        # Backward of forward node: File: b.py:6 in g, code: b = a@w
        mm = torch.ops.aten.mm.default(sin, w)
        cos = torch.ops.aten.cos.default(mm)
"""
    )
