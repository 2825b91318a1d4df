"""More programs in which nothing is wrong: control flow, optimizers, linear algebra, caches, odd shapes."""

from __future__ import annotations

import torch
import torch._dynamo.compiled_autograd
import torch._inductor.config
import torch.nn.utils.parametrizations
import torch.utils.checkpoint
from tests.programs.clean_programs import Block, leaf, program, run
from torch import nn
from torch.nn import functional as F


@program
def branches() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = x.sin() + 1
        chosen = torch.cond(
            hidden.sum() > 0,
            lambda a, b: ((a @ b).relu() * 2, a.cos()),
            lambda a, b: ((a - b).exp(), b.sin()),
            (hidden, y),
        )
        return chosen[0] + y, chosen[1].sum(0)

    for sign in (1, -1):
        run(forward, sign * torch.rand(6, 6) * 5 - 2.5 + sign * 2, torch.randn(6, 6))


@program
def branches_with_gradients() -> None:
    def forward(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.cond(x.sum() > 0, lambda a, b: (a @ b).tanh(), lambda a, b: (a * 2).sin() @ b, (x, w))
        return y.softmax(-1)

    run(forward, leaf(5, 5), leaf(5, 5))


@program
def loops() -> None:
    from torch._higher_order_ops.while_loop import while_loop

    def forward(n: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def body(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return i + 1, torch.relu(x @ x.t() / 9 + i) - x.exp() / 50

        done = while_loop(lambda i, x: i < n.sum(), body, (torch.zeros((), dtype=torch.int64), x.sin()))
        return done[0], done[1] * 3

    run(forward, torch.tensor([1, 2]), torch.randn(4, 4))


@program
def a_branch_in_a_loop() -> None:
    from torch._higher_order_ops.while_loop import while_loop

    def forward(x: torch.Tensor) -> torch.Tensor:
        def body(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = torch.cond(x.sum() > 1, lambda a: a.sin() - 1, lambda a: a.cos() + 1, (x,))
            return i + 1, y * 1.5

        return while_loop(lambda i, x: i < 3, body, (torch.zeros((), dtype=torch.int64), x))[1].sum(0)

    run(forward, torch.randn(4, 6))


@program
def checkpointed_blocks() -> None:
    first, second = Block(16, 2), nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.2), nn.GELU())

    def forward(x: torch.Tensor) -> torch.Tensor:
        x = torch.utils.checkpoint.checkpoint(first, x, use_reentrant=False)
        return torch.utils.checkpoint.checkpoint(second, x, use_reentrant=False)

    run(forward, leaf(2, 6, 16))


@program
def other_convolutions() -> None:
    model = nn.Sequential(
        nn.Conv1d(4, 8, 3, dilation=2, padding=2), nn.InstanceNorm1d(8, track_running_stats=True),
        nn.Conv1d(8, 8, 3, groups=8), nn.ELU(), nn.ConvTranspose1d(8, 4, 4, stride=2), nn.LeakyReLU(),
    )  # fmt: skip
    run(model, torch.randn(2, 4, 11), times=2)


@program
def channels_last() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8, momentum=0.3), nn.Hardswish())
    model = model.to(memory_format=torch.channels_last)
    run(model, torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last), times=2)


@program
def a_mixture_of_experts() -> None:
    gate, up, down = leaf(8, 4), leaf(4, 8, 16), leaf(4, 16, 8)

    def forward(x: torch.Tensor) -> torch.Tensor:
        weights, chosen = (x @ gate).softmax(-1).topk(2, -1)
        hidden = F.silu(torch.einsum("nd,edh->neh", x, up))
        outputs = torch.einsum("neh,ehd->ned", hidden, down)
        picked = outputs.gather(1, chosen[..., None].expand(-1, -1, 8))
        return (picked * (weights / weights.sum(-1, keepdim=True))[..., None]).sum(1)

    run(forward, leaf(10, 8))


@program
def optimizers() -> None:
    for make in (
        lambda p: torch.optim.AdamW(p, lr=1e-2, amsgrad=True),
        lambda p: torch.optim.RMSprop(p, lr=1e-2, centered=True, momentum=0.5),
        lambda p: torch.optim.Adagrad(p, lr=1e-2, foreach=False),
        lambda p: torch.optim.SGD(p, lr=1e-1, momentum=0.9, nesterov=True, weight_decay=0.1, foreach=False),
    ):
        weights = [nn.Parameter(torch.randn(5, 3)), nn.Parameter(torch.randn(7))]
        optimizer = make(weights)
        step = torch.compile(optimizer.step)
        for _ in range(2):
            for w in weights:
                w.grad = torch.randn_like(w)
            step()
        torch._dynamo.reset()


@program
def an_optimizer_by_hand() -> None:
    """Master weights in float32, weights in bfloat16, gradients clipped, all of it in place."""

    @torch.compile
    def step(
        weights: list[torch.Tensor], master: list[torch.Tensor], grads: list[torch.Tensor]
    ) -> torch.Tensor:
        norm = torch.stack([g.float().norm() for g in grads]).norm()
        for w, m, g in zip(weights, master, grads, strict=True):
            m.mul_(0.99).sub_(g.float() * (1 / (norm + 1e-6)).clamp(max=1.0))
            w.copy_(m)
        return norm

    master = [torch.randn(6, 5), torch.randn(11)]
    weights = [m.bfloat16() for m in master]
    for _ in range(2):
        step(weights, master, [torch.randn_like(w) for w in weights])


@program
def averages_of_lists() -> None:
    @torch.compile
    def update(averages: list[torch.Tensor], values: list[torch.Tensor]) -> list[torch.Tensor]:
        torch._foreach_lerp_(averages, values, 0.1)
        norms = torch._foreach_norm(averages)
        torch._foreach_div_(averages, norms)
        return torch._foreach_sqrt(torch._foreach_abs(averages))

    update([torch.randn(4, 4), torch.randn(9)], [torch.randn(4, 4), torch.randn(9)])


@program
def complex_rotation() -> None:
    def forward(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        turn = torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(torch.view_as_complex(x.reshape(4, 6, 4, 2)) * turn).flatten(2)

    run(forward, leaf(4, 6, 8), torch.randn(6, 4))


@program
def fourier_transforms() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft(x.sin(), n=16) * torch.fft.rfft(y, n=16)
        return torch.fft.irfft(spectrum, n=16)[:, :8] + torch.fft.fft(x, dim=0).abs()

    run(forward, leaf(5, 8), leaf(5, 8))


@program
def linear_algebra() -> None:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        definite = x @ x.t() + 3 * torch.eye(6)
        lower = torch.linalg.cholesky(definite)
        return (
            torch.linalg.solve(definite, x), lower, torch.logdet(definite), torch.linalg.qr(x).R.abs(),
            torch.linalg.solve_triangular(lower, x, upper=False), torch.linalg.inv(definite).diagonal(),
        )  # fmt: skip

    run(forward, leaf(6, 6))


@program
def double_precision() -> None:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.layer_norm(x, (40,)).exp(), x.var(0), (x.softmax(1) * x).sum(), x.std(1).reciprocal()

    run(forward, leaf(30, 40, dtype=torch.float64))


@program
def fake_quantisation() -> None:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        fake = torch.fake_quantize_per_tensor_affine(x, 0.05, 3, -128, 127)
        rounded = x + (x.mul(8).round().div(8) - x).detach()
        packed = (x.clamp(0, 15).to(torch.uint8) << 4) | (x.abs().clamp(0, 15).to(torch.uint8) & 15)
        return fake, rounded * x, packed

    run(forward, leaf(20, 30))


@program
def counts_and_searches() -> None:
    def forward(x: torch.Tensor, edges: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.bucketize(x, edges), torch.searchsorted(edges, x, right=True), F.one_hot(i, 9).sum(0),
            torch.bincount(i, minlength=9), torch.isin(i, i[:3]), x[x > 0].sum(),
        )  # fmt: skip

    run(forward, torch.randn(20), torch.randn(7).sort().values, torch.randint(0, 9, (20,)))


@program
def distances() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        near = F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).t()
        return (
            torch.cdist(x, y),
            near,
            F.cosine_similarity(x, y[:6]),
            F.triplet_margin_loss(x, y[:6], x + 0.1),
        )

    run(forward, leaf(6, 8), leaf(9, 8))


@program
def functions_of_parameters() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    parameters = dict(model.named_parameters())

    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def loss(p: dict[str, torch.Tensor], one: torch.Tensor) -> torch.Tensor:
            return torch.func.functional_call(model, p, (one,)).square().sum()

        grads = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
        return tuple(grads.values())

    run(forward, torch.randn(5, 4), backward=False)


@program
def lengths_that_change() -> None:
    model = Block(16, 2)
    compiled = torch.compile(model, dynamic=True)
    for batch, length in ((2, 5), (3, 9), (1, 16)):
        compiled(torch.randn(batch, length, 16)).square().mean().backward()


class Scaled(torch.autograd.Function):
    """A gradient of its own, which is not that of what it computes."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, by: float) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[no-untyped-def]
        mask = x > 0
        ctx.save_for_backward(x, mask)
        ctx.mark_non_differentiable(mask)
        ctx.by = by
        return x * by, mask

    @staticmethod
    def backward(ctx, grad: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[no-untyped-def]
        x, mask = ctx.saved_tensors
        return torch.where(mask, grad * ctx.by, x.sin()), None


@program
def gradients_of_ones_own() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y, mask = Scaled.apply(x.exp() - 1, 3.0)
        return y.cos() * mask

    run(forward, leaf(7, 8))


@program
def folding_and_sampling() -> None:
    def forward(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        patches = F.unfold(x, 3, padding=1)
        back = F.fold(patches * 2, (6, 6), 3, padding=1)
        return (
            F.pixel_shuffle(F.grid_sample(back, grid, align_corners=False), 2)
            + torch.diag_embed(grid[..., 0, 0]).sum()
        )

    run(forward, leaf(2, 4, 6, 6), torch.rand(2, 6, 6, 2) * 2 - 1)


@program
def a_cache_of_keys_and_values() -> None:
    keys, values = torch.zeros(1, 2, 8, 4), torch.zeros(1, 2, 8, 4)

    @torch.compile
    def decode(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        keys.index_copy_(2, at, x * 2)
        values[:, :, at] = x + 1
        seen = torch.arange(8) <= at
        scores = (x @ keys.transpose(-1, -2) / 2).masked_fill(~seen, -float("inf"))
        return scores.softmax(-1) @ values

    with torch.no_grad():
        for step in range(3):
            decode(torch.randn(1, 2, 1, 4), torch.tensor([step]))


@program
def weights_that_are_computed() -> None:
    spectral = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6))
    model = nn.Sequential(torch.nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)), nn.ReLU(), spectral)
    run(model, torch.randn(4, 6), times=2)


@program
def integers_of_all_sizes() -> None:
    def forward(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            a * 200 + 100, a // 7 % 5, b * b - (b << 20), torch.div(b, c, rounding_mode="floor"), b % c,
            torch.div(b, c, rounding_mode="trunc"), c.short() ** 2, (b >> 3).bitwise_xor(c), b.float() * 2,
        )  # fmt: skip

    b, c = torch.randint(-(1 << 40), 1 << 40, (30,)), torch.randint(1, 99, (30,))
    run(forward, torch.randint(0, 255, (30,), dtype=torch.uint8), b, c)


@program
def gradients_compiled_by_autograd() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    with torch._dynamo.compiled_autograd._enable(torch.compile):
        run(model, torch.randn(5, 8))


@program
def matrix_products_by_templates() -> None:
    weight, bias = torch.randn(48, 33), torch.randn(33)
    with (
        torch.no_grad(),
        torch._inductor.config.patch(max_autotune=True, max_autotune_gemm_backends="CPP,ATEN"),
    ):
        run(lambda x: F.gelu(torch.addmm(bias, x, weight)) @ weight.t(), torch.randn(37, 48))


@program
def nothing_and_single_numbers() -> None:
    def forward(x: torch.Tensor, e: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            e.sum(0) + 1,
            torch.cat([x, e]),
            s * x.mean(),
            x[:0].exp(),
            (s + 1).sqrt(),
            x.expand(2, 5, 3) * s,
        )

    run(forward, leaf(5, 3), torch.zeros(0, 3), torch.tensor(0.7, requires_grad=True))


@program
def statistics_with_several_results() -> None:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        low, high = x.aminmax(dim=1)
        std, mean = torch.std_mean(x, 0)
        middle = x.median(1)
        return (
            low, high, std, mean, middle.values, middle.indices, x.kthvalue(5, 0).values, x.cummin(1).indices,
            x.logcumsumexp(0), x.quantile(0.3, 1), torch.var_mean(x, (0, 1))[0], x.argsort(1), x.nansum(0),
        )  # fmt: skip

    run(forward, torch.randn(31, 37))


@program
def gradients_at_the_edges() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        kinks = (
            x.abs()
            + x.clamp(-0.5, 0.5)
            + F.hardtanh(x * 3)
            + x.relu().sqrt()
            + (x * 1e-20).norm(dim=1, keepdim=True)
        )
        return kinks + torch.where(x > 0, x.clamp(min=1e-6).log(), x) + x.max(1, keepdim=True).values

    x = torch.randn(8, 9)
    x[0], x[1, :4] = 0.0, 0.5
    run(forward, x.requires_grad_())


@program
def chosen_at_random() -> None:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hard = F.gumbel_softmax(x, tau=0.5, hard=True)
        drawn = torch.multinomial(x.softmax(-1), 2)
        return hard * x, x.gather(1, drawn), torch.bernoulli(x.sigmoid()) * x, F.rrelu(x, training=True)

    run(forward, leaf(9, 6))
