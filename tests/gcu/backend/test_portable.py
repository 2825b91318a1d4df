"""What the header does where a compiler or a processor lacks something: the same, bit by bit."""

from __future__ import annotations

import pytest
import torch

from kernelscope.native.compiler import compiler


def f(bits: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    halves = bits.view(torch.float16)
    brains = bits.view(torch.bfloat16)
    return halves.float(), brains.float(), x.half(), x.bfloat16(), halves + 1, brains * 3, x.exp(), x.erf()


@pytest.mark.parametrize("flag", ["-DCHOREO_PORTABLE", "-DCHOREO_AS_HERE"])
def test_with_and_without_bit_cast_and_half_instructions(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """g++ before 11 has no __builtin_bit_cast; a processor may have no instructions for f16."""
    torch._dynamo.reset()
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int16)
    # Floats around every half, and around the middle between two.
    wide = bits.view(torch.float16).double()
    near = torch.cat([wide, (wide[1:] + wide[:-1]) / 2]).float()
    x = torch.cat([near, torch.nextafter(near, near.new_tensor(torch.inf)), torch.tensor([1e-40, 7e4, -7e4])])
    monkeypatch.setenv("CXX", f"{compiler()[0]} {flag}")
    assert flag in compiler()
    portable = torch.compile(f, backend="gcu")(bits, x)
    expected = f(bits, x)
    for number, (got, want) in enumerate(zip(portable, expected, strict=True)):
        if number < 6:
            torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
            assert torch.equal(got.signbit() | got.isnan(), want.signbit() | want.isnan())
        else:
            torch.testing.assert_close(got, want, equal_nan=True)
