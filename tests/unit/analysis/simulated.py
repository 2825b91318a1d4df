"""Programs that are simulated: each kernel computes a number from the numbers it reads, so all is known."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.sample_runs import info

from kernelscope.events import Arg, Call, Frame, Graph, GraphCall, Kernel, Site, TensorSpec
from kernelscope.model.run import Run
from kernelscope.store.memory_run import MemoryRun

SPEC = TensorSpec("float32", (8,), (1,), "cpu")
GRAPH = Graph(0, "forward", "0_forward", "0/0", "key")
_uuids = itertools.count()


@dataclass(frozen=True)
class Op:
    """One kernel: reads two buffers, writes one."""

    name: str
    reads: tuple[int, int]  # buffers; those below zero are inputs of the graph
    writes: int
    source: str = ""
    config: dict[str, Any] = field(default_factory=dict, hash=False)
    noise: int = 0  # makes its result another for the same inputs
    stray: int | None = None  # a buffer that it writes to without saying so
    scalar: int | None = None
    gives: int | None = None  # its result, whatever it reads


class Hashes:
    has_stats = False

    def __init__(self) -> None:
        self.values: list[int] = []

    def read(self, slot: int) -> int:
        return self.values[slot]

    def put(self, value: int) -> int:
        self.values.append(value)
        return len(self.values) - 1


def simulate(
    ops: Sequence[Op],
    inputs: dict[int, int],
    steps: int = 1,
    threads: Sequence[int] = (),
    main_thread: int = 0,
) -> Run:
    """Execute the ops, once for each step, and record what they found and left; on these threads."""
    about = info(uuid=f"simulated {next(_uuids)}", main_thread=main_thread)
    run, fingerprinter = MemoryRun(about), Hashes()
    sites = {op: _site(number, op) for number, op in enumerate(dict.fromkeys(ops))}
    for step in range(steps):
        held, epochs = dict(inputs), dict.fromkeys(range(-8, 200), 0)
        run.graph_calls[step] = GraphCall(step, GRAPH, phase="forward", step=step)
        for op, thread in zip(ops, threads or [0] * len(ops), strict=True):
            before = {0: held[op.reads[0]], 1: held[op.reads[1]]}
            result = _number(op.name, op.source, op.scalar, op.noise, *before.values())
            result = result if op.gives is None else op.gives
            buffers = (*op.reads, op.writes)
            call = Call(len(run.entries), sites[op], step, step, phase="forward", fingerprinter=fingerprinter)
            call.key, call.thread = call.index, thread
            call.storages = tuple(1000 + b for b in buffers)
            call.epochs, call.offsets = tuple(epochs[b] for b in buffers), (0, 0, 0)
            call.uninitialised = (2,)
            call.pre = {i: fingerprinter.put(value) for i, value in before.items()}
            call.post = call.pre | {2: fingerprinter.put(result)}
            call.scalars = () if op.scalar is None else (op.scalar,)
            held[op.writes] = result
            epochs[op.writes] += 1
            if op.stray is not None:
                held[op.stray] = _number(held[op.stray], "stray")
            run.entries.append(call)
    return run


def _number(*of: object) -> int:
    """The same in every process, so that a program that failed fails again."""
    return int.from_bytes(hashlib.blake2b(repr(of).encode(), digest_size=8).digest(), "little")


def _site(number: int, op: Op) -> Site:
    key = f"{op.name}{op.source}{'' if op.scalar is None else ' number'}"  # with other arguments: other code
    kernel = Kernel(number, f"{op.name}_{number}", "cpp", "inductor", f"source {op.source}", key)
    names = [f"buf{b}" if b >= 0 else f"arg{-b}_1" for b in (*op.reads, op.writes)]
    args = [
        Arg(name, role, SPEC, wrapper_name)
        for name, role, wrapper_name in zip(
            ("in_ptr0", "in_ptr1", "out_ptr0"), ("in", "in", "out"), names, strict=True
        )
    ]
    if op.scalar is not None:
        args.append(Arg("number", "scalar", None, varies=True))
    line = int("".join(c for c in op.name if c.isdigit()) or 0)
    return Site(
        number, kernel, tuple(args), "/w.py", line, None, op.config, (Frame("model.py", line),), "cpu"
    )


def chain(length: int, picks: Sequence[int]) -> list[Op]:
    """A program in which each kernel reads what is picked among all that there is."""
    ops = []
    for number in range(length):
        there = [*range(-2, 0), *range(number)]
        reads = (there[picks[2 * number] % len(there)], there[picks[2 * number + 1] % len(there)])
        ops.append(Op(f"cpp_fused_op{number}", reads, number))
    return ops


def changed(ops: list[Op], at: int, change: Callable[[Op], Op]) -> list[Op]:
    return [change(op) if n == at else op for n, op in enumerate(ops)]


__all__ = ["GRAPH", "SPEC", "Op", "chain", "changed", "replace", "simulate"]
