"""A compiled function that raises where the uncompiled one does not is wrong, also if the program goes on."""

from __future__ import annotations

from contextlib import nullcontext
from unittest import mock

import pytest
import torch
from tests.integration.faults.planting import in_kernel
from torch._inductor import decomposition, lowering
from torch._subclasses.fake_tensor import UnsupportedOperatorException
from torch.utils.checkpoint import checkpoint

import kernelscope


@torch.library.custom_op("functions_that_raise::turned", mutates_args=())
def turned(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t() + 1


@turned.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape)  # wrong: its strides are others


def of_wrong_strides(x: torch.Tensor) -> torch.Tensor:
    return turned(x.sin()) * 2  # type: ignore[no-any-return]


def test_only_compiled_it_raises() -> None:
    torch._dynamo.reset()
    x = torch.randn(3, 4)
    with kernelscope.shadow() as result:
        torch.compile(lambda x: x.cos() + 1)(x)
        with pytest.raises(AssertionError):
            torch.compile(of_wrong_strides)(x)
    assert result.status == 1, str(result)
    assert result.culprit is not None
    assert result.culprit.verdict == "wrong-function"
    assert str(result).splitlines()[0].endswith("does: it raises AssertionError")
    named = "torch.ops.functions_that_raise.turned.default is not torch's: the sizes or strides of its result"
    assert named in str(result)
    assert "register_fake" in str(result)
    assert "in of_wrong_strides" in str(result).splitlines()[0]
    assert "and uncompiled it does not" in result.culprit.reason


@torch.library.custom_op("functions_that_raise::refused", mutates_args=())
def refused(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("not this one")


@refused.register_fake
def _of_refused(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_a_second_forward_pass_that_checkpointing_ends() -> None:
    torch._dynamo.reset()
    x = torch.randn(4, 4, requires_grad=True)
    with kernelscope.shadow(every=True) as result:
        compiled = torch.compile(lambda x: x.sin().cos() * 2)
        checkpoint(compiled, x, use_reentrant=False).sum().backward()  # type: ignore[union-attr]
    assert result.status == 0, str(result)
    assert result.counts.shares["functions"] == 1


def test_in_both_it_raises() -> None:
    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        torch.compile(lambda x: x.cos() + 1)(torch.randn(3, 4))
        with pytest.raises(ValueError, match="not this one"):
            torch.compile(lambda x: refused(x.sin()) * 2)(torch.randn(3, 4))
    assert not result.culprits, str(result)
    assert not result.failures, str(result)
    assert result.counts.regions == 2


@pytest.mark.parametrize("goes_on", ["caught", "in eager"])
def test_what_cannot_be_compiled_is_not_judged(goes_on: str) -> None:
    """The program goes on without it: what it computed is not what compiled code computes."""

    def fails(*_: object) -> None:
        raise NotImplementedError("not here")

    torch._dynamo.reset()
    is_caught = goes_on == "caught"
    with (
        mock.patch.dict(lowering.lowerings, {torch.ops.aten.erfc.default: fails}),
        torch._dynamo.config.patch(suppress_errors=not is_caught),
        kernelscope.shadow() as result,
    ):
        torch.compile(lambda x: x.cos() + 1)(torch.randn(4))
        with pytest.raises(Exception, match="not here") if is_caught else nullcontext():
            torch.compile(lambda x: torch.special.erfc(x) * 2)(torch.randn(4))
    assert result.status == 2, str(result)
    assert result.counts.shares["functions"] == 0.5
    reasons = [each.reason for each in result.unchecked]
    assert any("not be compiled" in each and "not here" in each for each in reasons), result.details()
    assert not result.failures, result.details()


def test_what_the_backend_refuses_is_the_reason() -> None:
    """Dynamo takes this for a graph break, whose name does not say what was refused."""

    def backend(*_: object) -> None:
        raise UnsupportedOperatorException(torch.ops.aten.erfc.default)

    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        torch.compile(lambda x: x.cos() + 1, backend=backend)(torch.randn(4))
    assert result.status == 2, str(result)
    assert "Backend compiler exception. Backend compiler `backend` failed with" in str(result)
    assert "aten.erfc.default" in str(result)


def test_the_kernel_that_raises_is_named() -> None:
    """An index that a wrong kernel computes is out of bounds, and Inductor's check of it ends the program."""

    def picked() -> None:
        rows = torch.arange(4).flip(0)
        with torch._inductor.config.patch({"cpp.simdlen": 1}):
            torch.compile(lambda x, rows: x[rows] * 2)(torch.randn(4, 3), rows)

    torch._dynamo.reset()
    wrong = in_kernel(r"(auto tmp\d+ = in_ptr\d\[[^;]*static_cast<int64_t>\(x\d\)\]);", r"\1 + 4;")
    with (
        wrong() as canary,
        kernelscope.shadow() as result,
        pytest.raises(RuntimeError, match="out of bounds"),
    ):
        picked()
    assert result.culprit is not None, str(result)
    assert result.culprit.verdict == "wrong-kernel"
    assert [result.culprit.kernel_name] == canary.kernels
    assert result.culprit.origin[0].function == "<lambda>"
    assert "is wrong: it raises RuntimeError" in str(result).splitlines()[0]
    assert "and uncompiled it does not" in result.culprit.reason


def test_what_only_eager_refuses_is_the_reason_why_it_is_not_judged() -> None:
    """torch converts the dtype of a product's inputs; the module is torch's own and has no function."""
    torch._dynamo.reset()
    model, x = torch.nn.Linear(1, 1).eval(), torch.randn(1, 1, dtype=torch.float16)
    with kernelscope.shadow() as result:
        torch.compile(model)(x)
    assert result.status == 2, str(result)
    assert (
        "functions could be judged: Linear: its graph cannot be run uncompiled: RuntimeError: mat1 and"
        in (result.problem)
    )
    assert "(aten.addmm.default" in result.problem


def test_the_operator_that_only_eager_refuses_is_named_with_its_line() -> None:
    def invites(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.binary_cross_entropy(x.sigmoid(), x)

    torch._dynamo.reset()
    with kernelscope.shadow() as result:
        torch.compile(invites, backend="aot_eager_decomp_partition")(torch.full((4,), 1.5))
    assert result.status == 2, str(result)
    line = invites.__code__.co_firstlineno + 1
    assert (
        "all elements of target should be between 0 and 1 (aten.binary_cross_entropy.default at "
        in result.problem
    )
    assert f"{__file__}:{line} in invites, and its decomposition does not raise)" in result.problem


def test_a_module_of_torchs_own_has_the_line_that_calls_it() -> None:
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.SiLU())
    wrong = {torch.ops.aten.silu.default: lambda x: x * torch.sigmoid(1.7 * x)}
    with (
        mock.patch.dict(decomposition.fast_random_decomps(), wrong),  # a copy of the other, made once
        mock.patch.dict(decomposition.decompositions, wrong),
        torch._inductor.config.patch(force_disable_caches=True),
        kernelscope.shadow() as result,
    ):
        torch.compile(model)(torch.randn(2, 4))
    assert result.culprit is not None
    assert any("of Sequential differs from eager" in note for note in result.notes), str(result)
