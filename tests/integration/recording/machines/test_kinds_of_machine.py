"""Machines that lack something: what works there works, and what does not is said in a sentence.

Most tests are one child process in such an environment, with as many lacks as do not hide each other.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import torch
from tests.support.other_environments import SOURCE, namespace, python
from tests.support.sample_runs import write_sample

import kernelscope
from kernelscope.fingerprint import fingerprint
from kernelscope.store.flight import recorder as flight
from kernelscope.trials.outcome import PASSED
from kernelscope.trials.settings import Settings
from kernelscope.trials.trial_processes import Workers, folder_to_compile_in

CHOREO = Path(__file__).parents[3] / "gcu" / "choreo" / "co" / "scalars_and_spans.co"
NO_HOME = {"HOME": "/dev/null/home", "XDG_CACHE_HOME": ""}
FOUR_GB = 4 << 30
# Where Python looks for a folder for temporary files, and where those of the tests are.
_TEMPORARY = ("/tmp", "/var/tmp", tempfile.gettempdir())

PROGRAM = """
import os, torch

def f(x):
    return torch.softmax(x, -1).sin() + 1

x = torch.randn(64, 64)
expected = f(x)
for backend in ("inductor", "gcu"):
    torch.testing.assert_close(torch.compile(f, backend=backend)(x), expected)
    torch.compiler.reset()
print(len(os.sched_getaffinity(0)), "core")
"""


def restrict() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    resource.setrlimit(resource.RLIMIT_AS, (FOUR_GB, FOUR_GB))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a space and letters that ASCII lacks."""
    folder = tmp_path_factory.mktemp("machine") / "mein Projekt – ö"
    folder.mkdir()
    (folder / "übung eins.py").write_text(PROGRAM, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def recorded(project: Path) -> subprocess.CompletedProcess[str]:
    """One core, 4 GB, no home, LC_ALL=C as Python itself deals with it, and names of all sorts."""
    words = ("-m", "kernelscope", "run", "--values", "hash", "--stages", "-o", "Lauf ä", "übung eins.py")
    return python(*words, cwd=project, environ={**NO_HOME, "LC_ALL": "C"}, before=restrict)


def test_one_core_little_memory_no_home_and_odd_names(
    project: Path, recorded: subprocess.CompletedProcess[str]
) -> None:
    assert recorded.returncode == 0, recorded.stderr
    assert recorded.stdout == "1 core\n"
    assert "Traceback" not in recorded.stderr
    assert "compiled for this process alone: the cache folder cannot be used" in recorded.stderr
    assert "gcu kernels are compiled again in each process" in recorded.stderr
    assert recorded.stderr.count("set XDG_CACHE_HOME") == 2  # each once
    assert "[Errno" not in recorded.stderr
    assert "once on this machine" not in recorded.stderr
    run = kernelscope.load(project / "Lauf ä.kscope")
    assert {call.kind for call in run} == {"cpp", "gcu"}
    assert all(call.pre_hashes and call.post_hashes for call in run)
    assert [finding.kind for finding in run.findings] == ["slow-values"]


READING = """
import importlib.util, os
from kernelscope.cli import main
with_parquet = importlib.util.find_spec("pyarrow") is not None
for words in (
    ["show"], ["show", "--call", "0"], ["ls"], ["stages"], ["report"], ["pack", "-o", "gepackt ü.zip"],
    ["unpack", "gepackt ü.zip", "-o", "ausgepackt ü"], ["show", "ausgepackt ü"],
    ["export", "--perfetto"], ["export", "--json"], ["export", "--dot"],
    ["query", "SELECT count(*) FROM calls"],
    *([["export", "--parquet", "-o", "Tabellen ü"]] if with_parquet else []),
):
    given = [os.fsdecode(word.encode()) for word in words]  # as a shell would hand them over
    print(">", words[0], main(given))
"""


def test_reading_in_the_c_locale(project: Path, recorded: subprocess.CompletedProcess[str]) -> None:
    """Without the help that Python gives in the C locale; nothing is read from a home either."""
    environ = {**NO_HOME, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    reader = project / "lesen.py"
    reader.write_text(READING, encoding="utf-8")
    del recorded
    done = python(reader, cwd=project, environ=environ)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith("> ")]
    assert len(told) >= 12
    assert all(line.endswith(" 0") for line in told), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert (project / "ausgepackt ü.kscope").is_dir()
    tried = python("-m", "kernelscope", "run", "--stages", "übung eins.py", cwd=project, environ=environ)
    assert "Traceback" not in tried.stderr
    if tried.returncode:  # up to torch 2.14 at least
        assert "cannot be loaded in this locale" in tried.stderr
        assert "set PYTHONUTF8=1 or LC_ALL=C.UTF-8" in tried.stderr


WITHOUT_A_COMPILER = """
import torch
from kernelscope.doctor.checks import compiler

x = torch.ones(64, 64)
(x @ x).relu()
try:
    torch.compile(lambda x: x.sin() + 1, backend="gcu")(x)
except Exception as error:
    print("gcu |", str(error).partition("Set TORCHDYNAMO")[0].replace("\\n", " "))
for result in compiler():
    print(result.health, "|", result.what, "|", result.found, "|", result.advice)
"""


def test_no_compiler(tmp_path: Path) -> None:
    """Eager operators are recorded, with the same hashes; each thing that cannot be done says why."""
    program = tmp_path / "program.py"
    program.write_text(WITHOUT_A_COMPILER)
    environ = {"PATH": "/nonexistent", "CXX": "/nonexistent/g++", "XDG_CACHE_HOME": str(tmp_path)}
    environ["TORCHINDUCTOR_VEC_ISA_OK"] = ""  # Inductor's check fails, too
    words = ("-m", "kernelscope", "run", "--values", "hash", "--ops", "all", "-o", "x", program)
    done = python(*words, cwd=tmp_path, environ=environ)
    assert done.returncode == 0, done.stderr
    said = dict(line.split(" | ", 1) for line in done.stdout.splitlines())
    assert "there is no C++ compiler" in said["gcu"]
    assert "install g++" in said["gcu"].lower()
    assert said["bad"].startswith("C++ compiler | CXX=/nonexistent/g++ is not a program")
    [line] = [line for line in done.stderr.splitlines() if line.startswith("kernelscope: values of CPU")]
    assert "slower: there is no C++ compiler" in line
    assert "install g++" in line
    run = kernelscope.load(tmp_path / "x.kscope")
    assert "slow-values" in [finding.kind for finding in run.findings]
    product = next(call for call in run if "mm" in call.kernel_name)
    assert set(product.pre_hashes.values()) == {fingerprint(torch.ones(64, 64), "hash").bits}


UNUSUAL_DISKS = f"""
import kernelscope, torch
from kernelscope.fingerprint.cpu.bits import LIBRARY
from kernelscope.gcu import load
print(repr(LIBRARY.unavailable()), LIBRARY.uncached())
print(load({str(CHOREO)!r}).names)
with kernelscope.record(ops="all", values="hash", path="x") as run:
    torch.ones(8).sin()
print(len(run), "calls")
"""


def test_a_cache_that_forbids_execution_and_no_shared_memory(tmp_path: Path) -> None:
    cache, temporary = tmp_path / "cache", tmp_path / "tmp with a space"
    for folder in (cache, temporary):
        folder.mkdir()
    mounts = (
        f"mount -t tmpfs -o noexec,mode=700 tmpfs '{cache}' && mount -t tmpfs -o ro,size=4k tmpfs /dev/shm"
    )
    environ = {"XDG_CACHE_HOME": str(cache), "TMPDIR": str(temporary)}
    done = python("-c", UNUSUAL_DISKS, cwd=tmp_path, environ=environ, under=namespace(mounts))
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert first.startswith("'' the cache folder cannot be used: nothing can be executed in")
    assert second.startswith("[")
    assert third.endswith("calls")
    assert "gcu kernels are compiled again in each process" in done.stderr


SEALED = """
from kernelscope.cli import main
from kernelscope.doctor.checks import folders
print(main(["show", "x"]), main(["bisect", "program.py"]))
print(*folders(), sep="\\n")
"""


def test_a_disk_that_is_sealed(tmp_path: Path) -> None:
    """Each folder for temporary files is, too; and the run was left by a crash, so that it must be copied."""
    (tmp_path / "program.py").write_text("import torch")
    (tmp_path / "x.kscope").mkdir()
    writer = write_sample(tmp_path / "open", close=False)
    for name in ("run.db", "run.db-wal", "flight"):
        shutil.copyfile(tmp_path / "open" / name, tmp_path / "x.kscope" / name)
    writer.close()
    sealed = [f"mount --bind '{path}' '{path}' && mount -o remount,ro,bind '{path}'" for path in _TEMPORARY]
    under = namespace(" && ".join([*sealed, f"cd '{tmp_path}'"]))
    told = python("-c", SEALED, cwd=tmp_path, environ={"TMPDIR": "/nowhere"}, under=under)
    assert told.returncode == 0, told.stderr
    show, bisect = told.stderr.splitlines()
    assert show.startswith("kernelscope: ")
    assert show.endswith("set TMPDIR to a folder with room for it")
    assert bisect == "kernelscope: kscope-runs/program-bisect-1 cannot be created: Read-only file system"
    assert told.stdout.startswith("2 2\n")
    assert "No usable temporary directory found" in told.stdout


WITHOUT_A_NAME = """
import os, tempfile
from kernelscope.doctor.checks import folders, machine
tempfile.gettempdir()  # chosen while it can be written to
os.setuid(54321)
for result in (*folders(), *machine()):
    print(result.health, "|", result.what, "|", result.found, "|", result.advice)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without an entry in /etc/passwd")
def test_doctor_of_a_user_without_a_home(tmp_path: Path) -> None:
    """As `docker run -u 54321`; in a folder that it cannot write to, with a space in TMPDIR, on one core."""
    temporary = tmp_path / "a space"
    temporary.mkdir()
    environ = {"TMPDIR": str(temporary), "XDG_CACHE_HOME": "", "LC_ALL": "C", "PYTHONUTF8": "0"}
    environ["PYTHONCOERCECLOCALE"] = "0"
    program = f"import os; os.environ.pop('HOME', None)\n{WITHOUT_A_NAME}"
    done = python("-c", program, cwd=tmp_path, environ=environ, before=restrict)
    assert done.returncode == 0, done.stderr
    said = {line.split(" | ")[1]: line.split(" | ") for line in done.stdout.splitlines()}
    assert said["folder for runs"][0] == "bad"
    assert said["TMPDIR"][0] == "bad"
    assert "without spaces" in said["TMPDIR"][3]
    cache = said["folder for kernelscope's compile cache"]
    assert cache[2] == "there is no home folder; set HOME or XDG_CACHE_HOME"
    assert cache[0] == "warn"
    assert ", 1 core, " in said["machine"][2]
    assert "PYTHONUTF8=1" in said["locale"][3]


def test_trials_on_one_core_in_a_folder_with_a_space(tmp_path: Path) -> None:
    """Inductor breaks its commands for the C++ compiler at spaces; the search must not blame the program."""
    home = tmp_path / "mein Projekt"
    home.mkdir()
    program = home / "program.py"
    number = time.time_ns() % 1_000_000  # a kernel that no cache has: it must be built here
    program.write_text(
        f"import torch\ntorch.compile(lambda x: (x.sin() + {number}).sum(0))(torch.ones(8, 8))\n"
    )
    job = {"words": [str(program)], "check": "exception", "what": ""}
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with Workers(job, home, timeout=300) as workers:
            assert workers.run(Settings()).kind == PASSED
    finally:
        os.sched_setaffinity(0, cores)
    assert folder_to_compile_in(tmp_path) == tmp_path / "caches"


ON_MUSL = """
import sys, sysconfig
sysconfig.get_config_vars()["SOABI"] = "cpython-311-x86_64-linux-musl"
from kernelscope.cli import main
print(main(["show", "x"]), main(["show", "x", "--call", "0"]))
print(main(["ls"]), main(["pack", "x", "-o", "x.zip"]))
from kernelscope.doctor.checks import versions
print(*(result.advice for result in versions()), sep="\\n")
print("torch" in sys.modules)
"""


def test_musl_where_torch_cannot_be_installed(tmp_path: Path) -> None:
    """Commands that read runs need no torch; doctor tells that there is none for this machine."""
    write_sample(tmp_path / "x.kscope")
    installed = tmp_path / "installed"
    installed.mkdir()
    for path in Path(torch.__file__).parents[1].iterdir():
        if not path.name.startswith(("torch", "functorch", "triton", "kernelscope", "__editable__")):
            (installed / path.name).symlink_to(path)
    paths = f"import sys; sys.path += [{str(SOURCE)!r}, {str(installed)!r}]\n"
    done = python("-I", "-S", "-c", paths + ON_MUSL, cwd=tmp_path, environ={})
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.count("0 0\n") == 2
    assert done.stdout.endswith("False\n")
    assert "torch does not support musl (Alpine); only commands that read runs work here" in done.stdout


def test_the_ring_where_a_disk_cannot_allocate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """musl returns the kernel's refusal, where glibc writes zeros: no page may be without a block."""

    def refused(file: int, at: int, size: int) -> None:
        raise OSError(95, os.strerror(95))

    monkeypatch.setattr(os, "posix_fallocate", refused)
    made = flight.Flight(tmp_path / "flight", 1, cells=1 << 10)
    found = (tmp_path / "flight").stat()
    made.close()
    assert found.st_size == flight.HEADER_BYTES + (1 << 10) * flight.CELL.size
    assert found.st_blocks * 512 >= found.st_size


@pytest.fixture(scope="module")
def eager_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("warned") / "eager.py"
    program.write_text(
        "import torch, warnings\n"
        "print(torch.ones(2).sin().shape)\n"
        "try:\n"
        "    warnings.warn('own')\n"
        "except UserWarning:\n"
        "    print('raised')\n",
        encoding="utf-8",
    )
    return program


def test_warnings_are_errors(eager_program: Path, tmp_path: Path) -> None:
    """Those of torch's compiler, which is loaded for the recording alone, do not end an eager program."""
    words = ("-m", "kernelscope", "run", "--ops", "all", str(eager_program))
    done = python(*words, cwd=tmp_path, environ={"PYTHONWARNINGS": "error"})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "torch.Size([2])\nraised\n"
    [run] = (tmp_path / "kscope-runs").iterdir()
    assert "aten.sin.default" in [call.kernel_name for call in kernelscope.load(run).calls]


def test_warnings_are_errors_under_shadow(eager_program: Path, tmp_path: Path) -> None:
    """The same of what shadow alone loads."""
    words = ("-m", "kernelscope", "shadow", str(eager_program))
    done = python(*words, cwd=tmp_path, environ={"PYTHONWARNINGS": "error"})
    assert done.returncode == 2, done.stderr  # inconclusive
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("torch.Size([2])\nraised\nInconclusive: no compiled kernel was launched.\n")
