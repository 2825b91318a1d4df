"""A value that two launches write, as when a kernel copies it into a larger buffer: each is judged alone."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from kernelscope.invariance.batches import Selection
from kernelscope.invariance.flow import Code, Flow, Made
from kernelscope.invariance.following import Following
from kernelscope.invariance.judging import Judge

KEY = ("graph", 0, "product")


def _launch(follower: Following, name: str, tensor: torch.Tensor, storage: int) -> None:
    """It reads one storage, and makes the value in the next one."""
    point = SimpleNamespace(outputs=(), tensors=(0,))
    site = SimpleNamespace(args=(SimpleNamespace(role="in"),))
    launch = SimpleNamespace(point=point, storages=(SimpleNamespace(id=storage - 1),), site=site, flat=())
    made = [Made(KEY, True, tensor, tensor, storage, "out")]
    follower.take(launch, made, Code(name, "extern"), is_random=False)  # type: ignore[arg-type]


def test_the_launch_that_computes_it_is_named_and_not_the_one_that_copies_it() -> None:
    follower, flow = Following(), Flow(9)
    whole = torch.randn(9, 4)
    with follower.run(flow, is_whole=True):
        _launch(follower, "product", whole, 1)
        _launch(follower, "copy", whole.clone(), 2)
    selection = Selection("3 rows", (0, 1, 2), "size")
    with follower.run(Judge(flow, selection)):
        product = whole[:3] * (1 + 1e-6)
        _launch(follower, "product", product, 3)
        _launch(follower, "copy", product.clone(), 4)  # of what the judge has put right
    outcomes = {kernel.code.name: [each.status for each in kernel.outcomes] for kernel in flow.kernels}
    assert outcomes == {"product": ["variant"], "copy": ["same"]}


def test_a_copy_that_only_the_other_run_makes_is_compared_with_the_value() -> None:
    follower, flow = Following(), Flow(9)
    whole = torch.randn(9, 4)
    with follower.run(flow, is_whole=True):
        _launch(follower, "product", whole, 1)
    with follower.run(Judge(flow, Selection("3 rows", (0, 1, 2), "size"))):
        _launch(follower, "product", whole[:3].clone(), 3)
        _launch(follower, "copy", whole[:3] + 1, 4)
    assert [each.status for each in flow.kernels[0].outcomes] == ["same", "variant"]
