"""check_invariance(): a function on the same rows, alone and among others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelscope.determinism.call_forms import arguments_of, parameter_names
from kernelscope.determinism.noted_calls import is_compiled
from kernelscope.determinism.state import State
from kernelscope.probes.bus import BUS
from kernelscope.probes.probe_list import PROBES
from kernelscope.shadowing.api import listening
from kernelscope.shadowing.run_once import leaves_of

from .batches import Batch, Dims, NoRows, Selection
from .flow import Flow, Value
from .following import Following
from .judging import Judge
from .result import InvarianceResult, ResultDifference
from .verdicts import excuse_orders, verdicts, with_suspect

Results = dict[str, torch.Tensor]


def check_invariance(
    fn: Callable[..., Any],
    *given: Any,
    dim: Dims = 0,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    ops: str = "graph",
    **named: Any,
) -> InvarianceResult:
    """Run a function on the same rows alone and among others; name the first kernel that tells them apart.

    The arguments are given one by one, `check_invariance(fn, x, y, k=1)`, or as a tuple and a dictionary,
    `check_invariance(fn, (x, y), {"k": 1})`. Arguments, the modules and tensors that `fn` refers to, and the
    random number generators are put back before each run, and again at the end.

    dim  the dimension that holds the rows: of each tensor argument that has as many of them as the first one;
         or a tuple with a dimension for each argument, None for one without rows; or a dictionary by name.
         An entry may have the form of its argument, as in `in_dims` of torch.vmap: (0, {"mask": 1})
    ops  "graph" compiles the function and follows its kernels; "all" runs it as it is and follows eager
         operators too

    Example:
        result = kernelscope.check_invariance(model, batch)
        assert not result, result
    """
    if not callable(fn):
        raise TypeError(f"check_invariance(fn, …): fn must be callable, not {fn!r:.60}")
    if ops not in ("graph", "all"):
        raise ValueError(f"check_invariance(ops={ops!r}): give 'graph' or 'all'")
    words, options = arguments_of(fn, given, args, kwargs, named)
    found = InvarianceResult(dim=dim, function=str(getattr(fn, "__name__", type(fn).__name__)))
    try:
        batch = Batch(words, options, dim, parameter_names(fn))
    except NoRows as problem:
        found.refused = str(problem)
        return found
    target = fn if ops == "all" or is_compiled(fn) else torch.compile(fn)
    state = State(fn, words, options)
    follower = Following()
    try:
        with listening(follower), _operators(ops == "all"):
            _Check(follower, batch, target, state, found, follows_operators=ops == "all").run()
    finally:
        state.put_back()
    shadowed = follower.result
    found.failures += [f"{each.where}: {each.error}" for each in shadowed.failures]
    found.notes += [*shadowed.notes, *shadowed.unshadowed]
    return found


@contextmanager
def _operators(wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    PROBES.acquire(operators=True, strict=True)
    try:
        yield
    finally:
        PROBES.release(operators=True)


class _Check:
    """The runs of one check."""

    def __init__(
        self, follower: Following, batch: Batch, target: Callable[..., Any], state: State,
        found: InvarianceResult, *, follows_operators: bool,
    ) -> None:  # fmt: skip
        self._follower, self._batch, self._target = follower, batch, target
        self._state, self._found, self._operators = state, found, follows_operators

    def run(self) -> None:
        found, whole = self._found, self._batch.whole()
        flow = Flow(whole.size)
        with self._follower.run(flow, is_whole=True, operators=self._operators):
            results = {name: Value(tensor, None) for name, tensor in self._once(whole).items()}
        again = Selection("the same rows again", whole.rows, "repeat")
        found.rows = whole.size
        differing: dict[str, ResultDifference] = {}
        unexplained: dict[str, ResultDifference] = {}
        lost: dict[str, None] = {}
        for selection in [again, *self._batch.selections()]:  # again, before other code is compiled
            try:
                self._compare(flow, selection, results, differing, unexplained, lost)
            except Exception as error:  # the function's own: batch norm refuses to train on one row
                what = f"{type(error).__name__}: {_first_line(error)}"
                found.notes.append(f"Not compared: {selection.name}. The function raises {what}")
                flow.forget(selection.name)
            else:
                found.runs.append(selection.name)
        if shapes := self._takes_no_other_size():
            found.refused = (
                f"the function raises an exception with other numbers of rows, and arguments of these shapes "
                f"were taken to have rows: {shapes}; say which have them, as in dim=(0, None)"
            )
            return
        for name, value in results.items():  # which rows are selected may depend on the others
            if any(len(value.met) < value.tensor.shape[d] for d in value.varying):
                lost[name] = None
        with_rows = [v for v in results.values() if v.maps and v.maps[0].dims]
        found.results_followed = len(with_rows)
        if with_rows and not (differing or unexplained or lost):
            excuse_orders(flow)
        found.kernels = verdicts(flow, found.runs)
        found.results, found.unexplained = list(differing.values()), list(unexplained.values())
        found.results_not_followed = list(lost)
        unnamed = [each for each in found.results if not flow.draws] + found.unexplained
        if unnamed and not found.variant:
            found.kernels = with_suspect(found.kernels, flow, unnamed[0].run)
        if flow.draws and not found.variant and not found.unexplained:
            note = "Only because the random numbers of a row are different in another batch: {}"
            found.notes += [note.format(each) for each in found.results]
            found.results = []

    def _takes_no_other_size(self) -> str:
        """Where it is not known which arguments have rows: the shapes of those that may; else ""."""
        sizes = [each.name for each in self._batch.selections() if each.tests == "size" and each.size > 1]
        return "" if {*sizes} & {*self._found.runs} else self._batch.doubtful()

    def _compare(
        self, flow: Flow, selection: Selection, results: dict[str, Value],
        differing: dict[str, ResultDifference], unexplained: dict[str, ResultDifference],
        lost: dict[str, None],
    ) -> None:  # fmt: skip
        with self._follower.run(None, operators=self._operators):
            plain = self._once(selection)
        self._note(Judge(flow, selection), results, plain, differing, lost)
        judge = Judge(flow, selection)
        with self._follower.run(judge, operators=self._operators):
            right = self._once(selection)
        self._note(judge, results, right, unexplained, lost)
        for name in judge.outside:
            why = "code that was not recorded changed its rows"
            note = f"{name} differed when its graph was entered: {why} ({selection.name})"
            self._found.notes += [note] if note not in self._found.notes else []

    def _note(
        self, judge: Judge, results: dict[str, Value], made: Results, into: dict[str, ResultDifference],
        lost: dict[str, None],
    ) -> None:  # fmt: skip
        for name, value in results.items():
            part = made.get(name)
            outcome = None
            if part is not None:
                outcome = judge.result(name, value, part, BUS.storages.of(part).id)
            if part is None or (outcome is not None and outcome.status == "unfollowed"):
                lost[name] = None
            elif outcome is not None and outcome.difference is not None:
                apart = outcome.difference
                new = ResultDifference(
                    name, outcome.run, apart.differing, apart.elements, apart.max_abs, apart.max_ulp
                )
                known = into.get(name)
                if known is None or apart.max_abs > known.max_abs:
                    into[name] = new

    def _once(self, selection: Selection) -> Results:
        """What the function returns for these rows, and the gradients of its arguments."""
        with BUS.mute():
            self._state.put_back()
            args, kwargs, batched = self._batch.arguments(selection)
        returned = self._target(*args, **kwargs)
        tensors = [leaf for leaf in tree_leaves(returned) if isinstance(leaf, torch.Tensor)]
        found = {f"result {i}": tensor.detach() for i, tensor in enumerate(tensors)}
        return found | self._gradients(tensors, batched, selection.size)

    def _gradients(self, tensors: list[torch.Tensor], batched: list[torch.Tensor], size: int) -> Results:
        wanted = [t for t in tensors if t.requires_grad and (t.is_floating_point() or t.is_complex())]
        # A loss has no rows. Where there are results with rows, it is left out: its gradient may be a mean.
        wanted = [t for t in wanted if any(n and n % size == 0 for n in t.shape)] or wanted
        found = {f"gradient of argument {i}": t.grad for i, t in enumerate(batched) if t.grad is not None}
        if not wanted:
            return found
        leaves = leaves_of(wanted)
        with BUS.mute():
            start = [_gradient_of(tensor) for tensor in wanted]
        try:
            gradients = torch.autograd.grad(wanted, leaves, start, allow_unused=True)
        except RuntimeError as error:  # the function has done so itself, or its backward fails
            note = f"The results were not differentiated: {_first_line(error)}"
            self._found.notes += [note] if note not in self._found.notes else []
            return found
        by_leaf = {id(leaf): gradient for leaf, gradient in zip(leaves, gradients, strict=True)}
        for i, tensor in enumerate(batched):
            if (gradient := by_leaf.get(id(tensor))) is not None:
                found[f"gradient of argument {i}"] = gradient
        return found


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]


def _gradient_of(result: torch.Tensor) -> torch.Tensor:
    """Computed from the result itself, element by element and exactly: so each row has its own."""
    if not result.dim():
        return torch.ones_like(result)
    return result.detach() * 0.5 + 0.75
