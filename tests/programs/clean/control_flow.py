"""Clean programs with control flow, function transforms, graph breaks, or shapes that change."""

from __future__ import annotations

import torch
from tests.programs.clean.models import Block
from tests.programs.clean.registry import leaf, program, run
from torch import nn


@program
def function_transforms() -> None:
    def loss(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (torch.tanh(x @ w) ** 2).sum()

    def forward(w: torch.Tensor, xs: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(torch.func.grad(loss), (None, 0))(w, xs)

    run(forward, torch.randn(6), torch.randn(5, 4, 6), backward=False)


@program
def dynamic_shapes() -> None:
    model = nn.Sequential(nn.Linear(12, 24), nn.LayerNorm(24), nn.GELU())
    compiled = torch.compile(model, dynamic=True)
    for size in (3, 7, 10):
        compiled(torch.randn(size, 12)).square().sum().backward()


@program
def graph_breaks() -> None:
    weight = leaf(8, 8)

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = (x @ weight).relu()
        torch._dynamo.graph_break()
        if y.sum() > 0:
            y = y * 2
        return torch.tanh(y) + x

    run(forward, leaf(5, 8))


@program
def transforms_within_transforms() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * x.sum()

    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.func.jacrev(inner)(x), torch.func.hessian(lambda y: (y**3).sum())(x)

    run(forward, torch.randn(4))
    assert not torch._C._functorch.get_dynamic_layer_stack_depth()


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
