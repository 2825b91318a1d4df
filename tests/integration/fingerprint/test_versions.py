"""Fingerprinting each version once gives the hashes of fingerprinting everything."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import kernelscope
from kernelscope.fingerprint import fingerprint
from kernelscope.fingerprint.fingerprinter import Fingerprinter
from kernelscope.model.run import Run


class Mixed(nn.Module):
    """Norms, products, a cat into slices, reused buffers, an accumulating scatter, a mutated buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 16)
        self.norm = nn.LayerNorm(32)
        self.up = nn.Linear(32, 48)
        self.down = nn.Linear(48, 16)
        self.register_buffer("seen", torch.zeros(16))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        wide = self.norm(torch.cat([x, x.sin()], -1))
        x = x + self.down(F.gelu(self.up(wide)))
        self.seen.add_(x.detach().mean(0))
        return x.softmax(-1)


@pytest.fixture(scope="module")
def step() -> Callable[[], None]:
    torch.manual_seed(0)
    model = Mixed()
    compiled = torch.compile(model)
    tokens = torch.tensor([1, 2, 2, 3, 5, 5])

    def step() -> None:
        model.zero_grad()
        model.seen.zero_()
        compiled(tokens).square().sum().backward()

    step()
    return step


def hashes(run: Run) -> list[tuple[str, dict[int, object], dict[int, object]]]:
    return [(c.kernel_name, c.pre_hashes, c.post_hashes) for c in run.calls]


def test_a_conjugate_is_no_version_of_what_it_views() -> None:
    function = torch.compile(lambda z, w: z * w + z.conj())
    z, w = (torch.randn(8, dtype=torch.complex64) for _ in range(2))
    function(z, w)
    with kernelscope.record(values="hash") as once:
        for _ in range(3):
            function(z, w)
    with kernelscope.record(values="hash", verify="reread") as always:
        for _ in range(3):
            function(z, w)
    assert hashes(once) == hashes(always)
    plain, conjugate = fingerprint(z).bits, fingerprint(z.conj()).bits
    seen = {bits for call in once.calls for bits in (call.pre_hashes or {}).values()}
    assert plain != conjugate
    assert {plain, conjugate} <= seen


def test_once_equals_always(step: Callable[[], None]) -> None:
    with kernelscope.record(values="hash") as once:
        step()
    with kernelscope.record(values="hash", verify="reread") as always:
        step()
    assert len(once.calls) > 10
    assert hashes(once) == hashes(always)
    assert not once.findings
    assert not always.findings


def test_fewer_bytes_are_read(step: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    take = Fingerprinter.take_known

    def counted(self: Fingerprinter, tensors: list[torch.Tensor]) -> list[int]:
        read.append(len(tensors))
        return take(self, tensors)

    monkeypatch.setattr(Fingerprinter, "take_known", counted)
    with kernelscope.record(values="hash"):
        step()
    once = sum(read)
    read.clear()
    with kernelscope.record(values="hash", verify="reread"):
        step()
    assert once < 0.7 * sum(read)


@pytest.mark.parametrize("kernel", [(), "*"], ids=["planned", "looked-at"])  # a filter rules plans out
def test_a_write_between_graphs_is_seen(kernel: str | tuple[()]) -> None:
    weight = torch.randn(8, 8)

    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ weight).relu()

    x = torch.randn(2, 8)
    f(x)
    with kernelscope.record(values="hash", kernel=kernel) as run:
        f(x)
        weight.data.add_(1)  # behind autograd's back: no version counter moves
        f(x)
    first, second = (c for c in run.calls if c.kernel_name == "extern_kernels.mm")
    place = first.arg_names.index("mat2")
    assert first.pre_hashes[place] != second.pre_hashes[place]


def test_a_custom_operator_is_not_trusted() -> None:
    @torch.library.custom_op("kernelscope_versions::sly", mutates_args=())
    def sly(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    @sly.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return sly(y) + y @ y

    with kernelscope.record(values="hash") as run:
        f(torch.randn(8, 8))
    assert [finding.kind for finding in run.findings] == ["undeclared-write"]
    [sly_call] = run.select(kernel="kernelscope_versions.*")
    [after] = run.select(kernel="extern_kernels.*mm")
    assert sly_call.index < after.index
    changed = sly_call.post_hashes[0]
    assert changed != sly_call.pre_hashes[0]
    assert changed in after.pre_hashes.values(), "who reads it next gets the changed value"


def test_two_pieces_of_one_storage() -> None:
    @torch.compile
    def f(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a @ a, b @ b

    base = torch.randn(2, 4, 4)
    with kernelscope.record(values="hash") as run:
        f(*base)
    first, second = run.calls
    assert first.pre_hashes[0] == fingerprint(base[0]).bits
    assert second.pre_hashes[0] == fingerprint(base[1]).bits


HIDDEN: dict[str, torch.Tensor] = {}


@pytest.mark.parametrize("verify", ["", "reread"])
def test_a_write_behind_the_graphs_back(verify: str) -> None:
    @torch.library.custom_op(f"kernelscope_versions::hidden{len(verify)}", mutates_args=())
    def hidden(x: torch.Tensor) -> torch.Tensor:
        HIDDEN["p"].add_(1)
        return x + 1

    @hidden.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    @torch.compile
    def f(p: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return p @ p, hidden(x) @ p

    p = HIDDEN["p"] = torch.zeros(4, 4)
    with kernelscope.record(values="hash", verify=verify) as run:
        f(p, torch.ones(4, 4))
    first, last = run.select(kernel="extern_kernels.mm")
    [finding] = run.findings
    assert (finding.kind, finding.call, finding.arg) == ("unowned-write", last.index, last.arg_names[1])
    assert f"since call {first.index}," in finding.message
    assert first.pre_hashes[1] == fingerprint(torch.zeros(4, 4)).bits
    assert last.pre_hashes[1] == fingerprint(torch.ones(4, 4)).bits


def test_a_hidden_write_of_a_call_that_is_filtered_out() -> None:
    @torch.library.custom_op("kernelscope_versions::filtered", mutates_args=())
    def filtered(x: torch.Tensor) -> torch.Tensor:
        HIDDEN["p"].add_(1)
        return x + 1

    @filtered.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    @torch.compile
    def f(p: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return p @ p, filtered(x) @ p

    p = HIDDEN["p"] = torch.zeros(4, 4)
    with kernelscope.record(values="hash", kernel="extern_kernels.*mm") as run:
        f(p, torch.ones(4, 4))
    first, last = run.calls
    assert first.pre_hashes[1] == fingerprint(torch.zeros(4, 4)).bits
    assert last.pre_hashes[1] == fingerprint(torch.ones(4, 4)).bits
