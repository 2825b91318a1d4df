"""For pytest: assertions that name the kernel. Import them, or use the fixtures of the same names.

Example:
    from kernelscope.pytest_plugin import assert_deterministic

    def test_step():
        assert_deterministic(step, batch, runs=5)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def assert_deterministic(
    fn: Callable[..., Any], *args: Any, runs: int = 3, recompile: bool = False, **kwargs: Any
) -> None:
    """Fail unless a function gives identical results each time, kernel by kernel.

    The arguments are given as for `check_determinism`: `(fn, x)`, or `(fn, (x,))`.
    """
    __tracebackhide__ = True
    from . import check_determinism

    result = check_determinism(fn, *args, runs=runs, recompile=recompile, kwargs=kwargs)
    if result:
        pytest.fail(f"not deterministic in {runs} runs:\n{result}", pytrace=False)


def assert_matches_eager(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Fail if the result of a kernel of the compiled `fn` differs from eager by more than rounding.

    The arguments are given as for `check_correctness`: `(fn, x)`, or `(fn, (x,))`. Also fails if that is
    inconclusive: nothing was compiled, or no kernel could be checked.
    """
    __tracebackhide__ = True
    from . import check_correctness

    result = check_correctness(fn, *args, kwargs=kwargs)
    if result:
        pytest.fail(f"differs from eager:\n{result}", pytrace=False)
    if result.problem:
        pytest.fail(f"cannot be compared with eager:\n{result}", pytrace=False)


@pytest.fixture(name="assert_deterministic")
def _assert_deterministic() -> Callable[..., None]:
    return assert_deterministic


@pytest.fixture(name="assert_matches_eager")
def _assert_matches_eager() -> Callable[..., None]:
    return assert_matches_eager
