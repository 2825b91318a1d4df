"""Whether two runs can be compared; if not, an error that says what to do."""

from __future__ import annotations

from pathlib import PurePath

from kernelscope.analysis.alignment.aligned_calls import Alignment
from kernelscope.errors import RunError
from kernelscope.model.run import Run
from kernelscope.store.stored_run import StoredRun

_RELATED = 0.2  # of the shorter run's calls have a partner, if both come from one program
_RECORD = "record it with --values hash, or record(values='hash')"


def name_of(run: Run, which: str) -> str:
    return str(run.path) if isinstance(run, StoredRun) else f"the {which} run"


def check_runs(a: Run, b: Run) -> None:
    if a is b or a.info.uuid == b.info.uuid:
        raise RunError(
            f"{name_of(a, 'first')} is compared with itself; "
            "record the program again and compare the two runs"
        )
    for run, which in ((a, "first"), (b, "second")):
        if not len(run):
            raise RunError(
                f"{name_of(run, which)} is empty: it has no calls to compare; "
                "does the program run compiled code while it is recorded? --ops all records eager operators"
            )


def check_alignment(a: Run, b: Run, alignment: Alignment) -> None:
    for run, columns, which in ((a, alignment.columns_a, "first"), (b, alignment.columns_b, "second")):
        if not columns.has_hashes:
            raise RunError(
                f"{name_of(run, which)} has no hashes, so its values cannot be compared; {_RECORD}"
            )
    shorter = min(len(alignment.columns_a), len(alignment.columns_b))
    if len(alignment) < _RELATED * shorter and not _files(alignment.columns_a.sites) & _files(
        alignment.columns_b.sites
    ):
        raise RunError(
            f"{name_of(a, 'first')} and {name_of(b, 'second')} are runs of different programs: "
            f"{len(alignment)} of {shorter} calls match, and no source file is in both; "
            "compare two runs of one program"
        )


def _files(sites: object) -> set[str]:
    assert isinstance(sites, dict)
    return {PurePath(frame.file).name for site in sites.values() for frame in site.origin[:1]}
