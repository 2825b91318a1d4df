"""Running a function once, forward and backward, without a trace in its arguments."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from .regions.copies import Snapshot


def try_once(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    backend: str = "inductor",
    note: Callable[[str], None] | None = None,
) -> Any:
    """Compile it, call it, and differentiate the sum of what it returns.

    With `note`, a backward that fails in eager in the same way is left out, and that is noted.
    """
    if isinstance(args, torch.Tensor | str) or not isinstance(args, Sequence):
        raise TypeError(
            f"check_correctness(fn, args): args is a tuple of arguments, not a {type(args).__name__}"
        )
    if not callable(fn):
        raise TypeError(f"check_correctness(fn, args) calls fn, and {fn!r:.60} cannot be called")
    target = copy.deepcopy(fn) if isinstance(fn, torch.nn.Module) else fn
    given = _apart(args, kwargs)
    result = torch.compile(target, backend=backend)(*given[0], **given[1])
    try:
        _differentiate(result)
    except Exception as error:
        if note is None or not _fails_in_eager(fn, args, kwargs, error):
            raise
        note(f"The backward was not run: it fails in eager, too ({_first_line(error)}).")
    return result


def _differentiate(result: Any) -> None:
    made = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor)]
    wanted = [t for t in made if t.requires_grad]
    if wanted:
        gradients = [torch.ones_like(t) for t in wanted]
        torch.autograd.grad(wanted, leaves_of(wanted), gradients, allow_unused=True)


def _fails_in_eager(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], error: Exception
) -> bool:
    """Whether the function's own backward raises the same."""
    target = copy.deepcopy(fn) if isinstance(fn, torch.nn.Module) else fn
    given = _apart(args, kwargs)
    result = None
    with suppress(Exception):  # then it is the forward that fails
        result = target(*given[0], **given[1])
    try:
        _differentiate(result)
    except Exception as own:
        return type(own) is type(error) and _first_line(own) == _first_line(error)
    return False


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300]


def leaves_of(results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """All that the results can be differentiated by: also what a function has from outside."""
    found: dict[int, torch.Tensor] = {id(t): t for t in results if t.is_leaf}
    todo, seen = [t.grad_fn for t in results], set[Any]()
    while todo:
        step = todo.pop()
        if step is None or step in seen:
            continue
        seen.add(step)
        variable = getattr(step, "variable", None)  # of AccumulateGrad
        if isinstance(variable, torch.Tensor):
            found[id(variable)] = variable
        todo += [inner for inner, _ in step.next_functions]
    return list(found.values())


def _apart(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Copies with the strides of the arguments, which share memory exactly as the arguments do."""
    values, form = tree_flatten((tuple(args), kwargs))
    each = {id(value): value for value in values if isinstance(value, torch.Tensor)}  # one may come twice
    copies = dict(zip(each, Snapshot([*each.values()]).fresh().values, strict=True))
    given: tuple[Any, Any] = tree_unflatten([copies.get(id(value), value) for value in values], form)
    return given
