"""Programs written by hand, one per feature, that check themselves, also under sanitizers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelscope.gcu import load, toolchain
from kernelscope.gcu.choreo import translate
from kernelscope.gcu.choreo.cpp.to_cpp import Translation
from kernelscope.gcu.command_line import run_main

PROGRAMS = sorted((Path(__file__).parent / "co").glob("*.co"))
SANITIZED = (
    "-std=c++17",
    "-O0",
    "-fopenmp",
    "-fwrapv",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
)


def together(elide: bool) -> str:
    """All programs as one, which is one compilation instead of many."""
    parts = ['#define CHOREO_HOST\n#include "choreo.h"\n#include <cstdio>\n']
    for number, path in enumerate(PROGRAMS):
        cpp = translate(path.read_text(), str(path), elide=elide).cpp
        parts.append(f"namespace p{number} {{\n#define main run\n{cpp}\n#undef main\n}}\n")
    calls = " ".join(f"p{number}::run();" for number in range(len(PROGRAMS)))
    return "\n".join([*parts, f"int main() {{ {calls} return 0; }}\n"])


@pytest.mark.parametrize(
    ("elide", "flags"),
    [
        pytest.param(True, toolchain.FLAGS, id="plain"),
        pytest.param(False, SANITIZED, id="sanitized"),
        pytest.param(True, SANITIZED, id="sanitized-elided", marks=pytest.mark.slow),
        pytest.param(False, toolchain.FLAGS, id="not-elided", marks=pytest.mark.slow),
        pytest.param(True, (*toolchain.FLAGS, "-DCHOREO_PORTABLE"), id="portable", marks=pytest.mark.slow),
    ],
)
def test_every_program_checks_itself(
    elide: bool, flags: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_main(Translation(together(elide), ()), flags) == 0
    assert capfd.readouterr().out.count("ok\n") == len(PROGRAMS) >= 6


def test_a_failing_self_check_is_noticed(capfd: pytest.CaptureFixture[str]) -> None:
    source = PROGRAMS[0].read_text().replace("10 * i", "11 * i")
    assert source != PROGRAMS[0].read_text()
    assert run_main(translate(source), toolchain.FLAGS) != 0
    assert "choreo_assert" in capfd.readouterr().err


def test_calling_from_python(tmp_path: Path) -> None:
    file = tmp_path / "scale.co"
    file.write_text(
        "__co__ auto scale(f32 [M, N] x, float k) {\n  f32 [M, N] out;\n  foreach {i, j} in [M, N] {\n"
        '    assert(x.at(i, j) < 100.0f, "too large");\n'
        "    out.at(i, j) = x.at(i, j) * k;\n  }\n  return out;\n}\n"
    )
    program = load(file)
    x = torch.randn(3, 5)
    result = program.call("scale", x, 2.0)
    assert result is not None
    assert torch.equal(result, x * 2)
    with pytest.raises(RuntimeError, match=r"scale:4:5: too large"):
        program.call("scale", x + 1000, 2.0)
    assert program.call("scale", x, 1.0) is not None  # the failure is over
    with pytest.raises(TypeError, match=r"x must be torch\.float32"):
        program.call("scale", x.double(), 2.0)
    with pytest.raises(ValueError, match="must have rank 2"):
        program.call("scale", x[0], 2.0)
    with pytest.raises(AttributeError, match="no function 'nothing'"):
        program.call("nothing")


def command(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kernelscope.gcu", *args], capture_output=True, text=True, check=False
    )


PLACES = """__co__ auto f(s32 [4] x, int at, int step) {
  s32 [4] out;
  foreach i in [4] { out.at(i) = -7 / 2 + 10 * ((i - 7) / 2 + 3); }
  with i in [4] {
    foreach i(0::step) { out.at(i) = 1; }
  }
  tile = dma.copy x.subspan(2).at(at) => local;
  out.at(at * 3) = tile.data.at(1);
  return out;
}

__co__ auto g(u8 [4] x) {
  u8 [1] out;
  x.at(0) = 9;
  println(x.at(0));
  out.at(0) = 1;
  return out;
}
"""


def test_what_only_the_running_program_can_tell(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "places.co"
    path.write_text(PLACES)
    program = load(path)
    x = torch.arange(4, dtype=torch.int32)
    # Division is C's, also of what is known beforehand: -7 / 2 is -3, as (i - 7) / 2 is for 0 and 1.
    assert program.call("f", x, 1, 9).tolist() == [1, -3, 7, 3]  # type: ignore[union-attr]
    for at, step, said in (
        (2, 1, "f:7:35: an index is out of bounds for 2 tiles"),
        (-1, 1, "f:7:35: an index is out of bounds for 2 tiles"),
        (0, 0, "f:5:13: the step must be above 0, not step"),
    ):
        with pytest.raises(RuntimeError, match=said):
            program.call("f", x, at, step)
    path.write_text(PLACES.replace("subspan(2)", "subspan(1)").replace("data.at(1)", "data.at(0)"))
    with pytest.raises(RuntimeError, match="f:8:13: an index is out of bounds for 4 elements"):
        load(path).call("f", x, 3, 1)
    byte = torch.zeros(4, dtype=torch.uint8)
    assert program.call("g", byte).tolist() == [1]  # type: ignore[union-attr]
    assert byte.tolist() == [9, 0, 0, 0]
    assert "9\n" in capfd.readouterr().out


def test_command_line(tmp_path: Path) -> None:
    file = tmp_path / "add.co"
    file.write_text(
        "__co__ auto add(f32[4] x,f32[4] y){f32[4] out;"
        "foreach i in [4]{out.at(i)=x.at(i)+y.at(i);}return out;}"
    )
    assert "functions: add" in command("check", str(file)).stdout
    assert command("fmt", "--write", str(file)).returncode == 0
    assert "    out.at(i) = x.at(i) + y.at(i);\n" in file.read_text()
    built = command("build", str(file))
    assert built.returncode == 0
    assert all((tmp_path / f"add.{kind}").exists() for kind in ("cpp", "o", "so"))
    assert "tensor([0., 2., 4., 6.])" in command("run", str(file)).stdout
    file.write_text(file.read_text().replace(" + ", " - "))
    assert "tensor([0., 0., 0., 0.])" in command("run", str(file)).stdout


def test_command_line_errors(tmp_path: Path) -> None:
    file = tmp_path / "bad.co"
    file.write_text("__co__ void f(f32 [4] x) {\n  x.at(4) = 1.0f;\n}\n")
    bad = command("check", str(file))
    assert bad.returncode == 1
    assert f"{file}:2:8: error: index 4 is out of bounds" in bad.stderr
    none = command("check", str(tmp_path / "none.co"))
    assert none.returncode == 2
    assert none.stderr == f"kernelscope: cannot read {tmp_path}/none.co: No such file or directory\n"
    missing = command("build", "--target", "choreo", str(PROGRAMS[0]))
    assert missing.returncode == 1
    assert "no `choreo` compiler on the PATH" in missing.stderr
