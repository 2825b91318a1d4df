"""Clean programs whose numbers are hard: cancellation, ties, special values, few digits, integers."""

from __future__ import annotations

import torch
from tests.programs.clean.registry import leaf, program, run
from torch.nn import functional as F


@program
def random_numbers() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        noise = torch.randn_like(x) * 0.1 + torch.rand(x.shape[1])
        return (x + noise) * torch.randint(0, 5, (x.shape[0], 1))

    run(forward, leaf(9, 33))


@program
def large_reductions() -> None:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum(), x.mean(0), x.var(1), x.norm(), x.amax(1), x.logsumexp(0), x.prod(1)

    run(forward, leaf(300, 1000))


@program
def reductions_in_bfloat16() -> None:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum(0), x.mean(1), x.softmax(1), (x * x).sum(1).rsqrt()

    run(forward, leaf(200, 300, dtype=torch.bfloat16))


@program
def catastrophic_cancellation() -> None:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        big = x * 1e6
        return (big + 1) - big, (x + 1e4).var(0), torch.log1p(x * 1e-6) - x * 1e-6, x.sum() - x.flip(0).sum()

    run(forward, leaf(64, 100))


@program
def cancelling_sums() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(0)
        return torch.sin(centred.sum(0) * 1e3) + (centred.exp() - 1).sum(0)

    run(forward, leaf(500, 7))


@program
def argmax_and_ties() -> None:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        coarse = (x * 2).round() / 2
        return coarse.argmax(1), coarse.argmin(0), coarse.max(1).indices, x.softmax(1).argmax(1)

    run(forward, torch.randn(40, 50))


@program
def comparisons_near_ties() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = (x * y) / y, x
        return a > b, a == b, torch.where(a >= b, x * 100, -x), (a - b).sign(), torch.floor(x * 3 / 3)

    run(forward, torch.randn(50, 40), torch.randn(50, 40))


@program
def complex_numbers() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = torch.complex(x, y)
        return z * z.conj() + z.exp(), torch.view_as_real(z * 2).sum(-1), z.abs()

    run(forward, torch.randn(8, 9), torch.randn(8, 9), backward=False)


@program
def integers_and_booleans() -> None:
    def forward(i: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        j = (i * 7 + 3) % 11 ^ 5
        return j // 3, j << 2, b & (j > 4) | ~b, b.any(1), j.sum(0), j.bitwise_and(6), j.float() / 3

    run(forward, torch.randint(-50, 50, (20, 13)), torch.rand(20, 13) > 0.5)


@program
def rounding_as_in_quantisation() -> None:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scale = x.abs().amax(1, keepdim=True) / 127
        q = (x / scale).round().clamp(-128, 127).to(torch.int8)
        return q, q.float() * scale, (x * 4).round() / 4, x.to(torch.float8_e4m3fn).to(torch.float32)

    run(forward, torch.randn(30, 40))


@program
def infinities_and_nans() -> None:
    x = torch.randn(10, 12)
    x[0], x[1, 3], x[2, 2], x[3] = float("-inf"), float("nan"), float("inf"), 1e30

    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.logsumexp(1), x.softmax(1), (x * x), x.amax(0), torch.nan_to_num(x), 1 / (x - x), x.isnan()

    run(forward, x)


@program
def special_functions() -> None:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.abs() + 0.1
        return y.lgamma(), x.erf(), torch.special.i0(x), y.digamma(), torch.atan2(x, y), y.pow(1.7), x.sinh()

    run(forward, torch.randn(20, 20))


@program
def float16_pointwise() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.gelu(x * y + 1) / 3, (x.exp() + y).log1p(), F.softplus(x) * y.sigmoid()

    run(forward, leaf(40, 50, dtype=torch.float16), torch.rand(40, 50, dtype=torch.float16))


@program
def nearly_one() -> None:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        likely = x.softmax(1)
        return torch.log(1 - likely), 1 / (1 - likely), torch.log(1 - x.mean(1).sigmoid())

    run(forward, (torch.randn(500, 16) * 6).requires_grad_(), backward=False)


@program
def gradients_whose_decomposition_cancels() -> None:
    """sigmoid(x) - 1 has nothing but rounding left, and eager computes it in another way."""
    x = torch.tensor([13.9, -14.2, 14.8], requires_grad=True)
    run(lambda x: F.soft_margin_loss(x, torch.tensor([1.0, -1.0, 1.0])), x)


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
def integers_of_all_sizes() -> None:
    def forward(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            a * 200 + 100, a // 7 % 5, b * b - (b << 20), torch.div(b, c, rounding_mode="floor"), b % c,
            torch.div(b, c, rounding_mode="trunc"), c.short() ** 2, (b >> 3).bitwise_xor(c), b.float() * 2,
        )  # fmt: skip

    b, c = torch.randint(-(1 << 40), 1 << 40, (30,)), torch.randint(1, 99, (30,))
    run(forward, torch.randint(0, 255, (30,), dtype=torch.uint8), b, c)


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
def chosen_at_random() -> None:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hard = F.gumbel_softmax(x, tau=0.5, hard=True)
        drawn = torch.multinomial(x.softmax(-1), 2)
        return hard * x, x.gather(1, drawn), torch.bernoulli(x.sigmoid()) * x, F.rrelu(x, training=True)

    run(forward, leaf(9, 6))
