"""The arguments of a function under test, in each form in which they may be given."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import kernelscope
from kernelscope import pytest_plugin
from kernelscope.determinism.call_forms import arguments_of, call_form


class Model:
    """As a module is: called with what `forward` takes."""

    def forward(self, x: Any, y: Any = None, *, scale: int = 1) -> Any:
        return x

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)


def test_one_by_one_or_as_a_tuple() -> None:
    model = Model()
    assert call_form(model, (1,), {}) == ((1,), {})
    assert call_form(model, ((1,),), {}) == ((1,), {})
    assert call_form(model, ([1, 2],), {}) == (([1, 2],), {})  # a list may be what it computes with
    assert call_form(lambda x, y: x, ([1, 2],), {}) == ((1, 2), {})
    assert call_form(model, (1, 2), {"scale": 3}) == ((1, 2), {"scale": 3})
    assert call_form(model, ((1, 2),), {"scale": 3}) == ((1, 2), {"scale": 3})
    assert call_form(model, ((1, 2), {"scale": 3}), {}) == ((1, 2), {"scale": 3})
    assert call_form(model, ((),), {"x": 1}) == ((), {"x": 1})


def test_a_function_of_one_tuple() -> None:
    def first(pair: tuple[int, int]) -> int:
        return pair[0]

    assert call_form(first, ((1, 2),), {}) == (((1, 2),), {})  # two arguments do not fit
    assert call_form(first, (((1, 2),),), {}) == (((1, 2),), {})

    def with_options(pair: tuple[int, int], options: dict[str, int]) -> int:
        return pair[0]

    assert call_form(with_options, ((1, 2), {"k": 1}), {}) == (((1, 2), {"k": 1}), {})


def test_parameters_that_are_not_known() -> None:
    assert call_form(max, ((1, 2),), {}) == ((1, 2), {})


def test_args_and_kwargs_by_name() -> None:
    model = Model()
    assert arguments_of(model, (), (1, 2), {"scale": 3}, {}) == ((1, 2), {"scale": 3})
    assert arguments_of(model, (1,), (), {"scale": 3}, {"y": 2}) == ((1,), {"scale": 3, "y": 2})
    with pytest.raises(TypeError, match="args is a tuple of arguments, not a int"):
        arguments_of(model, (), 1, None, {})  # type: ignore[arg-type]


TAKING_A_FUNCTION = [
    kernelscope.check_correctness, kernelscope.check_determinism, kernelscope.bisect, kernelscope.reduce,
    pytest_plugin.assert_matches_eager, pytest_plugin.assert_deterministic,
]  # fmt: skip


@pytest.mark.parametrize("ours", TAKING_A_FUNCTION, ids=lambda f: f.__name__)
def test_one_convention_everywhere(ours: Callable[..., Any]) -> None:
    """A function, then its arguments as in a call; what is ours has a name."""
    parameters = list(inspect.signature(ours).parameters.values())
    assert [each.kind.name for each in parameters[:2]] == ["POSITIONAL_OR_KEYWORD", "VAR_POSITIONAL"]
    assert parameters[-1].kind.name == "VAR_KEYWORD"
    assert all(each.kind.name == "KEYWORD_ONLY" for each in parameters[2:-1])


def test_a_named_tuple_is_a_value_and_arguments_are_given_once() -> None:
    class Pair(NamedTuple):
        left: int
        right: int

    pair = Pair(1, 2)
    assert call_form(Model(), (pair,), {}) == ((pair,), {})
    assert call_form(Model(), (((1, 2),),), {}) == (((1, 2),), {})
    with pytest.raises(TypeError, match="given twice"):
        arguments_of(Model(), (1,), (2,), None, {})
