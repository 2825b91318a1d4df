"""The compiler of `make test` gives a result back only when all that went into it is the same."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

INSTALL = Path(__file__).parents[2] / "support" / "compile_once" / "install.sh"


class Compiler:
    def __init__(self, folder: Path) -> None:
        if shutil.which("g++") is None:
            pytest.skip("there is no g++")
        subprocess.run(["sh", str(INSTALL), str(folder)], check=True)
        self._log = folder / "store" / "log"
        self._path = f"{folder / 'bin'}:{os.environ['PATH']}"

    def __call__(self, *words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PATH": self._path} | variables
        return subprocess.run(["g++", *map(str, words)], env=environment, capture_output=True, text=True)

    def last(self) -> str:
        """What became of the last call."""
        return self._log.read_text().splitlines()[-1].rpartition(" ms ")[0].rstrip("0123456789 ")


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    return Compiler(tmp_path_factory.mktemp("compiler"))


def write(folder: Path, text: str, header: str = "") -> Path:
    """A source of its own text, and a header that was there before."""
    folder.mkdir(exist_ok=True)
    if header:
        (folder / "number.h").write_text(header)
        make_older(folder / "number.h")
    (folder / "source.cpp").write_text(f"// {folder.parent.name}\n{text}\n")
    return folder / "source.cpp"


def make_older(path: Path) -> None:
    os.utime(path, (1_600_000_000, 1_600_000_000))


def value(library: Path) -> int:
    return ctypes.CDLL(str(library)).value()  # type: ignore[no-any-return]


TEXT = 'extern "C" int value() { return VALUE; }'
USING = '#include <number.h>\nextern "C" int value() { return NUMBER; }'


def test_the_same_text_in_another_folder_is_built_once(compiler: Compiler, tmp_path: Path) -> None:
    for name, became in (("a", "built"), ("b", "kept")):
        source = write(tmp_path / name, TEXT)
        done = compiler("-shared", "-fPIC", "-g", "-DVALUE=3", source, "-o", source.with_suffix(".so"))
        assert (done.returncode, done.stderr) == (0, "")
        assert compiler.last() == became
        assert value(source.with_suffix(".so")) == 3
        assert os.access(source.with_suffix(".so"), os.X_OK)


def test_a_library_that_needs_others_belongs_to_no_folder(compiler: Compiler, tmp_path: Path) -> None:
    """Into one that needs symbols with versions, gold writes the path of its output."""
    text = '#include <string>\nextern "C" int value() { return std::to_string(12345).find(VALUE); }'
    for name, became in (("a", "built"), ("b", "kept")):
        library = write(tmp_path / name, text).with_suffix(".so")
        done = compiler("-shared", "-fPIC", "-DVALUE='4'", library.with_suffix(".cpp"), "-o", library)
        assert (done.returncode, done.stderr, compiler.last()) == (0, "", became)
        assert value(library) == 3
        assert str(tmp_path).encode() not in library.read_bytes()


def test_another_flag_or_variable_is_another_build(compiler: Compiler, tmp_path: Path) -> None:
    source = write(tmp_path / "a", TEXT)
    for i, word in enumerate(("-DVALUE=1", "-DVALUE=2", "-DVALUE=2 ")):
        compiler("-shared", "-fPIC", word, source, "-o", tmp_path / f"{i}.so")
        assert compiler.last() == "built"
    compiler("-shared", "-fPIC", "-DVALUE=2", source, "-o", tmp_path / "x.so", CPATH=str(tmp_path))
    assert compiler.last() == "built"
    assert [value(tmp_path / f"{i}.so") for i in range(3)] == [1, 2, 2]


def test_another_header_is_another_build(compiler: Compiler, tmp_path: Path) -> None:
    folders = [tmp_path / "early", tmp_path / "late"]
    for folder in folders:
        folder.mkdir()
    source = write(tmp_path / "a", USING)
    words = ["-shared", "-fPIC", *(f"-I{folder}" for folder in folders), source, "-o"]

    def build(name: str, became: str) -> int:
        assert compiler(*words, tmp_path / name).returncode == 0
        assert compiler.last() == became
        return value(tmp_path / name)

    (folders[1] / "number.h").write_text("#define NUMBER 5")
    make_older(folders[1] / "number.h")
    assert build("0.so", "built") == 5
    assert build("1.so", "kept") == 5
    (folders[1] / "number.h").write_text("#define NUMBER 6")  # of the same size
    assert build("2.so", "not kept") == 6  # so new that it may have changed meanwhile
    make_older(folders[1])
    (folders[0] / "number.h").write_text("#define NUMBER 7")  # hides the other one
    assert build("3.so", "not kept") == 7


def test_a_header_beside_the_source_belongs_to_it(compiler: Compiler, tmp_path: Path) -> None:
    text = USING.replace("<number.h>", '"other.h"')
    for name, number in (("a", 1), ("b", 2)):
        source = write(tmp_path / name, text, f"#define NUMBER {number}")
        (tmp_path / name / "other.h").write_text('#include "number.h"')
        make_older(tmp_path / name / "other.h")
        for i, became in enumerate(("built here", "kept")):
            (tmp_path / f"{name}{i}").mkdir()
            library = tmp_path / f"{name}{i}" / "library.so"
            compiler("-shared", "-fPIC", source, "-o", library)
            assert (value(library), compiler.last()) == (number, became)


def test_a_result_that_names_its_folder_stays_there(compiler: Compiler, tmp_path: Path) -> None:
    text = 'extern "C" int value() { return 9; } extern "C" const char* file() { return __FILE__; }'
    for name in ("a", "b"):
        source = write(tmp_path / name, text)
        compiler("-shared", "-fPIC", source, "-o", source.with_suffix(".so"))
        assert compiler.last() == "built here"
        assert str(source).encode() in source.with_suffix(".so").read_bytes()


def test_a_failure_and_a_warning_are_passed_on(compiler: Compiler, tmp_path: Path) -> None:
    broken = write(tmp_path / "broken", "int value() { return nothing; }")
    for _ in range(2):
        done = compiler("-c", broken, "-o", tmp_path / "broken.o")
        assert (done.returncode, compiler.last()) == (1, "failed")
        assert f"{broken}:2:22: error" in done.stderr
    assert not (tmp_path / "broken.o").exists()
    for name, became in (("c", "built"), ("d", "kept")):
        source = write(tmp_path / name, "int value() { int unused; return 1; }")
        done = compiler("-c", "-Wall", source, "-o", tmp_path / f"{name}.o")
        assert (done.returncode, compiler.last()) == (0, became)
        assert f"{source}:2:19: warning: unused variable" in done.stderr


def test_what_tells_the_time_or_has_no_target_is_not_its_business(compiler: Compiler, tmp_path: Path) -> None:
    source = write(tmp_path / "a", "const char* now = __TIME__;")
    before = compiler("-shared", "-fPIC", source, "-o", tmp_path / "a.so"), compiler("--version")
    assert [done.returncode for done in before] == [0, 0]
    assert "Free Software" in before[1].stdout


def test_a_library_is_linked_by_the_faster_linker_where_there_is_one(
    compiler: Compiler, tmp_path: Path
) -> None:
    source = write(tmp_path / "a", TEXT)
    words = ["-shared", "-fPIC", "-DVALUE=4", "-Wl,--version", source, "-o", tmp_path / "a.so"]
    assert "GNU gold" not in compiler(*words).stdout  # it asks for something of its own linker
    words.remove("-Wl,--version")
    compiler(*words)
    assert value(tmp_path / "a.so") == 4
    said = subprocess.run(["readelf", "-p", ".note.gnu.gold-version", tmp_path / "a.so"], capture_output=True)
    assert (b"gold" in said.stdout) == (shutil.which("ld.gold") is not None)
