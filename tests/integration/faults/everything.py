"""All faults that are planted, and the one of each family that `make test` has."""

from __future__ import annotations

import pytest

from .corpus import FAULTS as COMMON
from .kinds_of_values import KINDS
from .other_kinds import OTHERS
from .planting import Fault

FAULTS = [*COMMON, *OTHERS, *KINDS]
_FIRST = {fault.family: fault.name for fault in reversed(FAULTS)}


def marked(fault: Fault) -> object:
    is_first = _FIRST[fault.family] == fault.name
    return pytest.param(fault, id=str(fault), marks=() if is_first else pytest.mark.slow)
