"""Clean programs that write in place, share memory, or move elements."""

from __future__ import annotations

import torch
import torch._inductor.config
from tests.programs.clean.operators import add_into, half_written, several
from tests.programs.clean.registry import leaf, program, run
from torch.nn import functional as F


@program
def updates_in_place() -> None:
    def forward(x: torch.Tensor, table: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        table.mul_(0.9).add_(x.sum(0))
        counts[1:3] += 1
        y = x.clone()
        y[:, 0] = 7
        return y.relu_() + table

    run(forward, torch.randn(6, 8), torch.zeros(8), torch.zeros(5, dtype=torch.int64), times=2)


@program
def pieces_and_joins() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = (x * 2).chunk(2, 1)
        joined = torch.cat([a.sin(), y, b.cos()], 1)
        return joined, torch.stack([a, b]).roll(1, -1), F.pad(x, (1, 2), value=3.0), joined.flip(0)[1:, ::2]

    run(forward, leaf(6, 8), leaf(6, 3))


@program
def gathering_and_scattering() -> None:
    def forward(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        spread = torch.zeros(10, 6).scatter_add(0, i, x)
        put = torch.zeros(10).index_put((i[:, 0],), x[:, 0], accumulate=True)
        return spread, put, x.gather(1, i % 6), x[i[:, 0] % 8]

    run(forward, leaf(8, 6), torch.randint(0, 10, (8, 6)))


@program
def sorting_and_scanning() -> None:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        top = x.topk(3, 1)
        return x.cumsum(1), x.sort(1).values, top.values, top.indices, x.cumprod(0), x.cummax(1).values

    run(forward, leaf(8, 12))


@program
def outputs_that_are_views_of_inputs() -> None:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        return x.t(), y, y[1:], y.view(-1), x

    run(forward, torch.randn(6, 7))


@program
def resizing() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        up = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        return F.interpolate(up, size=(5, 7), mode="nearest") + F.adaptive_avg_pool2d(x, (5, 7))

    run(forward, leaf(2, 3, 8, 9))


@program
def einstein_sums() -> None:
    def forward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bij,bkj->bik", a, b).softmax(-1).sum(1) + torch.einsum("bij->bi", a)[:, :5]

    run(forward, leaf(3, 6, 7), leaf(3, 5, 7))


@program
def writes_to_views_of_inputs() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        part = x[:, 1:3]
        part.add_(1)
        y.diagonal().fill_(3)
        y[0].mul_(x[0, 0])
        return part.sum(), x * 2, y.t() + 1

    run(forward, torch.randn(5, 5), torch.randn(5, 5), times=2)


@program
def operators_that_write_to_their_arguments() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor, count: torch.Tensor) -> tuple[torch.Tensor, ...]:
        own = torch.zeros_like(y)
        doubled = add_into(x, y.exp(), count)
        add_into(own, doubled.sin(), count)
        return x * 2, own.cos() + y, count + 1

    run(forward, torch.randn(4, 3), torch.randn(4, 3), torch.zeros((), dtype=torch.int64), times=2)


@program
def inputs_that_are_overwritten() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.copy_(x.half()).relu_()
        x.index_fill_(0, torch.tensor([1]), 7)
        return y.float() + x

    run(forward, torch.randn(5, 5), torch.zeros(5, 5, dtype=torch.float16))


@program
def unfinished_buffers() -> None:
    from torch._higher_order_ops.associative_scan import associative_scan

    def forward(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sums = associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")
        return torch.gcd(i, i.flip(0)), i.float().mean().long(), sums

    run(forward, torch.randint(-9, 9, (50,)), torch.randn(8, 3))


@program
def scatters_by_a_library() -> None:
    def forward(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        largest = x.scatter_reduce(1, i, y, "amax")
        return largest, x.scatter_reduce(0, i, y, "mean", include_self=False), largest.sin()

    run(forward, leaf(5, 5), torch.randint(0, 5, (5, 5)), leaf(5, 5))


@program
def operators_that_return_lists() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        first, (second, third) = several(x.sin())
        return first + second * third

    run(forward, torch.randn(4, 5))


@program
def results_that_are_written_in_part() -> None:
    """What an operator leaves as it was in memory is another number each time, in eager too."""
    run(lambda x: half_written(x) + 1, torch.randn(500), backward=False, times=30)


@program
def written_in_place_and_returned() -> None:
    """A kernel reads what an earlier one wrote in place, through what the operator returned."""

    def forward(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.index_reduce(x, 0, i, y, "prod", include_self=True)

    run(forward, leaf(1)[0], torch.tensor([0]), leaf(1)[0])


@program
def written_in_place_without_elements() -> None:
    run(lambda x: torch.linalg.qr(x).R, leaf(1, 1, 0, 0))


@program
def only_the_shape_of_an_argument() -> None:
    """The gradient of a pooling needs the shape of its input, whose memory is free by then."""

    def forward(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        value = F.avg_pool2d(x, 3) @ w
        return torch.ops.aten.avg_pool2d_backward(value, x, [3, 3], [3, 3], [0, 0], False, True, None)

    run(forward, torch.randn(1, 2, 9, 9), torch.randn(3, 3))


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
