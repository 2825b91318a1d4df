"""The arguments of a function under test, in each form in which they may be given."""

from __future__ import annotations

from typing import Any

from kernelscope.determinism.call_forms import call_form


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
    assert call_form(model, ([1, 2],), {}) == ((1, 2), {})
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
