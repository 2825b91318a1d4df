"""Fingerprints inside of modes, threads and transforms: the same numbers, and nothing sees the work."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support.mode_logs import FunctionLog, OperatorLog
from tests.unit.fingerprint.references import bits, norm
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from kernelscope.fingerprint import (
    Fingerprinter,
    NotFingerprintable,
    why_not,
)

pytestmark = pytest.mark.usefixtures("_torch_operations_only")

# --- the contexts it is called in ---


def everything(tensor: torch.Tensor, taken: Fingerprinter | None = None) -> object:
    taken = taken or Fingerprinter(["bits", "norm", lambda t: t.abs().sum()])
    return taken.read(taken.take([tensor])[0])


def test_no_mode_sees_anything() -> None:
    x = torch.randn(9, 5).t()
    want = everything(x)
    with OperatorLog() as spy, FunctionLog() as functions:
        assert everything(x) == want
        assert why_not(x) is None
        assert spy.seen == []
        assert functions.seen == []
        x + 1
        assert spy.seen
        assert functions.seen
    assert _get_current_dispatch_mode_stack() == []


def test_inside_torch_dispatch_with_another_mode_around() -> None:
    x, found = torch.randn(7), []
    want = everything(x)

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found.append(everything(x))
            return func(*args, **(kwargs or {}))

    with OperatorLog() as outer, Recorder():
        x + 1
    assert found == [want]
    assert outer.seen == ["aten.add.Tensor"]


CONTEXTS = {
    "inference": lambda: torch.inference_mode(),
    "fake": lambda: FakeTensorMode(),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default-device": lambda: torch.device("meta"),
    "no-grad": lambda: torch.no_grad(),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_the_same_numbers_in_any_context(name: str) -> None:
    x = torch.randn(11, 3, requires_grad=True)
    want = everything(x)
    begun_outside = Fingerprinter(["bits", "norm", lambda t: t.abs().sum()])
    assert everything(x, begun_outside) == want
    with CONTEXTS[name]():
        grad = torch.is_grad_enabled()
        assert everything(x, begun_outside) == want
        begun_inside = Fingerprinter(["bits", "norm", lambda t: t.abs().sum()])
        assert everything(x, begun_inside) == want
        assert torch.is_grad_enabled() is grad
    assert everything(x, begun_inside) == everything(x, begun_outside) == want

    assert not begun_inside.failures(0)
    assert torch.is_grad_enabled()


def test_inference_tensors_and_subclasses_outside_inference_mode() -> None:
    with torch.inference_mode():
        x = torch.randn(6, 5)
    assert x.is_inference()
    assert (bits(x.t()), norm(x.t())) == (bits(x.t().contiguous()), norm(x.t().contiguous()))
    assert everything(x) == everything(x.clone())

    class Named(torch.Tensor):
        pass

    plain = torch.randn(5)
    assert everything(plain.as_subclass(Named)) == everything(plain) == everything(torch.nn.Parameter(plain))


def test_inside_vmap_a_plain_tensor_works_and_a_batched_one_is_refused() -> None:
    x, found = torch.randn(4), []

    def body(row: torch.Tensor) -> torch.Tensor:
        found.append((bits(x), why_not(row)))
        return row

    torch.vmap(body)(torch.randn(2, 3))
    assert found[0][0] == bits(x)
    assert "functorch" in str(found[0][1])


def test_the_tensor_is_left_alone() -> None:
    x = torch.randn(8, requires_grad=True)
    version = x._version
    everything(x)
    assert (x._version, x.grad_fn, x.requires_grad) == (version, None, True)
    lazy = torch._lazy_clone(x.detach())
    everything(lazy)
    assert torch._C._is_cow_tensor(lazy)


# --- what cannot be fingerprinted ---


def freed() -> torch.Tensor:
    tensor = torch.ones(8)[2:]
    tensor.untyped_storage().resize_(0)
    return tensor


def wrapper() -> torch.Tensor:
    from torch.testing._internal.two_tensor import TwoTensor

    return TwoTensor(torch.ones(2), torch.ones(2))


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.ones(2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: torch.ones(2, device="meta"), "meta"),
        (fake, "fake"),
        (lambda: torch.eye(3).to_sparse(), "sparse_coo"),
        (lambda: torch.eye(3).to_sparse_csr(), "sparse_csr"),
        (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "quantized"),
        (lambda: torch.ones(3).to_mkldnn(), "mkldnn"),
        (wrapper, "TwoTensor"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
        (lambda: torch._to_functional_tensor(torch.ones(2)), "functionalization"),
        (lambda: torch._efficientzerotensor(3), "zero tensor"),
        (freed, "freed"),
        (lambda: [1.0, 2.0], "a list, not a tensor"),
        (lambda: None, "not a tensor"),
    ],
)
def test_why_not(make: Any, reason: str) -> None:
    tensor = make()
    said = why_not(tensor)
    assert said is not None
    assert reason in said
    taken = Fingerprinter()
    with pytest.raises(NotFingerprintable, match=reason):
        taken.take([torch.ones(2), tensor])
    assert taken.take([torch.ones(2)]) == [0], "a refused batch leaves no slots behind"
