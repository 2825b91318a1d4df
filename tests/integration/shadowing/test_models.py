"""Everyday models are clean programs: no alarm, nearly all of them judged, results as without kernelscope."""

from __future__ import annotations

import pytest
from tests.models.check import MODES, check
from tests.programs.models.everyday_models import ALL, MISSING

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ALL)
def test_a_model_is_judged_and_left_as_it_is(name: str, mode: str) -> None:
    broken = check(ALL[name].load(), MODES[mode]).broken_promises()
    assert not broken, "\n".join(broken)


def test_all_libraries_of_models_are_installed() -> None:
    assert not MISSING, "run: pip install -e '.[models]'"
