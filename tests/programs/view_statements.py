"""Statements that view, join, scatter and write parts of a value: those that fit its shape."""

from __future__ import annotations

import random

import torch

Statement = tuple[str, ...]  # an expression, then statements in which {new} is its value


def copied(x: str, shape: torch.Size, draw: random.Random) -> list[Statement]:
    """The same numbers in other places: nothing is rounded."""
    rank = len(shape)
    if not rank:
        return [(f"{x}.expand(3)",)]
    d, n = (at := draw.randrange(rank)), shape[at]
    found: list[Statement] = [
        (f"{x}.flip({d})",),
        (f"torch.roll({x}, 1, {d})",),
        (f"{x}.unsqueeze({d}).expand({[*shape[:d], 2, *shape[d:]]})",),
        (f"{x}.repeat_interleave(2, {d})",),
        (f"{x}.index_select({d}, torch.tensor({[draw.randrange(n) for _ in range(3)]}, device={x}.device))",),
        (f"F.pad({x}, {[draw.randrange(2) for _ in range(2 * draw.randint(1, rank))]})",),
    ]
    if n > 1:
        half = n // 2
        found += [
            (f"torch.cat([{x}.narrow({d}, {half}, {n - half}), {x}.narrow({d}, 0, {half})], {d})",),
            (f"torch.stack({x}.unbind({d}), {draw.randrange(rank)})",),
            (f"{x}.unbind({d})[{draw.randrange(n)}]",),
            (f"{x}.split([1, {n - 1}], {d})[1]",),
            (f"torch.cat({x}.chunk(2, {d})[::-1], {d})",),
            (f"{x}.unfold({d}, 2, {draw.choice([1, 2])})",),
        ]
    if rank > 1:
        one, other = draw.sample(range(rank), 2)
        found += [(f"{x}.diagonal(0, {one}, {other})",), (f"{x}.movedim({one}, {other})",)]
        if n > 1:
            found.append((f"{x}.transpose({one}, {other}).contiguous().transpose({one}, {other})",))
    if rank in (2, 3) and shape[-1] > 1:
        found.append((f"F.pad({x}, [1, 0], mode='{draw.choice(['reflect', 'replicate', 'circular'])}')",))
    return found


def computed(x: str, shape: torch.Size, draw: random.Random) -> list[Statement]:
    """Writes in place to parts and views of something new, and joins of what was computed."""
    rank = len(shape)
    if not rank:
        return [(f"{x} + 1", "{new}.mul_(2)")]
    d, n = (at := draw.randrange(rank)), shape[at]
    count = shape.numel()
    fresh = draw.choice([f"{x} + 1", f"{x}.cos()", f"{x}.clone()"])
    found: list[Statement] = [
        (fresh, "{new}.add_(1)", "{new}.relu_()"),
        (
            fresh,
            f"{{new}}.select({d}, {draw.randrange(n)}).copy_({x}.select({d}, {draw.randrange(n)}).sin())",
        ),
        (fresh, f"{{new}}.narrow({d}, 0, {(n + 1) // 2}).mul_(2)", f"{{new}}.select({d}, 0).sub_(1)"),
        (f"({x} * 2).contiguous()", f"{{new}}.view(-1)[{count // 2}:].add_(1)"),
        (f"({x} + 2).contiguous()", f"{{new}}.as_strided([{(count + 1) // 2}], [2]).mul_(3)"),
        (f"({x} + 2).contiguous()", f"{{new}}.as_strided([{count}], [1]).add_({x}.reshape(-1))"),
        (f"torch.select_scatter({x}, {x}.select({d}, 0).cos(), {d}, {draw.randrange(n)})",),
        (f"torch.slice_scatter({x}, {x}.narrow({d}, 0, {(n + 1) // 2}) * 2, {d}, 0, {n}, 2)",),
        (f"torch.cat([part.cos() + i for i, part in enumerate({x}.split(1, {d}))], {d})",),
        (fresh, f"{{new}}.index_add_({d}, torch.arange({n}, device={x}.device), {x} * 2)"),
        (f"F.pad({x}.sin(), {[1, 1] * min(rank, 2)}) * 2",),
        (f"{x}.new_zeros({[*shape[:d], n + 2, *shape[d + 1 :]]})", f"{{new}}.narrow({d}, 1, {n}).copy_({x})"),
        (f"{x}.new_empty({list(shape)})", f"{{new}}.copy_({x} + 1)", f"{{new}}.select({d}, 0).zero_()"),
    ]
    if rank > 1:
        one, other = draw.sample(range(rank), 2)
        found += [
            (fresh, f"{{new}}.transpose({one}, {other}).mul_(2)"),
            (fresh, f"{{new}}.diagonal(0, {one}, {other}).add_(1)"),
            (f"torch.diagonal_scatter({x}, {x}.diagonal(0, {one}, {other}) * 2, 0, {one}, {other})",),
        ]
    if shape[-1] % 2 == 0:
        half = shape[-1] // 2
        found += [
            (f"torch.cat([-{x}[..., {half}:], {x}[..., :{half}]], -1)",),
            (f"{x}[..., ::2] * {x}[..., 1::2]",),
            (f"torch.stack([-{x}[..., 1::2], {x}[..., ::2]], -1).flatten(-2)",),
            (f"{x}.clone()", f"{{new}}[..., ::2] = {x}[..., 1::2]", f"{{new}}[..., 1::2] += {x}[..., ::2]"),
        ]
    return found


def of_pairs(x: str, draw: random.Random) -> list[Statement]:
    """Real numbers (float32, float64) looked at as complex ones, and parts of those."""
    pairs = f"torch.view_as_complex(({x} * 2).reshape(-1, 2).contiguous())"
    return [
        (f"{pairs}.{draw.choice(['real', 'imag'])} + 1",),
        (f"torch.view_as_real({pairs}.conj() * 2)",),
        (f"torch.view_as_real({pairs} * {pairs}.conj())[..., 0]",),
        (f"{x}.reshape(-1, 2) + 1", "torch.view_as_complex({new}).imag.mul_(3)"),
        (f"{pairs}.clone().real", "{new}.add_(1)"),
    ]
