"""What is wrong or odd in a run, the gravest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelscope.events import Finding
from kernelscope.model.call import KernelCall
from kernelscope.model.derived_findings import findings_in
from kernelscope.stages.records import Incident
from kernelscope.store.stored_run import StoredRun

from .pipeline import incident_form

Form = dict[str, Any]
_GRAVE = (
    "nan", "inf", "undeclared-write", "unowned-write", "never-written", "failure", "shadow", "divergence",
    "watch", "nondeterministic-kernel",
)  # fmt: skip
_PLAIN = ("graph-break", "recompile")  # not wrong, but often not wanted
MOST_SHOWN = 500  # of one kind; the others are counted


def noticed(run: StoredRun, calls: Sequence[KernelCall]) -> Form:
    """What was noted, what the values of these calls show, and how compiling went."""
    found = [_finding(f) for f in run.noted_findings()]
    looked = len(calls) if run.has_hashes() else 0
    if looked:
        found += [_finding(f) for f in findings_in(calls)]
    stages = run.stages
    found += [_incident(i) for i in (*stages.failures, *stages.graph_breaks, *stages.recompiles)]
    kinds: dict[str, list[Form]] = {}
    for form in sorted(found, key=lambda form: _RANK[form["level"]]):
        kinds.setdefault(form["kind"], []).append(form)
    return {
        "found": [form for forms in kinds.values() for form in forms[:MOST_SHOWN]],
        "left_out": {
            kind: len(forms) - MOST_SHOWN for kind, forms in kinds.items() if len(forms) > MOST_SHOWN
        },
        "looked_at": looked,
        "of": len(run),
    }


_RANK = {"grave": 0, "odd": 1, "note": 2}


def _level(kind: str) -> str:
    return "grave" if kind in _GRAVE else "note" if kind in _PLAIN else "odd"


def _finding(finding: Finding) -> Form:
    return {
        "kind": finding.kind, "level": _level(finding.kind), "message": finding.message,
        "call": finding.call if finding.call >= 0 else None, "kernel": finding.kernel, "arg": finding.arg,
    }  # fmt: skip


def _incident(incident: Incident) -> Form:
    form = incident_form(incident)
    return form | {"level": _level(incident.kind), "message": incident.reason, "call": None}
