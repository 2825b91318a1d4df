"""The arguments of a function under test: given one by one, as a tuple, or as a tuple and a dictionary."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def arguments_of(
    fn: Callable[..., Any],
    given: Sequence[Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    named: Mapping[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same for a function of ours that also has the parameters `args` and `kwargs`.

    `kwargs` takes what has the name of one of our own options.
    """
    if not isinstance(args, tuple | list):
        raise TypeError(f"args is a tuple of arguments, not a {type(args).__name__}")
    if given and args:
        raise TypeError(
            "the arguments are given twice, one by one and as args=(…); give them once. "
            'A parameter of the function that is called args goes into kwargs={"args": …}'
        )
    both = {**(kwargs or {}), **named}
    return call_form(fn, given, both) if given else (tuple(args), both)


def call_form(
    fn: Callable[..., Any], given: Sequence[Any], named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What `fn` is called with, for `f(fn, x, y, k=1)`, `f(fn, (x, y), k=1)` and `f(fn, (x, y), {"k": 1})`.

    One tuple is the arguments, unless only it itself fits the function's parameters; where both fit,
    `((x, y),)` gives the function a tuple. A list is the arguments only where it does not fit itself.
    Named tuples and sizes are values.
    """
    if len(given) == 2 and type(given[0]) in (tuple, list) and isinstance(given[1], dict):
        if _fits(fn, given[0], {**given[1], **named}) or not _fits(fn, given, named):
            return tuple(given[0]), {**given[1], **named}
    elif (
        len(given) == 1
        and type(given[0]) in (tuple, list)
        and ((type(given[0]) is tuple and _fits(fn, given[0], named)) or not _fits(fn, given, named))
    ):
        return tuple(given[0]), dict(named)
    return tuple(given), dict(named)


def parameter_names(fn: Callable[..., Any]) -> list[str]:
    """Of those that take arguments by position, in order; none where they are not known."""
    signature = _signature(fn)
    found = signature.parameters.values() if signature is not None else ()
    return [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    function = fn.forward if hasattr(fn, "forward") and callable(fn.forward) else fn
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _fits(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the parameters of the function take these; True where they are not known."""
    signature = _signature(fn)
    if signature is None:
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True
