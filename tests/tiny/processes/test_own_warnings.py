"""A program that makes errors of warnings: those of our own imports are printed, and its own stay errors."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelscope.own_warnings import printed_at_most


@pytest.fixture(autouse=True)
def printed() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as printed:
        warnings.resetwarnings()
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        warnings.filterwarnings("error", "about .*", category=FutureWarning)
        warnings.simplefilter("error", DeprecationWarning)
        yield printed


def deprecated() -> None:
    warnings.warn("deprecated", DeprecationWarning, stacklevel=1)


def test_errors_are_printed_inside_and_raised_after(printed: list[warnings.WarningMessage]) -> None:
    before = warnings.filters[:]
    with printed_at_most():
        deprecated()
        warnings.warn("about it", FutureWarning, stacklevel=1)
        warnings.warn("ignored", PendingDeprecationWarning, stacklevel=1)
        with printed_at_most():
            deprecated()
    assert warnings.filters == before
    with pytest.raises(DeprecationWarning):
        deprecated()  # at the line that has printed it
    assert [str(each.message) for each in printed] == ["deprecated", "about it"]


def test_filters_of_a_module_that_is_imported_inside_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "has_a_filter.py").write_text(
        "import warnings\n"
        "class Own(DeprecationWarning): pass\n"
        "warnings.simplefilter('always', Own)\n"
        "warnings.warn('deprecated', DeprecationWarning)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "has_a_filter", raising=False)
    before = warnings.filters[:]
    with printed_at_most():
        import has_a_filter  # type: ignore[import-not-found]
    assert warnings.filters == [("always", None, has_a_filter.Own, None, 0), *before]
    warnings.warn("not raised", has_a_filter.Own, stacklevel=1)


def test_a_list_that_another_thread_has_copied_meanwhile_is_put_right() -> None:
    before = warnings.filters[:]
    with printed_at_most():
        around = warnings.catch_warnings()  # of another thread, which ends later
        around.__enter__()
    assert warnings.filters == before
    around.__exit__(None, None, None)
    assert warnings.filters == before


def test_an_exception_passes_through() -> None:
    before = warnings.filters[:]
    with pytest.raises(ZeroDivisionError), printed_at_most():
        raise ZeroDivisionError
    assert warnings.filters == before


def test_without_errors_nothing_is_touched() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filters[:] = [each for each in warnings.filters if each[0] != "error"]
        filters, entries = warnings.filters, warnings.filters[:]
        with printed_at_most():
            assert warnings.filters is filters
            assert warnings.filters == entries
