"""`check` and `build` say the same, at the line of the program; `fmt` keeps macros."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
import torch

from kernelscope.gcu import command_line, load
from kernelscope.gcu.choreo import ChoreoError, parse, show, translate

WRONG_KERNEL = """__cok__ {
__co_device__ extern "C" void kernel(int* a, int n) {
  for (int i = 0; i < n; ++i) a[i] = bb[i];
}
}
__co__ void f(s32 [4] x) {
  call kernel(x, 4);
}
"""
WRONG_HOST = "__co__ void f(s32 [4] x) {\n}\nint main() {\n  return nothing_known;\n}\n"
WRONG_CALL = "__cok__ {\nvoid kernel(float* a) {}\n}\n__co__ void f(s32 [4] x) {\n  call kernel(x);\n}\n"


@pytest.mark.parametrize(("source", "line"), [(WRONG_KERNEL, 3), (WRONG_HOST, 4), (WRONG_CALL, 5)])
def test_a_cpp_error_is_shown_at_its_line(
    source: str, line: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.co"
    file.write_text(source)
    said = []
    for action in ("check", "build"):
        given = Namespace(action=action, file=str(file), no_elide=False, target="cpu")
        assert command_line.main(given) == 1
        said.append(capsys.readouterr().err)
    for text in said:
        assert f"{file}:{line}:" in text


def test_formatting_keeps_functions_of_the_preprocessor() -> None:
    macro = "#define N 4\n\n__co__ void f(f32 [N] x) {\n  x.at( 0 )=1.0f;\n}\n"
    plain = "__co__ void g(f32 [4] x) {\n  x.at( 0 )=1.0f;\n}\n"
    text = show(parse(macro + plain, as_written=True))
    assert "f32 [N] x) {\n  x.at( 0 )=1.0f;" in text
    assert "__co__ void g(f32 [4] x) {\n  x.at(0) = 1.0f;" in text
    assert show(parse(text, as_written=True)) == text


def test_macros_of_a_header_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "sizes.h").write_text('#pragma once\n#include "deeper.h"\n#define N (HALF * 2)\n')
    (tmp_path / "deeper.h").write_text("#define HALF 3\n")
    file = str(tmp_path / "a.co")
    source = '#include "sizes.h"\n__co__ void f(f32 [N] x) { x.at(5) = 1.0f; }\n'
    assert translate(source, file).functions[0].parameters[0].dims == (6,)
    with pytest.raises(ChoreoError, match="index 6 is out of bounds for 6 elements"):
        translate(source.replace("at(5)", "at(N)"), file)


def test_a_named_number_keeps_its_value(tmp_path: Path) -> None:
    file = tmp_path / "kept.co"
    file.write_text("__co__ int f(s32 [2] x) {\n  v = x.at(0);\n  x.at(0) = 9;\n  return v;\n}\n")
    result = load(file).call("f", torch.tensor([4, 5], dtype=torch.int32))
    assert result is not None
    assert result.item() == 4
