"""What `ranks` says: agreement needs something that was compared."""

from __future__ import annotations

import pytest

from kernelscope.analysis.ranks.deviation import COMPUTED, Deviation, RanksResult

DIFFERS = Deviation(
    COMPUTED, 1, "node", 3, 0, "forward", "cpp_add", None, None, "", "it differs", (1,), level=1
)


@pytest.mark.parametrize(
    ("checked", "found", "status", "says"),
    [
        ({"same_inputs": 0, "collectives": 0, "rechecked": 0}, (), 2, "nothing could be compared"),
        ({}, (), 2, "nothing could be compared"),
        ({"same_inputs": 3}, (), 0, "the ranks agree"),
        ({"rechecked": 1}, (), 0, "the ranks agree"),
        ({}, (DIFFERS,), 1, "1 deviation in 0 of 2 ranks"),
    ],
)
def test_agreement_needs_something_compared(
    checked: dict[str, int], found: tuple[Deviation, ...], status: int, says: str
) -> None:
    result = RanksResult((), 2, found, len(found), checked)
    assert result.status == status
    assert says in str(result)
    assert bool(result) is bool(found)
