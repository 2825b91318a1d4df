"""Each operator of gcu against eager: time on one thread, and error; `--write-docs` updates docs/gcu.md."""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
from _measure import machine, versions  # noqa: E402
from _report import aligned, write_table  # noqa: E402

DOCS = Path(__file__).parents[1] / "docs" / "gcu.md"
Operator = Callable[..., torch.Tensor]

_ONE = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh"
    " atanh erf erfc sigmoid lgamma reciprocal abs neg sign floor ceil round trunc frac square relu isnan"
    " logical_not"
)
_TWO = (
    "add sub mul div maximum minimum pow atan2 fmod remainder copysign eq lt logical_and hypot xlogy"
    " floor_divide"
)
UNARY: dict[str, Operator] = {name: getattr(torch, name) for name in _ONE.split()} | {
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "mish": F.mish,
    "elu": F.elu,
    "leaky_relu": F.leaky_relu,
    "hardswish": F.hardswish,
    "logsigmoid": F.logsigmoid,
    "softshrink": F.softshrink,
    "transpose + 1": lambda x: x.view(1024, 1024).t().contiguous() + 1,
}
BINARY: dict[str, Operator] = {name: getattr(torch, name) for name in _TWO.split()}
POSITIVE = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "lgamma", "pow", "xlogy")
BELOW_ONE = ("asin", "acos", "atanh")
ABOVE_ONE = ("acosh",)
CALLS = 3  # in a row


@dataclass
class Row:
    name: str
    ratio: float  # time of gcu by that of eager
    floor: float  # time of eager under torch.compile, by that of eager
    error: float  # in units in the last place, of gcu
    eager_error: float


def inputs(name: str, dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    made = [torch.randn(1 << 20) * 3, torch.randn(1 << 20) * 3]
    if name in POSITIVE:
        made[0] = made[0].abs() + 1e-3
    if name in BELOW_ONE:
        made[0] = torch.rand(1 << 20) * 2 - 1
    if name in ABOVE_ONE:
        made[0] = made[0].abs() + 1
    count = 1 if name in UNARY else 2
    return [x.to(dtype) for x in made[:count]]


def errors(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest error in units in the last place of what is right."""
    if not found.is_floating_point():
        return float((found != exact).any())
    info = torch.finfo(found.dtype)
    size = exact.abs().clamp_min(info.tiny)
    unit = torch.exp2(torch.floor(torch.log2(size))) * info.eps
    apart = ((found.double() - exact) / unit).abs()
    return float(apart.nan_to_num(0.0, posinf=math.inf).max())


def measured(name: str, operator: Operator, dtype: torch.dtype, rounds: int) -> Row:
    given = inputs(name, dtype)
    torch._dynamo.reset()
    compiled = torch.compile(operator, backend="gcu")
    called = torch.compile(operator, backend="aot_eager")
    exact = operator(*(x.double() for x in given))
    row = Row(name, 0.0, 0.0, errors(compiled(*given), exact), errors(operator(*given), exact))
    called(*given)
    seconds = in_turn({"eager": operator, "gcu": compiled, "floor": called}, given, rounds)
    row.ratio = quartile(seconds["gcu"]) / quartile(seconds["eager"])
    row.floor = quartile(seconds["floor"]) / quartile(seconds["eager"])
    return row


def in_turn(runs: dict[str, Operator], given: list[torch.Tensor], rounds: int) -> dict[str, list[float]]:
    """CPU time of this thread, so that what else runs counts little; each round begins with another one."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs)
    for number in range(rounds):
        for which in order[number % len(order) :] + order[: number % len(order)]:
            runs[which](*given)  # the one before has filled the processor's caches with other things
            start = time.thread_time()
            for _ in range(CALLS):
                runs[which](*given)
            seconds[which].append((time.thread_time() - start) / CALLS)
    return seconds


def quartile(seconds: list[float]) -> float:
    """The lower one: what disturbs mostly adds time, and a single lucky round counts little."""
    return statistics.quantiles(seconds, n=4, method="inclusive")[0]


def table(rows: dict[torch.dtype, list[Row]]) -> str:
    kinds = [str(dtype).removeprefix("torch.") for dtype in rows]
    heads = [head for kind in kinds for head in (kind, "floor")]
    lines = [["operator", *heads, "error", "of eager"]]
    first = next(iter(rows.values()))
    for number, row in enumerate(first):
        ratios = [f"{x:.2f}" for found in rows.values() for x in (found[number].ratio, found[number].floor)]
        lines.append([row.name, *ratios, _number(row.error), _number(row.eager_error)])
    means = [mean for found in rows.values() for mean in (_mean(found, "ratio"), _mean(found, "floor"))]
    lines.append(["geometric mean", *(f"{mean:.2f}" for mean in means), "", ""])
    counts = [
        f"{sum(row.ratio > 1.2 for row in found)} of {len(found)} in {kind}, "
        f"{sum(row.ratio > 1.2 * max(row.floor, 1.0) for row in found)} above 1.2 times the floor"
        for kind, found in zip(kinds, rows.values(), strict=True)
    ]
    capability = torch.backends.cpu.get_cpu_capability()
    return "\n".join(
        [
            *aligned(lines),
            "",
            "CPU time of the one thread that runs (`time.thread_time`), of gcu by that of eager, 1,048,576 "
            "elements (lower is faster), lower quartiles of rounds in which all take turns; the floor, "
            'which is eager\'s own operator as torch.compile calls it (`backend="aot_eager"`); and the '
            "largest error in float32, in units in the last place.",
            f"Operators above 1.2 times eager's time: {'; '.join(counts)}.",
            f"Machine: {machine('cpu')}, {capability}; {versions()}.",
        ]
    )


def _mean(rows: list[Row], column: str) -> float:
    return math.exp(sum(math.log(getattr(row, column)) for row in rows) / len(rows))


def _number(error: float) -> str:
    return f"{error:.2f}" if error < 1000 else f"{error:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--only", nargs="*", default=[], help="operators")
    parser.add_argument("--float32", action="store_true", help="leave out bfloat16")
    parser.add_argument("--write-docs", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    dtypes = [torch.float32] if given.float32 else [torch.float32, torch.bfloat16]
    chosen = {name: made for name, made in (UNARY | BINARY).items() if not given.only or name in given.only}
    rows: dict[torch.dtype, list[Row]] = {dtype: [] for dtype in dtypes}
    for name, operator in chosen.items():
        for dtype in dtypes:
            rows[dtype].append(measured(name, operator, dtype, given.rounds))
        print(name, *(f"{found[-1].ratio:.2f}" for found in rows.values()), file=sys.stderr, flush=True)
    text = table(rows)
    print(text)
    if given.write_docs:
        write_table(DOCS, "gcu operators", text)


if __name__ == "__main__":
    main()
