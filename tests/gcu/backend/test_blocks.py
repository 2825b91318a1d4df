"""Loops over blocks of numbers, and tiles that are transposed: the same results as element by element."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.gcu.looking import compile_and_look

from kernelscope.gcu import toolchain, torch_mathematics
from kernelscope.gcu.choreo.cpp.to_cpp import translate
from kernelscope.gcu.choreo.syntax.errors import ChoreoError
from kernelscope.gcu.execution.program import Program

PROGRAM = """__co__ auto f(f32 [n] x, bf16 [n] y, f64 [n] z) {
  f32 [n] out;
  mutable f32 most = -1.0f;
  foreach i in out.span {
    u8 above = x.at(i) > 0.0f;
    f32 v = __sin(x.at(i) * 2.0f);
    f32 choreo_v_4 = v * v;
    f32 w = above != 0 ? __tanh(choreo_v_4 + __cos(__cast_f32(y.at(i)))) : __log(__abs(v) + 1.0f);
    out.at(i) = __cast_f32(__sin(z.at(i))) + __atan(w) * 0.5f + __atan(3) + v;
  }
  foreach i in out.span {
    most = __max(most, __cos(x.at(i)));
  }
  out.at(0) = most;
  return out;
}
"""


def built(folder: Path, in_blocks: bool, beside_torch: bool) -> Program:
    folder.mkdir()
    source = folder / "f.cpp"
    translation = translate(PROGRAM, "f.co", in_blocks=in_blocks)
    assert ("_block(" in translation.cpp) == in_blocks
    source.write_text(translation.cpp)
    return Program(translation, toolchain.build(source, folder / "f", beside_torch=beside_torch).library)


@pytest.mark.parametrize("beside_torch", [False, True])
def test_blocks_give_what_single_numbers_give(tmp_path: Path, beside_torch: bool) -> None:
    programs = [built(tmp_path / str(blocks), blocks, beside_torch) for blocks in (False, True)]
    torch.manual_seed(0)
    for count in (1, 17, 2048, 2049, 5000):
        x, y, z = torch.randn(count), torch.randn(count).bfloat16(), torch.randn(count).double()
        single, blocks = (program.call("f", x, y, z) for program in programs)
        assert single is not None
        assert blocks is not None
        torch.testing.assert_close(blocks, single, rtol=1e-5, atol=1e-5, equal_nan=True)
        if beside_torch:  # there each is one function, however it is called
            assert torch.equal(blocks[:1], single[:1])


def test_a_maximum_into_what_is_not_mutable_is_refused() -> None:
    with pytest.raises(ChoreoError, match="`most` is not a mutable scalar"):
        translate(PROGRAM.replace("mutable ", ""), "f.co")


EAGERS = ("sin", "cos", "tan", "asin", "acos", "atan", "log2", "log10", "tanh", "erfc")


@pytest.mark.skipif(not torch_mathematics.has_blocks(), reason="this torch has no MKL")
def test_functions_that_eager_has_from_mkl_are_eagers_bit_by_bit() -> None:
    torch.manual_seed(0)
    bits = torch.randint(-(2**31), 2**31 - 1, (5000,), dtype=torch.int64).to(torch.int32)
    x = torch.cat([torch.randn(5003), bits.view(torch.float32), torch.tensor([0.0, -0.0, 1.0, -1.0])])

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [getattr(torch, name)(x) for name in EAGERS]

    compiled, look = compile_and_look(f)
    for name, got, expected in zip(EAGERS, compiled(x), f(x), strict=True):
        same = (got.view(torch.int32) == expected.view(torch.int32)) | (got.isnan() & expected.isnan())
        assert same.all(), (name, x[~same][:5])
    assert not look.fallbacks


@pytest.mark.skipif(not torch_mathematics.has_blocks(), reason="this torch has no MKL")
@pytest.mark.parametrize("function", [torch.exp, torch.log])
def test_exp_and_log_are_eagers_where_a_kernel_does_nothing_else(
    function: Callable[..., torch.Tensor],
) -> None:
    torch.manual_seed(0)
    x = torch.cat([torch.randn(5003) * 40, torch.tensor([0.0, -0.0, 1e-40, float("inf"), -float("inf")])])
    got, expected = torch.compile(function, backend="gcu")(x), function(x)
    assert torch.equal(got.nan_to_num(9), expected.nan_to_num(9))


LONG = """__co__ auto f(f32 [{0}] x, bf16 [{0}] y) {{
  f32 [{0}] out;
  foreach i in out.span {{
    out.at(i) = x.at(i) * 2.0f + __cast_f32(y.at(i));
  }}
  return out;
}}
"""


@pytest.mark.parametrize(("count", "asks"), [(4096, True), (4097, False), (512, False)])
def test_a_long_loop_asks_for_memory_ahead(count: int, asks: bool, tmp_path: Path) -> None:
    source = tmp_path / "f.cpp"
    translation = translate(LONG.format(count), "f.co")
    assert ("choreo::will_write(out" in translation.cpp) == asks
    assert translation.cpp.count("choreo::will_read(") == 2 * asks
    source.write_text(translation.cpp)
    program = Program(translation, toolchain.build(source, tmp_path / "f").library)
    x, y = torch.randn(count), torch.randn(count).bfloat16()
    torch.testing.assert_close(program.call("f", x, y), x * 2 + y)


HALVES = """__co__ auto f(f16 [{0}] x, f16 [{0}] y, f32 [{0}] z) {{
  f16 [{0}] out;
  foreach i in out.span {{
    out.at(i) = x.at(i) * z.at(i) + y.at(i);
  }}
  foreach i in out.span {{
    out.at(i) = __to<f16>(out.at(i) * 2.0f) - x.at(i);
  }}
  foreach i in y.span {{
    z.at(i) = out.at(i) < 0.0f ? y.at(i) : z.at(i);
    y.at(i) = 3.0f;
  }}
  return out;
}}
"""


@pytest.mark.parametrize(("count", "converts"), [(4096, True), (4097, True), (1290, True), (512, False)])
def test_a_long_loop_converts_half_precision_by_stretches(count: int, converts: bool, tmp_path: Path) -> None:
    """Of each array once, before or after its loop; what is only written is not read."""
    source = tmp_path / "f.cpp"
    translation = translate(HALVES.format(count), "f.co")
    assert translation.cpp.count("choreo::widen_stretch(") == 6 * converts
    assert translation.cpp.count("choreo::narrow_stretch(") == 3 * converts
    source.write_text(translation.cpp)
    program = Program(translation, toolchain.build(source, tmp_path / "f").library)
    torch.manual_seed(0)
    x, y = (torch.randn(count) * 300).half(), (torch.randn(count) / 1000).half()
    x[:4] = torch.tensor([float("nan"), float("inf"), 6e-8, 65504.0])
    z = torch.randn(count)
    first = torch.addcmul(y.double(), x.double(), z.double()).half()
    expected = ((first.float() * 2).half().float() - x.float()).half()
    chosen = torch.where(expected < 0, y.float(), z)
    got = program.call("f", x, y, z)
    torch.testing.assert_close(got, expected, rtol=2e-3, atol=1e-3, equal_nan=True)
    clear = (got < 0) == (expected < 0)
    assert torch.equal(z[clear], chosen[clear])
    assert torch.equal(y, torch.full_like(y, 3.0))


TRANSPOSED = {
    "matrix": (lambda x: x.t() + 1, (96, 128)),
    "batch": (lambda x: x.permute(0, 2, 1) * 2, (4, 72, 40)),
    "last to first": (lambda x: (x.permute(2, 0, 1) * 3).contiguous(), (16, 24, 32)),
    "channels": (lambda x: x.permute(0, 3, 1, 2).contiguous() + 1, (2, 16, 16, 8)),
    "odd": (lambda x: x.t().contiguous() + 1, (33, 17)),
    "with itself": (lambda x: x.t() + x, (64, 64)),
    "repeated": (lambda x: x.t().unsqueeze(0).expand(3, 32, 64).contiguous() + 1, (64, 32)),
    "a part": (lambda x: x[:32].t().contiguous() + 1, (64, 64)),
    "two results": (lambda x: (x.t().contiguous() + 1, (x.t() * 2).contiguous()), (64, 32)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_transposed_reads(dtype: torch.dtype) -> None:
    def everything(*given: torch.Tensor) -> list[object]:
        return [program(x) for (program, _), x in zip(TRANSPOSED.values(), given, strict=True)]

    given = [(torch.randn(shape) * 100).to(dtype) for _, shape in TRANSPOSED.values()]
    compiled, look = compile_and_look(everything)
    for name, got, expected in zip(TRANSPOSED, compiled(*given), everything(*given), strict=True):
        for mine, theirs in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, expected)), strict=True):
            assert torch.equal(mine, theirs), name
            assert mine.stride() == theirs.stride(), name
    assert not look.fallbacks
    assert "dma.transp" in look.dsl
