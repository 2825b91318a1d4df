"""Replacing an attribute of a module that the program may not have imported."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

from kernelscope.probes.patching import Patch


def test_a_module_that_warns_when_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch's compiler does, also in a program that compiles nothing and makes errors of warnings."""
    (tmp_path / "warns_when_imported.py").write_text(
        "import warnings\n"
        "warnings.warn('deprecated', DeprecationWarning)\n"
        "def __getattr__(name):\n"
        "    warnings.warn(f'{name} is old', DeprecationWarning)\n"
        "    return 3\n"
        "old = 2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "warns_when_imported", raising=False)
    with warnings.catch_warnings(record=True) as printed:
        warnings.simplefilter("error")
        patch = Patch("warns_when_imported:old", lambda found: found + 1)
        patch.install()
        try:
            import warns_when_imported  # type: ignore[import-not-found]

            assert warns_when_imported.old == 3
            with pytest.raises(DeprecationWarning):
                _ = warns_when_imported.older
        finally:
            patch.remove()
    assert [str(each.message) for each in printed] == ["deprecated"]
