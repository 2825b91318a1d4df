"""For pytest: assertions that name the kernel, a fixture that records, and --kernelscope for failing tests.

Example:
    from kernelscope.pytest_plugin import assert_deterministic

    def test_step():
        assert_deterministic(step, batch, runs=5)
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .model.run import Run

_MARK = "kernelscope(**options): options of kernelscope.record() for this test"
_MOST_FINDINGS = 5


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


@pytest.fixture
def kernelscope_run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """The kernels that the test launches, with hashes; the marker `kernelscope` takes other options."""
    from . import record

    with record(**_options_of(request.node)) as run:
        yield run


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kernelscope")
    group.addoption(
        "--kernelscope", action="store_true", help="record each test, and keep the runs of failing ones"
    )
    group.addoption("--kernelscope-dir", metavar="DIR", help="where to keep them; default: ./kscope-runs")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARK)
    if config.getoption("--kernelscope"):
        home = config.getoption("--kernelscope-dir") or config.invocation_params.dir / "kscope-runs"
        config.pluginmanager.register(_RecordedTests(Path(home).absolute()), "kernelscope-recorded-tests")


def _options_of(item: Any) -> dict[str, Any]:
    marker = item.get_closest_marker("kernelscope")
    return {"values": "hash"} | (dict(marker.kwargs) if marker is not None else {})


class _RecordedTests:
    """Records each test on disk, and its fixtures before and after it; what passes is removed."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._path: Path | None = None  # of the part of a test that runs now
        self._problem = ""

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, None]:
        yield from self._recorded(item)

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        yield from self._recorded(item)

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, None]:
        yield from self._recorded(item)

    def _recorded(self, item: pytest.Item) -> Generator[None, Any, None]:
        self._path, self._problem = None, ""
        with ExitStack() as recorded:
            try:
                recording = self._recording(item)
                recorded.callback(recording.close)
                recording.open()
            except Exception as error:  # a disk that is full must not fail a test
                self._problem = f"this test was not recorded: {error}"
            yield

    def _recording(self, item: pytest.Item) -> Any:
        from kernelscope.config import Config, strings
        from kernelscope.recording import Recording
        from kernelscope.store import folder

        given = {"stages": True} | _options_of(item)
        texts = {name: strings(given[name]) for name in ("kernel", "kind") if name in given}
        config = Config(**given | texts)
        self._path = folder.create_next(self._home, item.name)
        return Recording(config, self._path, says_why_empty=True)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Generator[None, Any, None]:
        outcome = yield
        report = outcome.get_result()
        path, self._path = self._path, None
        if (
            report.failed
            and (path is not None or self._problem)
            and (report.when == "call" or _has_calls(path))
        ):
            report.sections.append(("kernelscope", self._problem or _told(path)))
            if path is not None:
                noted = ("kernelscope_run", str(path))
                report.user_properties.append(noted)
                item.user_properties.append(noted)  # what junitxml writes comes from here
        elif path is not None:
            shutil.rmtree(path, ignore_errors=True)


def _has_calls(path: Path | None) -> bool:
    """Whether a fixture launched something: most that fail have nothing to do with torch."""
    from . import load

    if path is None:
        return False
    try:
        with closing(load(path)) as run:
            return len(run) > 0
    except Exception:  # what cannot be read is kept, and `_told` says why
        return True


def _told(path: Path | None) -> str:
    """What the run of a failing test shows, and how to see more."""
    from kernelscope.text.amounts import counted

    from . import load

    if path is None or not path.is_dir():
        return "no run was written"
    try:
        run = load(path)
        findings = [f"  {finding}" for finding in run.findings[:_MOST_FINDINGS]]
        last = f"; the last one is {run.calls[-1].kernel_name}" if len(run) else ""
        lines = [f"{counted(len(run), 'kernel call')} recorded{last}", *findings]
        run.close()
    except Exception as error:
        lines = [f"the run cannot be read: {error}"]
    return "\n".join([*lines, f"see it: kernelscope show {path}"])
