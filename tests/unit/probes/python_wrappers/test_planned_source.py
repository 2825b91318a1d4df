"""Fingerprints written into a wrapper's text: what is read where, and that nothing is read too late."""

from __future__ import annotations

import ast
import dis
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kernelscope.generated_code.calls import hook_name
from kernelscope.probes.python_wrappers import hooked_source
from kernelscope.probes.python_wrappers.hooked_source import Hook, bind
from kernelscope.probes.python_wrappers.planned_source import (
    BEGIN,
    FLUSH,
    PlannedLaunch,
    PlannedSource,
    Read,
    Unplannable,
    address_of,
    plan_source,
)


def hooks(source: str, *names: str) -> list[str]:
    """The hooks of the calls of these functions, in the order of the text."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    found = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id in names]
    return [hook_name(c) for c in sorted(found, key=lambda c: (c.lineno, c.col_offset))]


def launch(before: str = "", after: str = "", writes: str = "", first: int = 0) -> PlannedLaunch:
    """A launch that reads these variables before and after it."""
    names = before.split(), after.split()
    numbers = iter(range(first, first + 99))
    reads = [tuple(Read(next(numbers), name) for name in part) for part in names]
    return PlannedLaunch("F", reads[0], reads[1], frozenset(writes.split()))


def run(source: str, planned: PlannedSource, inputs: Any) -> list[Any]:
    """What happens when the planned code runs: flushes with their tensors, and launches."""
    log: list[Any] = []
    constants: dict[str, Any] = {
        hooked_source.HERE: types.SimpleNamespace(graph_call=3),
        hooked_source.BUS: types.SimpleNamespace(note=lambda entry: log.append("note")),
        hooked_source.TIME: types.SimpleNamespace(monotonic_ns=lambda: 0),
        hooked_source.COMPACT_CALL: types.SimpleNamespace(pack=lambda *entry: entry),
        BEGIN: Hook(lambda graph_call: "execution"),
    }
    namespace: dict[str, Any] = {
        "kernel": lambda *tensors: log.append(("kernel", *tensors)),
        "make": lambda *tensors: [f"made from {tensors[0]}", "more"],
        "empty": lambda name: name,
        "assert_size_stride": lambda *given: None,
        "reinterpret_tensor": lambda base, *_: f"view of {base}",
    }
    for number in range(len(planned.flushes)):
        constants[f"{FLUSH}{number}"] = Hook(lambda execution, *tensors: log.append(("flush", *tensors)))
    exec(compile(source, "w.py", "exec"), namespace)  # the names; then the planned code
    codes = bind(planned.codes, constants)
    namespace["call"].__code__ = codes["call", namespace["call"].__code__.co_firstlineno]
    namespace["call"](inputs)
    return log


def test_what_one_left_and_the_next_finds_are_read_together() -> None:
    source = (
        "def call(args):\n    a, b = args\n    kernel(a, b)\n    c = empty('c')\n    kernel(b, c)\n"
        "    del b\n    return (c,)\n"
    )
    one, two = hooks(source, "kernel")
    planned = plan_source(source, "w.py", {one: launch("a", "b", "b"), two: launch("c", "c", first=2)})
    assert planned.flushes == [(0,), (1, 2), (3,)]
    assert planned.writes_inputs
    assert run(source, planned, ["A", "B"]) == [
        ("flush", "A"), "note", ("kernel", "A", "B"), ("flush", "B", "c"), "note", ("kernel", "B", "c"),
        ("flush", "c"),
    ]  # fmt: skip


def test_nothing_is_read_after_it_was_deleted_or_renamed() -> None:
    source = (
        "def call(args):\n    a, = args\n    kernel(a)\n    b = a; del a  # reuse\n    kernel(b)\n    del b\n"
        "    c = empty('c')\n    kernel(c)\n    d = reinterpret_tensor(c, (2,), (1,), 0)\n    del c\n"
        "    kernel(d)\n    e = reinterpret_tensor(d, (1,), (1,), 1)\n    del d\n    return (e,)\n"
    )
    names = hooks(source, "kernel")
    launches = {h: launch("", v, first=i) for i, (h, v) in enumerate(zip(names, "abcd", strict=True))}
    planned = plan_source(source, "w.py", launches)
    assert run(source, planned, ["A"]) == [
        "note", ("kernel", "A"),
        ("flush", "A"), "note", ("kernel", "A"),  # under its new name, before it is written again
        ("flush", "A"), "note", ("kernel", "c"),  # b, before it is deleted
        ("flush", "view of c"), "note", ("kernel", "view of c"),  # the same address
        ("flush", "view of c"),  # d, because its view lies elsewhere
    ]  # fmt: skip


def test_a_result_in_parts() -> None:
    source = (
        "def call(args):\n    a, = args\n    b = make(a)\n    c = b[0]\n    del b\n    kernel(c)\n"
        "    return (c,)\n"
    )
    [made] = hooks(source, "make")
    [used] = hooks(source, "kernel")
    left = (Read(0, "b", "{}[0]"), Read(1, "b", "{}[1]"))
    launches = {made: PlannedLaunch("F", (), left, frozenset()), used: launch()}
    planned = plan_source(source, "w.py", launches)
    assert run(source, planned, ["A"]) == [
        "note", ("flush", "made from A", "more"), "note", ("kernel", "made from A"),
    ]  # fmt: skip


def test_another_function_of_the_wrapper_may_write_to_anything() -> None:
    source = (
        "def partition(args):\n    p, = args\n    kernel(p)\n    return p\n"
        "def call(args):\n    a, = args\n    kernel(a)\n    b = partition([a])\n    return (b,)\n"
    )
    inside, outside = hooks(source, "kernel")
    launches = {inside: launch("", "p"), outside: launch("", "a", first=1)}
    planned = plan_source(source, "w.py", launches)
    assert run(source, planned, ["A"]) == ["note", ("kernel", "A"), ("flush", "A"), ("kernel", "A")]


def test_a_block_that_chooses_the_device() -> None:
    source = (
        "def call(args):\n    a, = args\n    with g._DeviceGuard(0):\n        kernel(a)\n    return (a,)\n"
    )
    [hook] = hooks(source, "kernel")
    assert plan_source(source, "w.py", {hook: launch("a")}).flushes == [(0,)]


@pytest.mark.parametrize(
    "body",
    [
        *("if a:\n        kernel(a)", "for _ in range(2):\n        kernel(a)", "b = (kernel(a), 1)"),
        *("with stream1:\n        kernel(a)", "with torch.cuda.stream(s):\n        kernel(a)"),
    ],
)
def test_what_cannot_be_planned(body: str) -> None:
    source = f"def call(args):\n    a, = args\n    {body}\n    return (a,)\n"
    [hook] = hooks(source, "kernel")
    with pytest.raises(Unplannable):
        plan_source(source, "w.py", {hook: launch("a")})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("buf0", ("buf0", "{}")),
        ("reinterpret_tensor(buf0, (2, 3), (3, 1), 0)", ("buf0", "{}")),
        ("reinterpret_tensor(buf0, (2,), (1,), 8)", ("buf0", "reinterpret_tensor({}, (2,), (1,), 8)")),
        ("buf7[1]", ("buf7", "{}[1]")),
        ("reinterpret_tensor(buf7[1], (2,), (1,), 0)", ("buf7", "{}[1]")),
        ("torch.ops.aten.view(buf0)", None),
        ("buf0 + 1", None),
    ],
)
def test_addresses(text: str, expected: Any) -> None:
    assert address_of(ast.parse(text, mode="eval").body) == expected


def test_memory_from_outside_is_followed_through_names() -> None:
    def writes_inputs(body: str, variable: str) -> bool:
        source = f"def call(args):\n    a, b = args\n    {body}\n    kernel(x)\n    return (x,)\n"
        [hook] = hooks(source, "kernel")
        return plan_source(source, "w.py", {hook: launch(writes=variable)}).writes_inputs

    check: Callable[[str, str], bool] = writes_inputs
    assert check("x = a; del a", "x")
    assert check("x = reinterpret_tensor(a, (1,), (1,), 4)", "x")
    assert not check("x = empty('x')", "x")


REUSED = """
def call(args):
    a, = args
    buf0 = empty('0')
    kernel(a, buf0)
    buf1 = reinterpret_tensor(buf0, (2, 2), (2, 1), 0)
    buf2 = empty('2')
    kernel(a, buf2)
    kernel(buf2, buf1)
    del buf2
    buf3 = buf0; del buf0
    return (buf3, )
"""


def reused(source: str, *, lazily: bool) -> list[tuple[int, ...]]:
    first, second, third = hooks(source, "kernel")
    launches = {
        first: launch(after="buf0", writes="buf0"),
        second: launch(after="buf2", writes="buf2", first=1),
        third: launch(after="buf1", writes="buf1", first=2),
    }
    return plan_source(source, "w.py", launches, when="lazily" if lazily else "before the next").flushes


def test_what_can_wait_is_read_together() -> None:
    """The third launch writes buf0 under the name of buf1, so what the first left is read before it."""
    assert reused(REUSED, lazily=False) == [(0,), (1,), (2,)]
    assert reused(REUSED, lazily=True) == [(0, 1), (2,)]


def test_pieces_of_a_pool_cannot_wait() -> None:
    source = REUSED.replace("empty('2')", "alloc_from_pool(pool0, 0, f32, (4,), (1,))")
    assert reused(source, lazily=True) == [(0,), (1,), (2,)]


CHAIN = """
def call(args):
    a, b = args
    args.clear()
    assert_size_stride(a, (4, ), (1, ))
    x = empty('x')
    kernel(a, x)
    del a
    y = empty('y')
    kernel(x, b, y)
    del b
    del x
    z = empty('z')
    kernel(y, z)
    del y
    return (z, )
"""
ONE_MEGABYTE = 1 << 20


def chain(source: str = CHAIN, *, megabytes: int = 1, **changes: dict[str, Any]) -> tuple[str, PlannedSource]:
    """Three launches, each of which reads what the one before it left; `changes` are of Reads."""

    def reads(first: int, *names: str) -> tuple[Read, ...]:
        found = (Read(first + i, name, "{}", megabytes * ONE_MEGABYTE) for i, name in enumerate(names))
        return tuple(replace(read, **changes.get(read.variable, {})) for read in found)

    def made(before: tuple[Read, ...], after: tuple[Read, ...]) -> PlannedLaunch:
        writes, storages = (
            frozenset(getattr(read, what) for read in after) for what in ("variable", "memory")
        )
        return PlannedLaunch("F", before, after, writes, overwrites=storages - {-1})

    one, two, three = hooks(source, "kernel")
    launches = {
        one: made(reads(0, "a"), reads(1, "x")),
        two: made(reads(2, "b"), reads(3, "y")),
        three: made((), reads(4, "z")),
    }
    return source, plan_source(source, "w.py", launches, when="while small")


def test_small_tensors_wait_and_are_deleted_when_they_have_been_read() -> None:
    source, planned = chain()
    assert run(source, planned, ["A", "B"]) == [
        "note", ("kernel", "A", "x"), "note", ("kernel", "x", "B", "y"), "note", ("kernel", "y", "z"),
        ("flush", "A", "x", "B", "y", "z"),
    ]  # fmt: skip
    [code] = planned.codes.values()
    assert not {"a", "b", "x", "y"} & {name for name, op in _last_stores(code) if op != "DELETE_FAST"}


def _last_stores(code: types.CodeType) -> list[tuple[str, str]]:
    """Each local variable with the last instruction that stores or deletes it."""
    found = {
        i.argval: i.opname for i in dis.get_instructions(code) if i.opname in ("STORE_FAST", "DELETE_FAST")
    }
    return list(found.items())


def test_large_tensors_do_not_wait() -> None:
    """Where launches are large, the GPU is the limit: what waits is read while it is in the cache."""
    assert chain(megabytes=6)[1].flushes == [(0, 1, 2, 3, 4)]
    assert chain(megabytes=10)[1].flushes == [(0, 1, 2), (3, 4)]
    assert chain(megabytes=18)[1].flushes == [(0,), (1, 2), (3,), (4,)]


def test_of_what_the_wrapper_deletes_little_waits() -> None:
    """No more than 32 MB more are in use, however much waits that is in use anyway."""
    large = {"a": {"nbytes": 33 * ONE_MEGABYTE}}
    assert chain(**large)[1].flushes == [(0, 1), (2, 3, 4)]
    small = {"x": {"nbytes": 30 * ONE_MEGABYTE}, "b": {"nbytes": 3 * ONE_MEGABYTE}}
    assert chain(megabytes=0, **small)[1].flushes == [(0, 1, 2, 3), (4,)]
    assert chain(CHAIN.replace("del x", "pass"), megabytes=0, **small)[1].flushes == [(0, 1, 2, 3, 4)]


def test_what_is_written_under_another_name_does_not_wait() -> None:
    """y is other memory than b by name, and the same when it was recorded."""
    same = {"b": {"memory": 7}, "y": {"memory": 7}}
    assert chain(**same)[1].flushes == [(0, 1, 2), (3, 4)]


def test_nothing_from_outside_waits_for_a_launch_that_writes_to_memory_from_outside() -> None:
    _, planned = chain(CHAIN.replace("    y = empty('y')\n", "    y = b\n"))
    assert planned.flushes == [(0, 1, 2), (3, 4)]
    assert planned.writes_inputs


def test_a_call_that_is_not_known_is_in_the_way() -> None:
    """It may launch something that nobody saw."""
    _, planned = chain(CHAIN.replace("    z = empty('z')\n", "    z = surprise('z')\n"))
    assert planned.flushes == [(0, 1, 2, 3), (4,)]
