"""What a program's hooks and hash functions are given, and what they answer, of each operator."""

from __future__ import annotations

from typing import Any

from kernelscope.events import Finding
from kernelscope.probes.bus import BUS
from kernelscope.recording import Recording

from .settings import SETTINGS, Hook
from .stock_form import copies, hashes_after, hashes_before


class Hooks:
    """Calls those that are in force; their faults are findings, the program is not to blame for them."""

    def __init__(self, recording: Recording, *, stock_form: bool) -> None:
        self._recording = recording
        self._stock_form = stock_form
        self._failures: set[tuple[str, str]] = set()

    def before(self, func: Any, args: Any, kwargs: Any, entry: Any, name: str, *, values: bool) -> Any:
        """What goes into `log` before an operator runs."""
        found: dict[str, Any] = {}
        for hook in SETTINGS.hooks("pre_log_hook"):
            found.update(self._call(hook, func, args, kwargs, entry, name))
        hashing = SETTINGS.hashing
        if values and self._stock_form and hashing is not None and hashing.hash_inputs:
            assert hashing.stock_hash is not None
            found.update(hashes_before(hashing.stock_hash, func, args, kwargs))
        return found

    def after(
        self, func: Any, args: Any, kwargs: Any, result: Any, name: str, *, values: bool
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """What goes into `record`, and what into `log`."""
        record: dict[str, Any] = {}
        logged: dict[str, Any] = {}
        for hook in SETTINGS.hooks("record_hook"):
            record.update(self._call(hook, func, args, kwargs, result, name))
        hashing = SETTINGS.hashing
        if values and self._stock_form and hashing is not None:
            assert hashing.stock_hash is not None
            logged.update(hashes_after(hashing.stock_hash, func, result))
        if values and self._stock_form and SETTINGS.keep_outputs:
            record["output"] = copies(result)
        for hook in SETTINGS.hooks("log_hook"):
            logged.update(self._call(hook, func, args, kwargs, result, name))
        return record, logged

    def _call(self, hook: Hook, func: Any, args: Any, kwargs: Any, last: Any, of: str) -> dict[str, Any]:
        name = getattr(hook, "__name__", type(hook).__name__)
        try:
            with BUS.mute():
                returned = hook(func, (), args, kwargs, last)
        except Exception as error:
            self.fault("hook-failed", f"the hook {name} raised {type(error).__name__}: {error}", of)
            return {}
        if returned is None or isinstance(returned, dict):
            return returned or {}
        self.fault("hook-failed", f"the hook {name} must return a dict or None, not {returned!r}", of)
        return {}

    def fault(self, kind: str, message: str, kernel: str) -> None:
        if (kind, message) not in self._failures:
            self._failures.add((kind, message))
            self._recording.finding(Finding(kind, message, kernel=kernel))
