"""Compares each compiled region with the graph that Dynamo traced, and with the function itself.

At the first execution of a region, and at some later ones: before it, its inputs are copied; after it, the
uncompiled code runs on the copies. The program's own execution is the compiled one, and it is left as it is.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import torch

from kernelscope.events import Frame
from kernelscope.probes.dynamo.compiled_regions import Compiled, TracedRegion
from kernelscope.shadowing.counts import Counts
from kernelscope.shadowing.culprit import Culprit
from kernelscope.shadowing.draws.compiled_draws import Draws, noted_draws
from kernelscope.shadowing.result import ShadowResult
from kernelscope.shadowing.steps.inputs import CalledGraph, CalledGraphs
from kernelscope.shadowing.steps.traced_graphs import without_recomputing
from kernelscope.text.exceptions import in_one_line

from .blame import Suspect, blame, refusal
from .comparison import References, compare_aliases, compare_layouts, compare_values
from .copies import Snapshot
from .eager_run import Differentiated, Eager, alone
from .gradients import Backward, OwnGradients, watch_backward
from .own_function import OwnFunction
from .padding import may_be_padded, padded
from .region import (
    VALUES,
    Before,
    Difference,
    Executions,
    KnownWrong,
    Region,
    Unjudged,
    begun,
    ends_recomputation,
)
from .region_culprit import (
    VERDICT,
    FailedLaunch,
    culprit_of_region,
    failure_of_compiled_code,
    suspect_of_region,
)

CompareSteps = Callable[[Snapshot, Sequence[CalledGraph], Sequence[CalledGraph]], None]
MERGED = "it shares memory with another input, one of them is written to, and only the whole has a gradient"
UNMATCHED = "eager draws different random numbers, and it is not known which correspond"


class RegionCheck:
    """Wraps the compiled callables of a program."""

    def __init__(
        self,
        result: Callable[[], ShadowResult],
        compare_steps: CompareSteps,
        doubted: Callable[[int], Culprit | None],
        *,
        every: bool = False,
    ) -> None:
        """`compare_steps` adds the steps that are wrong for what the graphs were called with.

        `doubted`: the first launch from this one on of which it was not decided whether it is wrong.
        """
        self._result = result
        self._compare_steps = compare_steps
        self._doubted = doubted
        self.called = CalledGraphs()
        self.failed_launch = FailedLaunch()
        self._every = every
        self.is_open = True
        self._run = 0  # of the program
        self._here = threading.local()

    @property
    def result(self) -> ShadowResult:
        return self._result()

    @property
    def counts(self) -> Counts:
        return self.result.counts

    def begin(self) -> None:
        """The program runs again: the first execution of each region in this run is compared."""
        self._run += 1

    def close(self) -> None:
        self.is_open = False

    def failed(self, where: str, error: Exception) -> None:
        self.result.fail(where, error)

    def compiled(self, traced: TracedRegion, call: Compiled) -> Compiled:
        """The probe's callback."""
        if traced.is_backward:  # made of hooks and saved values that exist only once
            text = "Backward passes that compiled autograd traced are checked kernel by kernel alone."
            self.result.note(text)
            return call
        check = _Execution(traced, self, executions := Executions(every=self._every))

        @functools.wraps(call)
        def run(*args: Any) -> Any:
            is_free = self.is_open and not self._is_inside
            if is_free and executions.is_next_compared(self._run, args):
                return check.run(call, args)
            return call(*args)

        return run

    def uncompiled(self, traced: TracedRegion, error: Exception) -> None:
        """The probe's callback: the program may go on without it, so it must not count as judged."""
        name = traced.module_name or Frame(*traced.where).function or traced.code.co_name
        reason = f"it could not be compiled: {in_one_line(error)}"
        self.result.leave_out(f"function {name}", "*", reason)
        self.counts.unjudged_regions += 1

    @property
    def _is_inside(self) -> bool:
        return getattr(self._here, "depth", 0) > 0

    @contextmanager
    def own_work(self, region: Region, *, counts: bool = True) -> Iterator[None]:
        """Never ends the program: where it fails, the region is not judged, which `counts` once."""
        result = self.result
        self._here.depth = getattr(self._here, "depth", 0) + 1
        try:
            yield
        except Unjudged as why:
            result.leave_out(f"function {region.name}", "*", str(why))
            result.counts.unjudged_regions += counts
        except Exception as error:
            result.fail(f"function {region.name}", error)
            result.leave_out(f"function {region.name}", "*", f"kernelscope failed: {type(error).__name__}")
            result.counts.unjudged_regions += counts
        finally:
            self._here.depth -= 1

    def known(self) -> KnownWrong:
        """How often something else was found wrong so far."""
        others = [c for c in self.result.culprits if c.verdict != VERDICT]
        steps = sum(c.times for c in others if c.is_step)
        return KnownWrong(steps, sum(c.times for c in others) - steps, self.counts.launches)

    def _is_more(self, known: KnownWrong) -> bool:
        now = self.known()
        return now.steps > known.steps or now.launches > known.launches

    def add(
        self, region: Region, differences: Sequence[Difference], known: KnownWrong, part: str, step: str = "",
        raised: Culprit | None = None,
    ) -> None:  # fmt: skip
        """`part` that was compared; empty: not all of it. `step`, or the launch that raised, is to blame."""
        if not differences:
            region.right[part] = region.execution
            return
        result, first = self.result, differences[0]
        is_first = region.execution == 1 and first.kind != "gradient"  # the steps were compared on these
        is_known = bool(step) or is_first or self._is_more(known)
        if not is_known and region.eager is not None and first.kind in VALUES:
            self._compare_steps(region.eager.inputs, region.called, region.called_back)
        if self._is_more(known):
            self.result.note(f"Because of it, {first.what} of {region.name} differs from eager.")
            return
        suspects = result.suspects_since(known.launch)
        found = raised or (suspect_of_region(suspects, region, first) if not step else None)
        suspect = Suspect(step) if step else blame(region, first)
        if found is None and not suspect.step and first.kind in VALUES:
            found = self._doubted(known.launch)
        if (when := region.when_right(part)) and region.compile_id not in {c.graph for c in result.culprits}:
            result.note(when)
        result.add(found or culprit_of_region(region, differences, suspect))


class _Execution:
    """One execution of a region."""

    def __init__(self, traced: TracedRegion, check: RegionCheck, executions: Executions) -> None:
        self._traced, self._check, self._executions = traced, check, executions
        where, graph = Frame(*traced.where), without_recomputing(traced.module)
        name = traced.module_name or where.function or traced.code.co_name
        self._region = Region(name, traced.names, traced.compile_id, graph, (where,))

    def run(self, call: Compiled, args: Sequence[Any]) -> Any:
        region, check = self._region, self._check
        known, before = check.known(), None
        region.called, region.called_back = [], []
        with self._own_work():
            before = begun(region, self._traced.names, args, self._executions.count)
        given = before.given if before is not None else ()
        with noted_draws() as draws, check.called.noted(given) as region.called:
            try:
                result = call(*args)
            except Exception as error:
                if before is not None and not ends_recomputation(error):
                    with self._own_work():
                        self._compare_failure(before, error, known)
                raise
        if before is not None:
            with self._own_work():
                self._compare(before, result, known, draws)
        region.release()
        return result

    def _own_work(self) -> AbstractContextManager[None]:
        return self._check.own_work(self._region, counts=self._executions.is_first)

    def _compare_failure(self, before: Before, error: Exception, known: KnownWrong) -> None:
        """The compiled code raised: does the traced graph, too?"""
        found = failure_of_compiled_code(error, References(before.eager).run)
        self._check.counts.regions += self._executions.is_first
        self._check.counts.traced_regions += self._executions.is_first
        raised = self._check.failed_launch.that_raised(error)
        if raised is not None and found:
            raised = replace(raised, reason=found[0].reason)
        self._check.add(self._region, found, known, "results", raised=raised)

    def _compare(self, before: Before, result: Any, known: KnownWrong, draws: Draws) -> None:
        region, check, args = self._region, self._check, before.given
        made = list(result) if isinstance(result, tuple | list) else [result]
        references = References(before.eager)
        with alone():
            try:
                references = references.drawing(draws)
                same, eager = references.same, references.eager
            except Exception as error:
                raise Unjudged(refusal(region, error)) from error
            if len(same.results) != len(made):
                raise Unjudged(f"it returns {len(made)} values, and its graph {len(same.results)}")
            whats = [f"result {i}" for i in range(len(made))]
            after = [f"{name or f'input {i}'} after the call" for i, name in enumerate(region.names)]
            picks = [(lambda run, i=i: run.results[i]) for i in range(len(made))]
            found, arbitrary = compare_values(made, references, picks, whats, "result")
            inputs = [(lambda run, i=i: run.inputs[i]) for i in range(len(args))]
            more, random = compare_values(args, references, inputs, after, "input")
            everything, eagers = [*made, *args], [*same.results, *same.inputs]
            if not found:
                if pads := may_be_padded(args, made):
                    check.result.padded |= dict.fromkeys(padded(region.name, made, same.results, whats))
                found += compare_layouts(everything, eagers, [*whats, *after], self._note, pads=pads)
                found += compare_aliases(everything, eagers, [*whats, *after], len(made))
        check.counts.arbitrary += arbitrary + random
        is_counted = self._count(references, arbitrary + random)
        for operator, reason in same.wrong_draws.items():
            words = f"eager would not draw it: {reason}"
            drawn = [Difference(f"what {operator} draws", words)]
            check.add(region, drawn, known, "results", f"lowering of {operator}")
        is_partial = arbitrary + random and references.is_unmatched
        check.add(region, [*found, *more], known, "" if is_partial else "results")
        if found or more or same.wrong_draws:
            return
        own = OwnGradients(made, args, before.edges)
        if eager.differentiates:
            self._watch_gradients(Before(eager, args, before.edges), made, known, own)
        self._own_function().compare(references, args, own, is_counted=is_counted)

    def _own_function(self) -> OwnFunction:
        return OwnFunction(self._traced, self._region, self._check, counts=self._executions.is_first)

    def _count(self, references: References, arbitrary: int) -> bool:
        """A function with results that cannot be compared is not judged, unless they have no value at all."""
        if is_unmatched := bool(arbitrary) and references.is_unmatched:
            self._check.counts.unjudged_regions += self._executions.is_first
            self._leave_out(f"{arbitrary} results")
        else:
            self._check.counts.regions += self._executions.is_first
        return not is_unmatched and self._executions.is_first

    def _leave_out(self, what: str, why: str = UNMATCHED) -> None:
        self._check.result.leave_out(f"function {self._region.name}", what, why)

    def _note(self, text: str) -> None:
        self._check.result.note(f"Function {self._region.name}: {text}")

    def _watch_gradients(
        self, before: Before, made: Sequence[Any], known: KnownWrong, own: OwnGradients
    ) -> None:
        eager, given, edges = before
        outputs = [*made, *given]
        check, region, at_begin = self._check, self._region, [known]
        counts = self._executions.is_first
        called, execution = region.called, region.execution
        wrong_forward = check.known().launches - known.launches  # of which only what it saves may be wrong

        def begin() -> None:
            # The steps that led to the backward graph were compared when the forward graph first ran.
            launches = check.known().launches - wrong_forward
            at_begin[0] = KnownWrong(known.steps, launches, known.launch)
            check.called.begin()

        def end(backward: Backward) -> None:
            called_back = check.called.end()
            if check.is_open:
                with check.own_work(region, counts=counts), alone(), torch.enable_grad():
                    region.eager, region.execution = eager, execution
                    region.called, region.called_back = called, called_back
                    self._compare_gradients(eager, backward, at_begin[0], own)
                region.release()

        is_watched = watch_backward(outputs, edges, begin, torch.compiler.disable(end))  # type: ignore[no-untyped-call]
        if not is_watched and any(isinstance(v, torch.Tensor) and v.grad_fn is not None for v in made):
            text = f"Gradients of {region.name} were not compared: its backward is not one compiled node."
            check.result.note(text)

    def _compare_gradients(
        self, eager: Eager, backward: Backward, known: KnownWrong, own: OwnGradients
    ) -> None:
        """Those of the traced graph and of the function, for the gradients that really came in."""
        region = self._region
        references = References(Differentiated(eager, backward.tangents))
        wanted = [i for i, is_known in enumerate(backward.is_known) if is_known]
        whats = [f"the gradient of {name or f'input {i}'}" for i, name in enumerate(region.names)]
        for i in backward.merged:
            self._leave_out(whats[i], MERGED)
        made = {i: backward.gradients[i] for i in wanted}
        zeros = [torch.zeros_like(references.same.inputs[i]) if g is None else g for i, g in made.items()]
        picks = [(lambda run, i=i: run.results[i]) for i in wanted]
        found, arbitrary = compare_values(zeros, references, picks, [whats[i] for i in wanted], "gradient")
        self._check.counts.arbitrary += arbitrary
        if is_partial := bool(arbitrary and references.is_unmatched):
            self._leave_out(f"{arbitrary} gradients")
        self._check.add(region, found, known, "" if is_partial else "gradients")
        if found or references.is_unmatched:
            return
        self._own_function().compare_gradients(own, backward.tangents, wanted, references, whats)
