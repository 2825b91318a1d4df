"""A short selection of tests on every supported torch, and on each Python that is installed.

    make test-matrix

`make` fills an environment for each pair of Python and torch. The selection touches every probe,
fingerprints, runs on disk, stages, shadowing, gcu and bisection, and compiles all our Triton kernels for
Hopper, which needs no GPU.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/versions.md"
PINNED = re.findall(r"^torch==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[0]
TORCHES = ("2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")

# Each part is a process of its own: tests/interpreted decides for a whole process what Triton does.
KERNELS = "Triton kernels"
SELECTION = {
    "compiled": [
        "tests/tiny/recording/test_record_smoke.py",
        "tests/tiny/project/test_supported.py",
        "tests/unit/fingerprint/test_fingerprint_bits.py",
        "tests/unit/fingerprint/test_fingerprint_norm.py",
        "tests/unit/fingerprint/test_fingerprint_contexts.py",
        "tests/unit/fingerprint/test_fingerprint_log.py",
        "tests/unit/fingerprint/test_fingerprint_page.py",
        "tests/unit/store/test_runs_on_disk.py",
        "tests/unit/store/test_unwritable_disks.py",
        "tests/integration/probes/test_moved_targets.py",  # every probe
        "tests/integration/recording/test_recording_to_disk.py",
        "tests/integration/fingerprint/test_stats.py",
        "tests/integration/probes/test_calls_equal_launches.py::test_one_call_for_each_launch_in_order[mlp-hash]",
        "tests/integration/probes/test_calls_equal_launches.py::test_ops_all_adds_eager_operators_and_repeats_no_launch[mlp]",
        "tests/integration/probes/test_steps_and_phases.py::test_optimizer_steps_and_phases",
        "tests/integration/probes/test_compiling_while_recording.py::test_graph_breaks",
        "tests/integration/stages/test_stages.py::test_every_kernel_leads_to_its_nodes_and_lines[mlp]",
        "tests/integration/stages/test_stages.py::test_stages_of_a_graph",
        "tests/integration/stages/test_stages_and_caches.py::test_warm_caches",
        "tests/integration/shadowing/test_shadow.py::test_the_result_says_what_and_where",
        "tests/integration/shadowing/test_shadow.py::test_check_correctness_forward_and_backward",
        "tests/integration/shadowing/test_shadow.py::test_a_pass_that_copies_over_what_it_reads_is_named",
        "tests/integration/recording/test_profiler.py::test_a_schedule",
        "tests/integration/debug_mode/test_compiled_listings.py::test_compiled_listing",
        "tests/integration/values/test_values.py::test_saved_files_are_what_the_kernels_had",
        "tests/integration/probes/cpp_wrappers/test_cpp_wrappers.py::test_odd_arguments_with_cpp_wrapper",
        "tests/integration/probes/test_collectives.py",
        "tests/integration/bisection/test_bisect_command.py::test_a_script_is_bisected",
        "tests/gcu/recorded/test_recording.py",
        "tests/gcu/backend/test_models.py::test_training_and_evaluation[mlp]",
        "tests/gcu/backend/test_numbers_in_operators.py::test_limits_that_do_not_fit_do_what_this_torch_does",
    ],
    "interpreted": [
        "tests/interpreted/user_triton/test_compiled_user_triton.py",
        "tests/interpreted/fingerprint/test_cuda_engine.py",
        "tests/interpreted/fingerprint/test_scan.py",
    ],
    KERNELS: ["tests/unit/fingerprint/cuda/test_cuda_kernels.py"],
}


@dataclass
class Result:
    """What became of the tests of one part."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def add(self, other: Result) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


@dataclass
class Row:
    python: str
    torch: str
    triton: str = "—"
    problem: str = ""
    all: Result = field(default_factory=Result)
    kernels: Result = field(default_factory=Result)

    def cells(self) -> list[str]:
        if self.problem:
            return [self.python, self.torch, self.triton, self.problem, "—", "—", "—"]
        done, count = self.kernels.passed, self.kernels.passed + len(self.kernels.failed)
        counts = [str(self.all.passed), self._skipped(), str(len(self.all.failed))]
        return [self.python, self.torch, self.triton, *counts, f"{done} of {count}"]

    def _skipped(self) -> str:
        """How many, and why: a row stands for itself, because others may be from another day."""
        reasons = self.all.skipped.most_common()
        why = [reason if len(reasons) == 1 else f"{count} × {reason}" for reason, count in reasons]
        return f"{self.all.skipped.total()} ({', '.join(why)})" if why else "0"


def pythons(default: str) -> Iterator[tuple[str, str]]:
    """Release and path of the other interpreters: on PATH, or installed by pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for release in PYTHONS:
        names = [
            shutil.which(f"python{release}") or "",
            *pyenv.glob(f"versions/{release}*/bin/python{release}"),
        ]
        found = [str(name) for name in names if name and release_of(str(name)) == release]
        if release != default and found:
            yield release, found[-1]


def release_of(python: str) -> str:
    """ "3.12", or nothing where it does not start: a shim of pyenv may be a dead end."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def environment(python: str, release: str, torch: str, default: str, install: bool) -> Path:
    """The environment of this pair; it is `.venv` for what the Makefile takes by itself."""
    own = [] if (release, torch) == (default, PINNED) else [f"TORCH={torch}"]
    folder = ROOT / (f".venvs/py{release}-torch{torch}" if own else ".venv")
    if install:
        subprocess.run(["make", "environment", f"PYTHON={python}", *own], cwd=ROOT, check=True)
    if not (folder / "bin/python").exists():
        raise FileNotFoundError(folder)
    return folder / "bin/python"


def tried(python: Path, tests: list[str]) -> Result:
    """Runs them in a process of their own; a process that dies counts as a failed test."""
    with tempfile.TemporaryDirectory(prefix="kernelscope-matrix.") as folder:
        report = Path(folder) / "report.xml"
        words = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *tests]
        places = {"TMPDIR": "", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
        given = os.environ | {name: str(Path(folder) / place) for name, place in places.items()}
        given["PYTHONPATH"] = str(ROOT / "src")
        status = subprocess.run(words, cwd=ROOT, env=given, check=False).returncode
        if not report.exists():
            return Result(failed=[f"pytest ended with status {status}"])
        return read(ElementTree.parse(report))


def read(report: ElementTree.ElementTree) -> Result:
    result = Result()
    for case in report.iter("testcase"):
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            result.failed.append(f"{case.get('classname')}.{case.get('name')}")
        elif skip is not None:
            result.skipped[skip.get("message") or ""] += 1
        else:
            result.passed += 1
    return result


def version_of(python: Path, package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "—"


def measured(python: str, release: str, torch: str, default: str, install: bool) -> Row:
    row = Row(release, torch)
    try:
        inside = environment(python, release, torch, default, install)
    except (subprocess.CalledProcessError, FileNotFoundError):
        row.problem = "cannot be installed here"
        return row
    if (inside_it := release_of(str(inside))) != release:
        row.problem = f"{inside.parent.parent.name} is of Python {inside_it}"
        return row
    row.torch, row.triton = version_of(inside, "torch"), version_of(inside, "triton")
    for part, tests in SELECTION.items():
        print(f"\n=== Python {release}, torch {row.torch}: {part}", flush=True)
        result = tried(inside, tests)
        row.all.add(result)
        if part == KERNELS:
            row.kernels = result
    return row


HEAD = ["Python", "torch", "triton", "passed", "skipped", "failed", KERNELS]


def table(rows: list[list[str]]) -> str:
    lines = [HEAD, ["---"] * len(HEAD), *rows]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{text}\n\n{platform.machine()}, {os.cpu_count()} cores."


def versions(row: list[str]) -> tuple[str, str]:
    """Of Python, and of torch without what says how it was built: 2.13.0+cpu is 2.13.0."""
    return row[0], row[1].partition("+")[0]


def with_older(rows: list[list[str]], text: str) -> list[list[str]]:
    """These, and those of a table that are about other supported versions, in order."""
    older = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| 3.")]
    found = {versions(row): row for row in [*older, *rows]}
    return sorted(
        (row for (python, torch), row in found.items() if python in PYTHONS and torch in TORCHES),
        key=lambda row: [[int(n) for n in part.split(".")] for part in versions(row)],
    )


def write_docs(page: Path, rows: list[list[str]], machine: str) -> None:
    """As the benchmarks do; theirs needs torch. Each kind of machine has a table of its own."""
    between = re.compile(rf"(<!-- matrix {machine} -->\n)(.*?)(<!-- end -->)", re.DOTALL)
    written, count = between.subn(
        lambda found: f"{found[1]}{table(with_older(rows, found[2]))}\n{found[3]}", page.read_text()
    )
    if count != 1:
        sys.exit(
            f"{page.name} has no place for the table: put <!-- matrix {machine} --> and <!-- end --> there"
        )
    page.write_text(written)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable, help="the interpreter for every torch")
    parser.add_argument("--torch", action="append", help="only this version (may be repeated)")
    parser.add_argument("--jobs", type=int, default=1, help="how many are tested at the same time")
    parser.add_argument("--no-install", action="store_true", help="take the environments as they are")
    parser.add_argument(
        "--write-docs",
        action="store_true",
        help=f"put the rows into {PAGE.relative_to(ROOT)}; those of other versions stay",
    )
    options = parser.parse_args()
    default = release_of(options.python)
    pairs = [(options.python, default, torch) for torch in options.torch or TORCHES]
    if not options.torch:
        pairs += [(python, release, PINNED) for release, python in pythons(default)]
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda pair: measured(*pair, default, not options.no_install), pairs))
    cells = [row.cells() for row in rows]
    print(f"\n{table(cells)}")
    for row in rows:
        print(
            "\n".join(f"failed on Python {row.python}, torch {row.torch}: {name}" for name in row.all.failed)
        )
    if options.write_docs:
        write_docs(PAGE, cells, platform.machine())
    return int(any(row.problem or row.all.failed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
