"""Running a graph that Dynamo traced, in eager, on copies of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils._pytree import tree_flatten

from kernelscope.probes.compiler_steps.fx_stages import Traced
from kernelscope.shadowing.checks.verdict_record import Verdict
from kernelscope.shadowing.program_state import own_autograd_state
from kernelscope.shadowing.reference.custom_operators import OnlyDeclaredWrites
from kernelscope.shadowing.reference.evaluate import CannotEvaluate
from kernelscope.shadowing.reference.node_kinds import can_be_left_out, effect_of, why_not_again
from kernelscope.shadowing.reference.small_errors.rounding import eps_of
from kernelscope.shadowing.reference.written_arguments import unwritten, write_back
from kernelscope.shadowing.regions.copies import Snapshot
from kernelscope.shadowing.regions.modes.operator_modes import Notes
from kernelscope.shadowing.regions.modes.wide_mode import Wide
from kernelscope.shadowing.regions.second_opinion import judge_whole

from .difference import Compared, Difference


@dataclass(slots=True)
class TracedRun:
    """What one execution left."""

    results: list[Any]
    inputs: list[Any]  # as they are afterwards
    leaves: list[torch.Tensor | None]  # by input: what to differentiate by
    own: dict[str, torch.Tensor]  # parameters and buffers of the graph itself, as they were afterwards

    def gradients(
        self, outputs: Sequence[Any], tangents: Sequence[torch.Tensor]
    ) -> list[torch.Tensor | None]:
        """By input."""
        found: list[torch.Tensor | None] = [None] * len(self.leaves)
        wanted = [(i, leaf) for i, leaf in enumerate(self.leaves) if leaf is not None]
        pairs = [(o, t) for o, t in zip(outputs, tangents, strict=True) if o.requires_grad]
        if wanted and pairs:
            with torch.enable_grad():
                made = torch.autograd.grad(
                    [o for o, _ in pairs], [leaf for _, leaf in wanted], [t for _, t in pairs],
                    allow_unused=True,
                )  # fmt: skip
            for (i, _), gradient in zip(wanted, made, strict=True):
                found[i] = gradient
        return found


def run_traced(
    graph: GraphModule,
    inputs: Snapshot,
    traced: Traced,
    *,
    mode: Any = None,
    wide: bool = False,
    around: Callable[[Any], Any] | None = None,
    runner: Callable[[GraphModule], torch.fx.Interpreter] | None = None,
) -> TracedRun:
    """With the same random numbers each time, and with gradients and autocast as when it was compiled."""
    run: Any = (runner or WithoutEffects)(graph).run
    run = around(run) if around is not None else run
    copied = inputs.fresh(wide=wide, differentiates=traced.has_grad)
    if isinstance(mode, Wide):
        for value, dtype in copied.dtypes:
            mode.learn(value, dtype)
    devices = sorted({v.device.index for v in copied.values if isinstance(v, torch.Tensor) and v.is_cuda})
    with ExitStack() as stack:
        stack.enter_context(_seeded(devices))
        stack.enter_context(own_autograd_state())
        stack.enter_context(torch.set_grad_enabled(traced.has_grad))
        for device, dtype in traced.autocast:
            stack.enter_context(torch.autocast(device, dtype=dtype))
        stack.enter_context(OnlyDeclaredWrites(write_back))  # the launch of one that does not is wrong
        if mode is not None:
            stack.enter_context(mode)
        try:
            with _own_tensors(graph) as own:
                result = run(*copied.values)
        except Exception as error:
            first = str(error).partition("\n")[0][:200]
            raise CannotEvaluate(f"the traced graph cannot be run: {first}") from error
    return TracedRun(tree_flatten(result)[0], copied.values, copied.leaves, own)


def without_recomputing(module: GraphModule) -> GraphModule:
    """No part of it runs again in its backward (activation checkpointing), where it would draw other numbers.

    The values are the same; `module` is a copy of our own, and is changed.
    """
    for each in list(module.modules()):
        if not isinstance(each, GraphModule):
            continue
        nodes = [n for n in each.graph.nodes if getattr(n.target, "_name", "") == "tag_activation_checkpoint"]
        for node in nodes:
            node.target = _called
        if nodes:
            each.recompile()
    return module


def _called(body: Any, *args: Any, **settings: Any) -> Any:
    """In place of a call with checkpointing, whose other arguments are settings."""
    return body(*args)


class WithoutEffects(torch.fx.Interpreter):
    """What the program prints was printed before; other side effects must not happen again."""

    def run_node(self, n: torch.fx.Node) -> Any:
        if (effect := effect_of(n)) is None:
            return super().run_node(n)
        if can_be_left_out(effect):
            return None
        raise CannotEvaluate(why_not_again(effect))


@contextmanager
def _seeded(devices: Sequence[int]) -> Iterator[None]:
    # Not torch.manual_seed: it would seed every GPU, of which only those here are put back.
    with torch.random.fork_rng(devices=devices):
        for generator in (torch.default_generator, *(torch.cuda.default_generators[i] for i in devices)):
            generator.manual_seed(0)
        yield


@contextmanager
def _own_tensors(graph: GraphModule) -> Iterator[dict[str, torch.Tensor]]:
    """Puts parameters and buffers of the graph itself back as they were; gives what they had become."""
    tensors = {**dict(graph.named_parameters()), **dict(graph.named_buffers())}
    kept = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    after: dict[str, torch.Tensor] = {}
    try:
        yield after
    finally:
        with torch.no_grad():
            for name, tensor in tensors.items():
                after[name] = tensor.detach().clone()
                if not torch.equal(tensor, kept[name]):
                    tensor.copy_(kept[name])


def snapshot_of(values: Sequence[Any], traced: Traced) -> Snapshot:
    """Of the inputs in the order of the traced graph."""
    return Snapshot([_as_traced(value, fake) for value, fake in zip(values, traced.inputs, strict=True)])


def _as_traced(value: Any, fake: Any) -> Any:
    """Requires a gradient where it did when the graph was compiled."""
    if not isinstance(value, torch.Tensor) or not isinstance(fake, torch.Tensor):
        return value
    if value.requires_grad == fake.requires_grad and value.is_leaf == fake.is_leaf:
        return value
    plain = value.detach()
    if not fake.requires_grad:
        return plain
    with torch.enable_grad():
        leaf = plain.requires_grad_()
        return leaf if fake.is_leaf else leaf.view_as(leaf)


def compare_traced(old: GraphModule, new: GraphModule, inputs: Snapshot, traced: Traced) -> Compared:
    """Two versions of a traced graph: what they return and write to their inputs."""
    notes = Notes()
    first, second = run_traced(old, inputs, traced, mode=notes), run_traced(new, inputs, traced)
    fills = (0.5, 12345.678) if notes.is_uninitialised else ()
    filled = [run_traced(old, inputs, traced, mode=Notes(fill)) for fill in fills]
    found, generator = Compared(), torch.Generator().manual_seed(0)
    if len(first.results) != len(second.results):
        verdict = Verdict(True, reason=f"{len(second.results)} outputs instead of {len(first.results)}")
        found.difference = Difference("output *", "", verdict)
        return found
    names = [f"output {i}" for i in range(len(first.results))]
    names += [f"input {i}" for i in range(len(first.inputs))]

    def wide(index: int, generator: torch.Generator | None) -> torch.Tensor:
        run = run_traced(old, inputs, traced, mode=Wide(generator), wide=True)
        value: torch.Tensor = [*run.results, *run.inputs][index].detach()
        return value

    def again(index: int) -> Any:
        run = run_traced(old, inputs, traced)
        return [*run.results, *run.inputs][index]

    pairs = zip([*first.results, *first.inputs], [*second.results, *second.inputs], strict=True)
    for index, (name, (one, other)) in enumerate(zip(names, pairs, strict=True)):
        if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
            if type(one) is not type(other) or (isinstance(one, int | float) and one != other):
                found.difference = Difference(name, "", Verdict(True, reason=f"it is {other}, not {one}"))
                return found
            continue
        found.count += 1
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            kinds = [f"{t.dtype}{list(t.shape)}" for t in (one, other)]
            found.difference = Difference(name, "", Verdict(True, reason=f"it is {kinds[1]}, not {kinds[0]}"))
            return found
        one, other = one.detach(), other.detach()
        undefined = _undefined(one, [[*run.results, *run.inputs][index] for run in filled])
        other = other if undefined is None else torch.where(undefined, one, other)
        shown = (eps_of(t.dtype) for t in (*first.results, *first.inputs) if torch.is_tensor(t))
        eps = max([notes.eps, *shown])
        try:
            verdict = judge_whole(
                other,
                one,
                lambda i=index: wide(i, None),  # type: ignore[misc]
                lambda i=index: wide(i, generator),  # type: ignore[misc]
                eps or eps_of(torch.float32),
                unwritten=lambda i=index, value=one: unwritten(value, lambda: again(i)),  # type: ignore[misc]
                signed_zeros=notes.signed_zeros,
            )
        except CannotEvaluate as error:
            found.left_out[name] = str(error)
            continue
        if verdict.is_wrong:
            found.difference = Difference(name, "", verdict)
            return found
    return found


def _undefined(value: torch.Tensor, filled: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Elements that come from uninitialised memory: they change with what is in it."""
    found = [(each != value) & ~((each != each) & (value != value)) for each in filled]
    return torch.stack(found).any(0).detach() if found else None
