"""Which variables of a wrapper of dynamic shapes follow from the numbers that the graph is given."""

from __future__ import annotations

from kernelscope.probes.python_wrappers.shaped_wrapper import names_of_sizes

HEAD = """
class Runner:
    def call(self, args):
        arg0_1, arg1_1, arg2_1 = args
        args.clear()
        s33 = arg0_1
        s50 = arg1_1
"""


def names(*lines: str) -> frozenset[str] | None:
    return names_of_sizes(HEAD + "".join(f"        {line}\n" for line in lines))


def test_what_follows_from_sizes() -> None:
    assert names("x = 64*s33*s50", "y = x // 2", "buf0 = empty((s33, x))", "buf1 = buf0") == {
        "s33", "s50", "x", "y",
    }  # fmt: skip


def test_a_name_that_is_also_something_else() -> None:
    assert names("x = s33", "x = launch(s33)") == {"s33", "s50"}


def test_sizes_that_are_known_only_inside_of_the_graph() -> None:
    assert names("u0 = buf0.item()") is None
    assert names("s7 = arg2_1.size(0)") is None
    assert names("u1 = unknown") is None
    assert names_of_sizes("def call(args):\n    (x,) = args\n    return x\n") is None
