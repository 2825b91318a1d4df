"""`dim` says where the rows are: a number, an entry for each argument, by name, or in an argument's form."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelscope.invariance.batches import Batch, NoRows, dims_of, parsed_dims

X, TABLE = torch.zeros(4, 9), torch.zeros(9, 2)


@pytest.mark.parametrize(
    ("args", "kwargs", "dim", "found"),
    [
        ((X, TABLE), {}, (1, 0), [1, 0]),
        ((X, TABLE), {}, (-1, None), [1, None]),
        ((X, 3, TABLE), {}, (1, None, None), [1, None, None]),
        ((X,), {"table": TABLE}, {"x": 1, "table": 0}, [1, 0]),
        ((X,), {"table": TABLE}, {"x": 1}, [1, None]),
        (({"a": X, "b": TABLE}, X), {}, ({"a": 1}, None), [1, None, None]),
        (([X, [TABLE, 2]],), {}, ([1, 0],), [1, 0, None]),
        (([X, X],), {}, (1,), [1, 1]),
    ],
)
def test_an_entry_for_each_argument(args: tuple, kwargs: dict, dim: Any, found: list) -> None:
    assert dims_of(args, kwargs, dim, ["x", "table"]) == found


@pytest.mark.parametrize(
    ("args", "kwargs", "dim", "said"),
    [
        ((X, TABLE), {}, (0,), "dim has 1 entries for 2 arguments; give one for each"),
        ((X,), {"mask": TABLE}, (0,), "dim has no entry for mask, which is passed by name"),
        ((X,), {}, (2,), "dim is 2 for x, whose shape is (4, 9): give a dimension that it has, or None"),
        ((X, 3), {}, (1, 0), "dim is 0 for table, which holds no tensor of data: give None for it"),
        ((X,), {}, {"y": 0}, "dim names 'y', and the arguments are x"),
        (([X, X],), {}, ([0],), "dim is [0] for x, which does not have that form"),
        ((X,), {}, "rows", "dim is 'rows': give a number"),
        ((X, TABLE), {}, (0, 0), "the arguments have 4 and 9 rows; give as many of each"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_do(args: tuple, kwargs: dict, dim: Any, said: str) -> None:
    with pytest.raises(NoRows) as error:
        Batch(args, kwargs, dim, ["x", "table"])
    assert said in str(error.value)


def test_as_on_the_command_line() -> None:
    assert parsed_dims("1") == 1
    assert parsed_dims("-1") == -1
    assert parsed_dims("0, 1,none") == (0, 1, None)
    assert parsed_dims("x=1,mask=none") == {"x": 1, "mask": None}
