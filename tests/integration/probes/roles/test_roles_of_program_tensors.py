"""What the program's own tensors were to a launch: written in place, shared, or written undeclared."""

from __future__ import annotations

import torch
from tests.integration.probes.roles.repeated_steps import bits, compiled, thrice, whole
from torch import Tensor

import kernelscope

# -- the program's own tensors ---------------------------------------------------------------------------


def mutated(x: Tensor, y: Tensor) -> Tensor:
    x.copy_(y * 2)
    return y + 1


def test_a_mutated_input() -> None:
    y = whole(8)
    seen: list[tuple[Tensor, Tensor]] = []

    def step() -> None:
        seen.append((torch.zeros(8), y))
        compiled(mutated)(*seen[-1])

    [call] = thrice(step).calls
    [i] = [i for i in call.modified_args if call.wrapper_names[i].startswith("arg")]
    assert call.pre_hashes[i] == bits(torch.zeros(8)), "its contents were there before"
    assert call.post_hashes[i] == bits(seen[0][0]) == bits(y * 2)


def clamped(x: Tensor) -> None:
    x.clamp_(min=-1e9)


def test_writing_the_same_values_is_still_an_output() -> None:
    x = whole(8)
    [call] = thrice(lambda: compiled(clamped)(x)).calls
    [i] = call.modified_args
    assert call.roles[i] in ("out", "inout")
    assert not call.changed_args
    assert call.pre_hashes[i] == call.post_hashes[i] == bits(x)
    assert call.log["outputs"] == [call.arg_names[i]]


def through_an_alias(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    return y * 2


def test_inputs_that_share_their_memory() -> None:
    results = []

    def step() -> None:
        base = whole(8)
        results.append(compiled(through_an_alias)(base[:6], base[2:]))

    run = thrice(step)
    expected = whole(8)
    expected[:6] += 1
    assert torch.equal(results[0], expected[2:] * 2)
    assert any(bits(expected[2:] * 2) in c.post_hashes.values() for c in run.calls)
    assert not run.findings, "the declared write explains the change of its alias"


def test_the_same_tensor_twice() -> None:
    x = whole(8)
    run = thrice(lambda: compiled(mutated)(x.clone(), x))
    assert not run.findings


# -- writes that nobody declared -------------------------------------------------------------------------


@torch.library.custom_op("kernelscope_roles::dishonest", mutates_args=())
def dishonest(x: Tensor) -> Tensor:
    x.add_(1)
    return x * 2


@dishonest.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def trusting(x: Tensor) -> Tensor:
    return dishonest(x @ x) + 1


def test_an_undeclared_write_is_a_finding() -> None:
    x = whole(8, 8)
    run = thrice(lambda: compiled(trusting)(x))
    call = next(c for c in run.calls if "dishonest" in c.kernel_name)
    assert call.roles == ("in", "out")
    assert call.changed_args == {0}
    assert call.modified_args == {0, 1}
    [finding] = run.findings
    assert (finding.kind, finding.call, finding.arg) == ("undeclared-write", call.index, "x")
    assert "dishonest" in finding.message


@torch.library.custom_op("kernelscope_roles::honest", mutates_args=("x",))
def honest(x: Tensor) -> None:
    x.add_(1)


def declaring(x: Tensor) -> Tensor:
    product = x @ x
    honest(product)
    return product


def test_a_declared_write_is_none() -> None:
    x = whole(8, 8)
    run = thrice(lambda: compiled(declaring)(x))
    call = next(c for c in run.calls if "honest" in c.kernel_name)
    assert call.roles == ("inout",)
    assert (call.pre_hashes, call.post_hashes) == ({0: bits(x @ x)}, {0: bits(x @ x + 1)})
    assert not run.findings


# -- results of fallbacks --------------------------------------------------------------------------------


def counted(x: Tensor) -> Tensor:
    return torch.nonzero(x)


def test_a_result_whose_shape_depends_on_the_data() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        function = torch.compile(counted, fullgraph=True)
        inputs = [torch.tensor([1, 0, 2]), torch.tensor([0, 0, 3]), torch.tensor([1, 1, 1])]
        with kernelscope.record(values="hash") as run:
            results = [function(x) for x in inputs]
    calls = [c for c in run.calls if c.kernel_name.startswith("aten.nonzero")]
    assert [c.arguments[-1].tensor.shape for c in calls] == [(2, 1), (1, 1), (3, 1)]
    assert [c.post_hashes[1] for c in calls] == [bits(r) for r in results]
