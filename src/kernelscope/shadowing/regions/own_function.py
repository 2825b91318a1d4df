"""Compares what a compiled frame returns with what the function returns that Dynamo compiled it from."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from kernelscope.probes.dynamo.compiled_regions import TracedRegion
from kernelscope.shadowing.counts import Counts
from kernelscope.shadowing.result import ShadowResult

from .comparison import References, compare_aliases, compare_layouts, compare_values, instead
from .eager_run import Eager, alone, parts_of
from .function_run import UserFunction, frame_of, uncompiled_backward, when_returned
from .gradients import OwnGradients
from .padding import may_be_padded
from .region import Difference, KnownWrong, Region, Unjudged
from .region_culprit import with_sides_swapped

DYNAMO = "Dynamo"


class Check(Protocol):
    """What is told what was found."""

    @property
    def result(self) -> ShadowResult: ...
    @property
    def counts(self) -> Counts: ...
    def known(self) -> KnownWrong: ...
    def own_work(self, region: Region, *, counts: bool = True) -> AbstractContextManager[None]: ...
    def add(
        self, region: Region, differences: Sequence[Difference], known: KnownWrong, part: str, step: str = ""
    ) -> None: ...


class OwnFunction:
    """The function of one region, in one execution."""

    def __init__(self, traced: TracedRegion, region: Region, check: Check, *, counts: bool) -> None:
        self._traced, self._region, self._check = traced, region, check
        self._counts = counts  # or it is an execution after the first

    def compare(
        self, compared: References, args: Sequence[Any], own: OwnGradients, *, is_counted: bool
    ) -> None:
        """What the frame returns, with what the function returns that Dynamo compiled it from."""
        traced, region, check, eager = self._traced, self._region, self._check, compared.eager
        frame = frame_of(traced.code)
        reason = "; ".join(traced.unrepeatable) or ("" if frame is not None else "its frame was not found")
        if not reason and frame is not None:
            function = UserFunction(traced.code, traced.globals, frame, args)
            reason = function.why_not()
            if not reason:
                again = Eager(function.run, eager.inputs, eager.random, differentiates=eager.differentiates)
                references, failure = References(again), ""
                try:
                    references.run()  # now, while nothing else has run
                    references = references.drawing(eager.draws)
                except Exception as error:
                    failure = f"run without the compiler, it fails: {type(error).__name__}: {error}"
                reason = failure.partition("\n")[0]
        if not reason and frame is not None:

            def returned(value: Any) -> None:
                with self._check.own_work(self._region, counts=self._counts), alone():
                    is_right = self._compare_returned(references, value, args, function)
                    if is_right and eager.differentiates and not function.writes:
                        same = compared.same
                        own.keep(parts_of(value), references.same.results, same.results, same.leaves)

            if not when_returned(frame, torch.compiler.disable(returned)):  # type: ignore[no-untyped-call]
                reason = "a profiler is running"
        if reason:
            check.counts.traced_regions += is_counted
            text = f"Function {region.name} was compared with the graph that Dynamo traced, not with its code"
            check.result.note(f"{text}: {reason}.")

    def _compare_returned(
        self, references: References, value: Any, args: Sequence[Any], function: UserFunction
    ) -> bool:
        region, made, same = self._region, parts_of(value), references.same
        if len(made) != len(same.results):
            if value is None:
                raise Unjudged("it ended with an exception")
            words = f"it returns {len(made)} values, and in eager {len(same.results)}"
            counts = instead(f"{len(made)} values", f"{len(same.results)} values", words)
            self.add([Difference("the result", *counts)], function.asks, "returned")
            return False
        whats = [f"result {i}" if len(made) > 1 else "the result" for i in range(len(made))]
        picks = [(lambda run, i=i: run.results[i]) for i in range(len(made))]
        found, arbitrary = compare_values(made, references, picks, whats, "result")
        after = [f"{name or f'input {i}'} after the call" for i, name in enumerate(region.names)]
        inputs = [(lambda run, i=i: run.inputs[i]) for i in range(len(args))]
        found += compare_values(args, references, inputs, after, "input")[0]
        # With copies in place of its tensors, torch may choose other operators.
        if not found and not function.writes:
            found += compare_layouts(made, same.results, whats, pads=may_be_padded(args, made))
            everything, eagers = [*made, *args], [*same.results, *args]
            found += compare_aliases(everything, eagers, [*whats, *after], len(made))
        self.add(found, function.asks, "" if arbitrary and references.is_unmatched else "returned")
        return not found

    def compare_gradients(
        self,
        own: OwnGradients,
        tangents: Sequence[torch.Tensor | None],
        inputs: Sequence[int],
        references: References,
        whats: Sequence[str],
    ) -> None:
        """Those of the function's own backward with those of the traced graph."""
        try:
            gradients, asks = uncompiled_backward(lambda: own.take(tangents))
        except Exception as error:
            first = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
            self._note(f"its own backward was not compared, because uncompiled it fails: {first}")
            return
        told = [i for i in inputs if i in gradients]
        if left := [whats[i] for i in inputs if gradients and i not in gradients]:
            self._note(
                f"{' and '.join(left)} was compared with the graph that Dynamo traced, not with the "
                "function's own backward: other inputs were computed from it."
            )
        zeros = [torch.zeros_like(references.same.inputs[i]) for i in told]
        theirs = [zero if (g := gradients[i]) is None else g for i, zero in zip(told, zeros, strict=True)]
        picks = [(lambda run, i=i: run.results[i]) for i in told]
        found, _ = compare_values(theirs, references, picks, [whats[i] for i in told], "gradient")
        if told:
            self.add([*map(with_sides_swapped, found)], asks, "own gradients")

    def _note(self, text: str) -> None:
        self._check.result.note(f"Function {self._region.name}: {text}")

    def add(self, found: Sequence[Difference], asks: bool, part: str) -> None:
        if found and asks:
            self._check.counts.traced_regions += self._counts
            self._check.result.note(
                f"Function {self._region.name} checks whether it is being compiled, and then computes "
                "something different: it was compared with the graph that Dynamo traced, not with its code."
            )
        else:
            self._check.add(self._region, found, self._check.known(), part, DYNAMO)
