"""A run as one JSON document, written call by call. docs/export.md has the keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from kernelscope.events import Finding
from kernelscope.model.call import KernelCall
from kernelscope.model.derived_findings import findings_in
from kernelscope.model.run import Run
from kernelscope.store.run_db.codec import to_json
from kernelscope.store.stored_run import StoredRun
from kernelscope.views import plain, stages
from kernelscope.views.call_filter import CallFilter

from .output import new_file

VERSION = 1


def write(run: Run, path: Path, wanted: CallFilter) -> int:
    with new_file(path) as file:
        return _Document(run, file).write(wanted)


class _Document:
    def __init__(self, run: Run, file: TextIO) -> None:
        self._run = run
        self._file = file
        self._count = 0

    def write(self, wanted: CallFilter) -> int:
        run, put = self._run, self._file.write
        head = {"format": "kernelscope.run", "version": VERSION}
        put(to_json(head)[:-1])
        put(f',\n"run":{to_json(plain.run_form(run, getattr(run, "path", None)))}')
        self._list("kernels", map(asdict, run.kernels))
        self._list("graphs", map(asdict, run.graphs))
        put(',\n"calls":[')
        findings = [*run.noted_findings(), *findings_in(self._written(wanted.calls(run)))]
        put("]")
        self._list("findings", map(_finding_form, findings))
        found = run.stages
        self._list("stages", map(stages.graph_form, found.graphs))
        incidents = [*found.graph_breaks, *found.recompiles, *found.failures]
        self._list("incidents", map(stages.incident_form, incidents))
        put("}\n")
        return self._count

    def _list(self, key: str, forms: Iterable[dict[str, Any]]) -> None:
        self._file.write(f',\n"{key}":[')
        for place, form in enumerate(forms):
            self._file.write((",\n" if place else "\n") + to_json(form))
        self._file.write("]")

    def _written(self, calls: Iterable[KernelCall]) -> Iterator[KernelCall]:
        """The same calls, each written as it passes: a long run is read once."""
        run = self._run
        has_tensors = isinstance(run, StoredRun) and run.has_tensors()
        for call in calls:
            saved = run.saved_tensors(call.index) if has_tensors else {}  # type: ignore[attr-defined]
            form = plain.call_form(call, saved)
            form |= {"kernel": call.site.kernel.id, "start_ns": call.recorded.start_ns}
            self._file.write((",\n" if self._count else "\n") + to_json(form))
            self._count += 1
            yield call


def _finding_form(finding: Finding) -> dict[str, Any]:
    call = finding.call if finding.call >= 0 else None
    return asdict(finding) | {"call": call}
