"""Faults in values that have no size of an error: NaN, infinities, signs of zeros, integers that wrap, booleans."""

# ruff: noqa: E501  # one fault, one line
from __future__ import annotations

import torch

from .corpus import X, calling
from .planting import Fault, in_kernel

ZEROS = torch.tensor([0.0, -0.0, 1.5, -2.0, 0.0, -0.0]).repeat(4)
POLES = torch.tensor([2.0, -torch.inf, torch.inf, torch.nan, -0.0, 0.0]).repeat(4)
SMALL = torch.arange(-128, 128, dtype=torch.int8)
LARGE = torch.arange(24) + 2**60
NARROW = torch.tensor([300.0, 2.0, -300.0, 0.5]).repeat(4).half()


def root(x: torch.Tensor) -> torch.Tensor:
    return x.sqrt() + 1


def overflow(x: torch.Tensor) -> torch.Tensor:
    """Eager overflows in half precision, float64 and a kernel do not."""
    return ((x * x) * (x * x)) / (x * x * x)


KINDS = [
    Fault("-inf for NaN", "kind-of-value", calling(lambda x: x.log() * 2, X), in_kernel(r"std::log\((\w+)\)", r"std::log(std::fmax(\1, 0.0f))"), "mul"),
    Fault("NaN for inf", "kind-of-value", calling(lambda x: x.exp() - 1, POLES), in_kernel(r"std::exp\((\w+)\)", r"(std::exp(\1) * (std::isinf(\1) ? NAN : 1.0f))"), "sub"),
    Fault("inf for -inf", "kind-of-value", calling(lambda x: x.reciprocal() + 1, POLES), in_kernel(r"(\w+) / (\w+);", r"\1 / (\2 + 0.0f);"), "add"),
    Fault("a number for NaN", "kind-of-value", calling(root, X), in_kernel(r"std::sqrt\((\w+)\)", r"std::sqrt(std::abs(\1))"), "add"),
    Fault("0 for NaN", "kind-of-value", calling(lambda x: x * torch.inf, POLES), in_kernel(r"float\((\w+) \* (\w+)\)", r"(\1 == 0 ? 0.0f : \1 * \2)"), "mul"),
    Fault("neither eager's overflow nor the number", "kind-of-value", calling(overflow, NARROW), in_kernel(r"(out_ptr0\[[^;]*\] = )(\w+);", r"\1std::isfinite(float(\2)) && std::abs(float(\2)) > 100 ? decltype(\2)(7) : \2;"), "div"),
    Fault("a sum that does not wrap", "kind-of-value", calling(lambda x: x + 1 > x, SMALL), in_kernel(r"int8_t\((\w+ \+ \w+)\)", r"(\1)"), "gt"),
    Fault("an average that does not wrap", "kind-of-value", calling(lambda x: (x + 100) // 2, SMALL), in_kernel(r"int8_t\((\w+ \+ \w+)\);", r"int(\1);"), "div"),
    Fault("a product in float64", "kind-of-value", calling(lambda x: x * 3 + 1, LARGE), in_kernel(r"int64_t\((\w+) \* (\w+)\)", r"int64_t(double(\1) * double(\2))"), "add"),
    Fault("a boolean the other way", "kind-of-value", calling(lambda x: x.isnan() | (x > 1), POLES), in_kernel(r"(\w+) \| (\w+)", r"\1 & \2"), "bitwise_or"),
]  # fmt: skip
# Scripts of `repro` do not compare signs of zeros, so these are for shadow alone.
SIGNS_OF_ZEROS = [
    Fault("lost by a negation", "signed-zero", calling(lambda x: -x, ZEROS), in_kernel(r"decltype\((\w+)\)\(-\1\)", r"(0.0f - \1)"), "neg"),
    Fault("copysign by a comparison", "signed-zero", calling(torch.copysign, X.flatten()[:24].abs() * 0, ZEROS), in_kernel(r"std::copysign\((\w+), (\w+)\)", r"(\2 < 0 ? -\1 : \1)"), "copysign"),
    Fault("lost by a product", "signed-zero", calling(lambda x, y: x * y, ZEROS, -ZEROS.abs() - 1), in_kernel(r"float\((\w+) \* (\w+)\)", r"(\1 * \2 + 0.0f)"), "mul"),
]  # fmt: skip
