"""The part of every script that distinguishes rounding from a mistake."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from .tensors import fill

NARROW = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16, torch.float32)
WIDE: dict[torch.dtype, torch.dtype] = dict.fromkeys(NARROW, torch.float64)
LOOSE = {torch.float16: 1e-3, torch.bfloat16: 1.6e-2, torch.float64: 1e-7, torch.complex128: 1e-7}
LOOSE |= {dtype: 0.13 for dtype in WIDE if dtype.itemsize == 1}
WIDE |= {torch.complex32: torch.complex128, torch.complex64: torch.complex128}
ADDING = "sum mean var std mm mv dot linear conv soft norm attention prod avg_pool fft embedding"
ADDING += " scatter_add scatter_reduce index_add index_put"
SHAKEN_RUNS = 8


def is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


class Wide(TorchDispatchMode):
    """With 64 bits what has less; with `bits`, each result is rounded to so many, up or down at random.

    What that moves, rounding decides: a sum that cancels, a tie. What is exact stays so.
    """

    def __init__(self, bits: int = 0, seed: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bits, self.generator = bits, torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = args, kwargs or {}
        args, kwargs = tree_map(lambda p: WIDE.get(p, p) if isinstance(p, torch.dtype) else p, given)
        if func is torch.ops.aten.view.dtype and {args[0].dtype, args[1]} != {
            torch.float64,
            torch.complex128,
        }:
            raise NotImplementedError("a view of bits has no float64 form")
        made = func(*args, **kwargs)
        schema = getattr(func, "_schema", None)
        if not self.bits or schema is None:
            return made
        if any(word in schema.name for word in ADDING.split()) and not schema.is_mutable:
            most = 2.0 ** (1 - self.bits) * (0.5 + math.sqrt(reach_of(args, made)) / 8)
            made = func(*tree_map(lambda p: self.shaken(p, most), args), **kwargs)  # rounds in between, too
        same = [r.alias_info for r in schema.returns if r.alias_info is not None]
        if not same:
            self.round_written(schema, args)
            return tree_map(self.rounded, made)
        if is_float(made) and all(each.is_write for each in same):
            made.copy_(self.rounded(made))
        return made

    def round_written(self, schema: Any, args: Any) -> None:
        """What an operator that returns nothing wrote to: the list of `_foreach_add_`."""
        for about, given in zip(schema.arguments, args, strict=False):
            if about.alias_info is not None and about.alias_info.is_write:
                for value in filter(is_float, tree_leaves(given)):
                    value.copy_(self.rounded(value))

    def noise(self, value: torch.Tensor) -> torch.Tensor:
        """Of each element its own, between -1 and 1."""
        drawn = torch.rand(value.shape, generator=self.generator, dtype=torch.float64)
        return (2 * drawn - 1).to(value.device)

    def shaken(self, value: Any, most: float) -> Any:
        """Off by so much, but for ones: they are masks, and are counted."""
        if not is_float(value):
            return value
        return torch.where(value.abs() == 1, value, value * (1 + self.noise(value) * most))

    def rounded(self, value: Any) -> Any:
        if not is_float(value):
            return value
        if value.is_complex():
            return torch.view_as_complex(self.rounded(torch.view_as_real(value.resolve_conj())))
        step = torch.exp2(torch.frexp(value).exponent.double() - self.bits)
        return torch.round(value / step + self.noise(value) / 2) * step


def reach_of(args: Any, made: Any) -> float:
    """How many numbers go into one."""
    ins = [p for p in tree_leaves(args) if is_float(p)]
    least = min((p.numel() for p in tree_leaves(made) if is_float(p)), default=1)
    return float(max([1.0, *(max(p.numel() / max(1, least), *p.shape[-1:]) for p in ins)]))


def in_float64(
    function: Any, given: dict[str, Any], mode: Wide, jitter: float = 0.0
) -> dict[str, Any] | None:
    """What eager computes with 64 bits; with `jitter`, from inputs that are off by so much."""

    def wide(value: Any) -> Any:
        if not is_float(value):
            return value
        exact = value.to(WIDE.get(value.dtype, value.dtype))
        if jitter:
            exact = mode.rounded(mode.shaken(exact, jitter))
        made = torch.empty_strided(value.shape, value.stride(), dtype=exact.dtype, device=value.device)
        return fill(made, exact)

    widened = {name: wide(value) for name, value in given.items()}
    torch.manual_seed(0)
    try:
        with mode:
            return dict(function(**widened))
    except Exception:
        return None


class Reference:
    """What eager computes: `right`, with 64 bits `exact`, and how far rounding may be from it."""

    def __init__(self, eager: Any, given: Any) -> None:
        """`given` makes the arguments anew."""
        self.eager, self.given = eager, given
        self.right: dict[str, Any] = {}
        self.exact: dict[str, Any] = {}
        if eager is None:
            return
        torch.manual_seed(0)
        try:
            self.right = dict(eager(**given()))
        except Exception as error:
            print(f"note: eager raised {type(error).__name__}: {error}")
        self.exact = in_float64(eager, given(), Wide()) or {}
        if self.right and not self.exact:
            print(
                "note: eager fails in float64, so the results are compared with eager in its own dtypes only"
            )

    @cached_property
    def reach(self) -> float:
        least = min((v.numel() for v in self.right.values()), default=1)
        return float(max([1.0, *(v.numel() / max(1, least) for v in self.given().values())]))

    @cached_property
    def shaken(self) -> list[dict[str, Any]]:
        """With 64 bits, but rounded at random, and from inputs that are off by a rounding or more."""
        if not self.exact:
            return []
        floats = [v for v in (*self.given().values(), *self.right.values()) if is_float(v)]
        bits = 24 if any(v.dtype in WIDE for v in floats) else 50
        most = 2.0 ** (1 - bits) * (1 + math.sqrt(self.reach) / 4)
        runs = (in_float64(self.eager, self.given(), Wide(bits, seed), most) for seed in range(SHAKEN_RUNS))
        return [run for run in runs if run is not None]

    def allowed(self, name: str) -> Any:
        """See `allowance`."""
        shaken = [run[name] for run in self.shaken if name in run]
        return allowance(self.right.get(name), self.exact.get(name), shaken, self.reach)


def allowance(right: Any, exact: Any, shaken: list[Any], reach: float) -> Any:
    """What rounding explains: at most, on average, and elements that it may make NaN or infinite, or not.

    `reach` numbers go into one. Of integers and truth values only which elements it explains: those that
    come out otherwise in float64, or when shaken.
    """
    if right is None or exact is None:
        return None
    others = [part.reshape(right.shape) for part in (exact, *shaken)]
    if not is_float(right):
        return sum((part != right for part in others), torch.zeros_like(right, dtype=torch.bool)).cpu()
    r, e, *moved = (numbers(part) for part in (right, *others))
    kinds = [kind_of(numbers(part.to(right.dtype))) for part in others]
    unsure = sum((kind != kind_of(r) for kind in kinds), torch.zeros_like(r, dtype=torch.bool))
    fine = torch.isfinite(r) & torch.isfinite(e) & ~unsure
    if not bool(fine.any()):
        return 0.0, 0.0, unsure
    r, e = r[fine], e[fine]
    spread = torch.zeros_like(r)
    for part in moved:
        spread = torch.maximum(spread, (part[fine] - e).abs())
    compute = torch.finfo(torch.float32 if right.dtype in WIDE else torch.float64)
    parts = [(r - e).abs(), spread, compute.eps * math.sqrt(reach) * e.abs()]
    most = 8 * sum(float(part.max()) for part in parts) + compute.tiny
    usual = 4 * sum(float(rms(part)) for part in parts) + compute.tiny
    return most, usual, unsure


def difference(made: torch.Tensor, other: torch.Tensor, exact: Any, allowed: Any) -> str:
    """What is wrong with `made`, more than rounding explains; `exact` is `other`, or better."""
    if made.dtype != other.dtype:
        return f"its dtype is {made.dtype} and should be {other.dtype}"
    if made.numel() != other.numel():
        return f"it has shape {list(made.shape)} and should have {list(other.shape)}"
    made, other = made.detach().cpu(), other.detach().cpu().reshape(made.shape)
    if not is_float(made):
        wrong = made != other
        if allowed is not None:
            wrong &= ~allowed.reshape(made.shape)
        return describe(made, other, wrong) if bool(wrong.any()) else ""
    m, o = numbers(made), numbers(other)
    if allowed is None:
        loose = LOOSE.get(made.dtype, 1.3e-6)
        wrong = ~torch.isclose(m, o, rtol=loose, atol=1e-5 if loose < 1e-3 else loose, equal_nan=True)
        return describe(made, other, wrong) if bool(wrong.any()) else ""
    most, usual, unsure = allowed
    e, sure = numbers(exact.reshape(made.shape)), ~unsure.reshape(m.shape)
    odd = (kind_of(m) != kind_of(o)) & sure
    if bool(odd.any()):
        return describe(made, other, odd)
    fine = torch.isfinite(m) & torch.isfinite(e) & sure
    gap = torch.where(fine, (m - e).abs(), torch.zeros_like(m))
    if not bool(fine.any()) or (float(gap.max()) <= most and float(rms(gap[fine])) <= usual):
        return ""
    return describe(made, other, gap > min(most, usual))


def numbers(tensor: torch.Tensor) -> torch.Tensor:
    """Floats of 64 bits; two for a complex number."""
    tensor = tensor.detach().cpu()
    if tensor.is_complex():
        return torch.view_as_real(tensor.to(torch.complex128).resolve_conj())
    return tensor.double()


def kind_of(value: torch.Tensor) -> torch.Tensor:
    """0 where it is a number; NaN, and both infinities, are kinds of their own."""
    return value.isnan() * 1 + value.isposinf() * 2 + value.isneginf() * 3


def rms(value: torch.Tensor) -> Any:
    return value.square().mean().sqrt()


def describe(made: torch.Tensor, right: torch.Tensor, wrong: torch.Tensor) -> str:
    gap = (numbers(made) - numbers(right)).abs()
    if made.is_complex():
        gap, wrong = gap.sum(-1), wrong.any(-1)
    gap = torch.where(wrong, torch.nan_to_num(gap, nan=math.inf), -1.0)
    place = [int(n) for n in torch.unravel_index(gap.argmax(), made.shape)] if made.dim() else []
    one, other = made[tuple(place)].item(), right[tuple(place)].item()
    return f"{int(wrong.sum())} of {made.numel()} elements differ; worst at {place}: {one!r}, not {other!r}"
