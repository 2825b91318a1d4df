"""An input that has one value on all ranks must not change on one of them; what varies is not judged."""

from __future__ import annotations

import pytest

from kernelscope.analysis.ranks.constants import Constant, changed_constants


def held(*values: int) -> list[Constant]:
    """What a rank tells of an input that had these values in successive calls."""
    constant = Constant(1, "in_ptr0", values[0])
    is_kept = [constant.see(value, index) for index, value in enumerate(values)]
    return [constant] if all(is_kept) else []


@pytest.mark.parametrize(
    ("ranks", "named"),
    [
        ({0: held(5, 5, 5, 5), 1: held(5, 5, 5, 5)}, []),
        ({0: held(5, 5, 5, 5), 1: held(5, 5, 6, 6)}, [(1, 2)]),
        ({0: held(5, 5, 5, 5), 1: held(5, 5, 6, 6), 2: held(5, 5, 5, 5)}, [(1, 2)]),
        ({0: held(5, 5, 5, 5), 1: held(5, 5, 5, 6)}, []),  # one call may have been given other data
        ({0: held(5, 5, 5, 5), 1: held(5, 6, 6, 6)}, []),
        ({0: held(5, 5, 6, 6), 1: held(5, 5, 6, 6)}, []),  # the program changed it
        ({0: held(5, 5, 7, 7), 1: held(5, 5, 6, 6)}, []),  # each has its own data
        ({0: held(5, 5), 1: held(5, 5, 6, 6)}, []),  # only one rank went on
        ({0: held(4, 4, 4, 4), 1: held(5, 5, 6, 6)}, []),
        ({0: held(5, 5, 5, 5), 1: held(5, 5, 6, 7)}, []),
        ({0: held(5, 6, 7, 8), 1: held(5, 5, 6, 6)}, []),
        ({0: [], 1: held(5, 5, 6, 6)}, []),
        ({1: held(5, 5, 6, 6)}, []),
    ],
)
def test_which_changes_are_named(ranks: dict[int, list[Constant]], named: list[tuple[int, int]]) -> None:
    assert [(rank, constant.changed) for rank, constant, _ in changed_constants(ranks)] == named
