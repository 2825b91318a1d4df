"""Functions of gcu: how far from float64, the same wherever a number is, and vector code."""

from __future__ import annotations

import math
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from kernelscope.gcu import toolchain, torch_mathematics
from kernelscope.gcu.choreo.cpp.to_cpp import translate

ANY = (
    "exp",
    "exp2",
    "expm1",
    "sin",
    "cos",
    "tan",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "erf",
    "erfc",
    "sigmoid",
)
POSITIVE = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt")
WITHIN_ONE = ("asin", "acos", "atanh")
MOST = 2.0  # units in the last place


def all_of(x: torch.Tensor) -> list[torch.Tensor]:
    inside, positive = torch.sin(x) * 0.999, x.abs() + 1e-3
    found = [getattr(torch, name)(x) for name in ANY]
    found += [getattr(torch, name)(positive) for name in POSITIVE]
    return found + [getattr(torch, name)(inside) for name in WITHIN_ONE] + [torch.pow(positive, x)]


def units(found: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    size = exact.abs().clamp_min(torch.finfo(torch.float32).tiny)
    unit = torch.exp2(torch.floor(torch.log2(size))) * torch.finfo(torch.float32).eps
    return ((found.double() - exact) / unit).abs()


def exact_of(x: torch.Tensor) -> list[torch.Tensor]:
    """What is right for the float32 numbers that each function was given."""
    inside, positive = (torch.sin(x) * 0.999).double(), (x.abs() + 1e-3).double()
    exact = [getattr(torch, name)(x.double()) for name in ANY]
    exact += [getattr(torch, name)(positive) for name in POSITIVE]
    return exact + [getattr(torch, name)(inside) for name in WITHIN_ONE] + [torch.pow(positive, x.double())]


def test_at_most_two_units_in_the_last_place() -> None:
    torch.manual_seed(0)
    base = torch.randn(20_000) * 3
    x = torch.cat([base, base[:4093]])  # the same numbers at another place of a vector, and in a rest
    compiled = torch.compile(all_of, backend="gcu")(x)
    names = (*ANY, *POSITIVE, *WITHIN_ONE, "pow")
    for name, got, exact in zip(names, compiled, exact_of(x), strict=True):
        assert torch.equal(got[:4093], got[20_000:]), name
        if name not in WITHIN_ONE:  # their argument is computed, with a rounding of its own
            assert float(units(got, exact).max()) <= MOST, name


@pytest.mark.parametrize("limits", [(0.0, 1.0), (0.9, 1.0), (1.0, 4.2)])
def test_erf(limits: tuple[float, float]) -> None:
    x = torch.linspace(*limits, 200_001)
    got = torch.compile(torch.erf, backend="gcu")(x)
    assert float(units(got, torch.erf(x.double())).max()) <= MOST
    special = torch.tensor([math.inf, -math.inf, math.nan, -0.0, 5e-324, 100.0])
    assert torch.equal(
        torch.compile(torch.erf, backend="gcu")(special).nan_to_num(9), torch.erf(special).nan_to_num(9)
    )


def test_gelu() -> None:
    """At least as near as eager, which loses what is far below 0 when it adds erf to 1."""
    x = torch.linspace(-8, 8, 200_001)
    got = torch.compile(torch.nn.functional.gelu, backend="gcu")(x)
    exact = x.double() * torch.special.erfc(-x.double() * math.sqrt(0.5)) / 2
    apart = units(got, exact)
    assert float(apart[x > -1].max()) <= 3.0
    assert float(apart[x > -5].max()) <= 1100
    assert float((got - exact).abs()[x < -3].max()) <= 3e-8
    special = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, 1e-45, 3e38, -3e38, 100.0, -100.0])
    right = torch.tensor([math.inf, math.nan, math.nan, 0.0, -0.0, 0.0, 3e38, -0.0, 100.0, -0.0])
    found = torch.compile(torch.nn.functional.gelu, backend="gcu")(special)
    assert torch.equal(found.nan_to_num(9), right.nan_to_num(9))
    assert torch.equal(found.signbit()[found == 0], right.signbit()[found == 0])


PROGRAM = """__co__ auto f({0} [{2}] x) {{
  {0} [{2}] out;
  foreach i in out.span {{
    {1};
  }}
  return out;
}}
"""


@pytest.mark.skipif(torch_mathematics.library() is None, reason="this torch does not offer SLEEF")
@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize(
    ("element", "body"),
    [
        ("f32", "out.at(i) = __sin(x.at(i))"),
        ("f64", "out.at(i) = __sin(x.at(i))"),
        ("f32", "f32 y = __lgamma(__exp(x.at(i))); out.at(i) = (x.at(i) > 20.0f ? x.at(i) : y)"),
        ("f64", "out.at(i) = __hypot(x.at(i), 3.0)"),
        ("bf16", "out.at(i) = __cast_f32(__cast_bf16(__hypot(__cast_f32(x.at(i)), 3.0f)))"),
        ("bf16", "out.at(i) = __cast_f32(__cast_bf16(__atan(__cast_f32(x.at(i)))))"),
        ("f16", "out.at(i) = __cast_f32(__cast_f16(__lgamma(__cast_f32(x.at(i)))))"),
    ],
)
def test_loops_become_calls_with_vectors(element: str, body: str, tmp_path: Path) -> None:
    code = code_of(element, body, tmp_path)
    of_a_vector, of_a_block = r"_ZGV\wN\d+v+_choreo_(?!f16_)\w+", r"vms\w+@plt"
    assert re.search(rf"\b(call|bl|jmp)\w*\s.*<({of_a_vector}|{of_a_block})>", code), code[:2000]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instructions are those of x86_64")
@pytest.mark.skipif(torch_mathematics.library() is None, reason="which vectors there are is not known")
@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("count", [4096, 512])
def test_halves_are_converted_by_instructions_in_vectors(count: int, tmp_path: Path) -> None:
    body = "out.at(i) = __cast_f32(__cast_f16(__cast_f32(x.at(i)) + 1.0f))"
    code = code_of("f16", body, tmp_path, count)
    loop = code[code.index("f_run") if "f_run" in code else code.index("<choreo_f>") :]
    for direction, instruction in (("widen", "vcvtph2ps"), ("narrow", "vcvtps2ph")):
        called = re.search(rf"\bcall\s.*<_ZGV[de]N\d+v_choreo_f16_{direction}>", loop)
        assert bool(called) == (count == 512), loop[:2000]
        assert called or re.search(rf"\b{instruction}\b.*%[yz]mm", loop), loop[:2000]


POLYNOMIALS = ("exp2", "expm1", "log1p", "sinh", "cosh", "asinh", "acosh", "atanh")


@pytest.mark.skipif(torch_mathematics.library() is None, reason="which vectors there are is not known")
@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("element", ["f32", "f16"])
def test_loops_over_polynomials_become_vector_code(element: str, tmp_path: Path) -> None:
    sums = " + ".join(f"__{name}(__cast_f32(x.at(i)))" for name in POLYNOMIALS)
    code = code_of(element, f"out.at(i) = __cast_f32(__cast_{element}({sums}))", tmp_path)
    called = [f"{name}f" for name in POLYNOMIALS]
    assert not re.search(rf"<({'|'.join(called)})@plt>", code)
    assert re.search(r"\bvfn?m(add|sub)\d+ps\b|\bf(mla|mls|mad|msb)\s+[vz]\d", code)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instructions are those of x86_64")
@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("function", ["max", "min"])
def test_a_limit_that_is_a_constant_takes_one_comparison(function: str, tmp_path: Path) -> None:
    code = code_of("f32", f"out.at(i) = __{function}(x.at(i), 6.0f)", tmp_path)
    body = code[code.index("f_run>:") if "f_run>:" in code else code.index("choreo_f>:") :]
    compared = re.findall(r"\bv?cmp\w*ps\b", body)  # none where the compiler has vmaxps for it
    stored = re.findall(r"\bv?mov[ua]ps\s+%[xyz]mm\d+(?:\{%k\d\})?,\s*-?\w*\(", body)
    assert stored
    assert len(compared) <= len(stored)


def test_limits_of_polynomials() -> None:
    """Where results are infinite, subnormal, -0 or not a number."""
    limits = [
        0.0,
        1.0,
        5e-41,
        1e-45,
        3e-8,
        0.99999994,
        1.0000001,
        17.0,
        88.72283,
        88.7229,
        89.41598,
        89.5,
        103.9,
    ]
    limits += [126.0, 128.0, 149.5, 1e18, 1e19, 3.4e38, math.inf]
    x = torch.tensor([*limits, *(-each for each in limits), math.nan])

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [getattr(torch, name)(x) for name in POLYNOMIALS]

    for name, got, exact in zip(POLYNOMIALS, torch.compile(f, backend="gcu")(x), f(x.double()), strict=True):
        rounded = exact.float()
        finite = rounded.isfinite()
        assert float(units(got[finite], exact[finite]).max()) <= MOST, name
        assert torch.equal(got[~finite].nan_to_num(9), rounded[~finite].nan_to_num(9)), name
        assert torch.equal(got.signbit()[got == 0], rounded.signbit()[got == 0]), name


def test_a_number_that_is_stored_is_rounded_once(tmp_path: Path) -> None:
    text = PROGRAM.format("bf16", "out.at(i) = __cast_f32(__cast_bf16(__cast_f32(x.at(i)) * 3.0f))", 4096)
    cpp = translate(text, "f.co").cpp
    assert "rounded_bf16" not in cpp[cpp.index("f_run") :]


def code_of(element: str, body: str, tmp_path: Path, count: int = 4096) -> str:
    """What the processor runs."""
    source = tmp_path / "f.cpp"
    in_blocks = torch_mathematics.has_blocks()
    source.write_text(translate(PROGRAM.format(element, body, count), "f.co", in_blocks=in_blocks).cpp)
    built = toolchain.build(source, tmp_path / "f", beside_torch=True)
    words = ["objdump", "-d", "--no-show-raw-insn", str(built.library)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout
