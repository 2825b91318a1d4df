"""Which process runs which tests, when there are several: `--dist loadscope`, as `make test` says.

The tests of a file go to one process, because they share what is slow to make. (The groups of xdist 3.8 have
no effect with pytest 9.2, which reads another attribute than the one that xdist changes.)
"""

from __future__ import annotations

import os
from typing import Any

import pytest

# Folders whose files share what is slow to make: recorded runs.
SHARING = ("tests/browser/",)
# Files whose tests share nothing, or what each process makes once: any process may run any of them.
APART = ("tests/integration/repro/test_repro_faults.py",)
# Those that take longest begin first: else one process has a long file left when the others are done.
LONGEST = (
    "tests/integration/docs/test_docs.py",
    "tests/integration/probes/cpp_wrappers/test_aoti_packages.py",
    "tests/integration/stages/",
    "tests/integration/probes/cpp_wrappers/test_cpp_wrappers.py",
    "tests/browser/",
    "tests/integration/repro/test_repro_scripts.py",
    "tests/unit/fingerprint/cuda/test_cuda_kernels.py",
    "tests/integration/recording/test_recorded_programs.py",
    "tests/integration/shadowing/test_shadow.py",
    "tests/integration/reduction/",
    "tests/integration/bisection/",
    "tests/gcu/backend/test_operators.py",
    "tests/unit/fingerprint/test_stats.py",
    "tests/integration/recording/",
    "tests/integration/",
    "tests/gcu/",
)


def shared_by(test: str) -> str:
    """What a test has in common with those that run in the same process."""
    file = test.partition("::")[0]
    if file in APART:
        return test
    return next((folder for folder in SHARING if file.startswith(folder)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling  # only here: the tests also run without xdist

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return shared_by(nodeid)

    return Scheduling(config, log)


@pytest.hookimpl(trylast=True)  # after the order was shuffled
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("PYTEST_XDIST_WORKER"):
        items.sort(key=lambda item: place_in_line(item.nodeid))


def place_in_line(test: str) -> int:
    return next((i for i, start in enumerate(LONGEST) if test.startswith(start)), len(LONGEST))
