"""Random programs whose memory is reused and reinterpreted: products, views, slices, writes in place, casts.

Inductor reuses the memory of a buffer for a later one of the same size, whatever the strides, shape or
dtype of both. The programs are made of what leads to that: products (whose results are buffers), split and
permuted in every way, read by pointwise kernels that can work in place, and joined again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tests.programs import view_statements
from torch.nn import functional as F

_DTYPES = [torch.float32] * 5 + [torch.bfloat16, torch.float16, torch.float64]
_SIZES = [2, 4, 6, 8]
_FUNCTIONS = ["torch.relu({0})", "{0} * 2 + 1", "torch.sigmoid({0})", "{0}.cos() - {0}", "{0}.abs() + 1"]
_LARGEST = 1 << 13  # elements


@dataclass(frozen=True)
class RandomProgram:
    """A function as text, what it is called with, and how it is compiled."""

    text: str
    inputs: list[torch.Tensor]
    dynamic: bool
    backward: bool

    def function(self) -> Callable[..., list[torch.Tensor]]:
        names: dict[str, Any] = {"torch": torch, "F": F}
        exec(compile(self.text, "<random program>", "exec"), names)
        found: Callable[..., list[torch.Tensor]] = names["program"]
        return found

    def copied_inputs(self, device: str = "cpu") -> list[torch.Tensor]:
        return [_copy(t, device) for t in self.inputs]

    def run(self, compiled: Callable[..., Any], device: str = "cpu") -> list[torch.Tensor]:
        """Call it once; gives results, what became of the inputs, and gradients."""
        inputs = self.copied_inputs(device)
        leaves = [t.requires_grad_() for t in inputs if self.backward and t.is_floating_point()]
        results = list(compiled(*inputs))
        wanted = [r for r in results if r.requires_grad]
        if wanted:
            torch.stack([r.float().square().mean() for r in wanted]).sum().backward()
        grads = [t.grad for t in leaves if t.grad is not None]
        return [t.detach().clone() for t in (*results, *inputs, *grads)]


def _copy(tensor: torch.Tensor, device: str = "cpu") -> torch.Tensor:
    """The same numbers in memory of its own, with the same strides and offset."""
    memory = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage()).to(device, copy=True)
    return memory.as_strided(tensor.shape, tensor.stride(), int(tensor.storage_offset()))


def random_program(draw: random.Random) -> RandomProgram:
    """The same for the same numbers."""
    return _Maker(draw).make()


class _Maker:
    """Adds statements that fit the shapes so far; each is executed at once, so that its shape is known."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._dtype = draw.choice(_DTYPES)
        self._backward = draw.random() < 0.3
        self._inputs: dict[str, torch.Tensor] = {}
        self._values: dict[str, torch.Tensor] = {}  # of all variables
        self._steps: list[str] = []  # variables, in the order in which they are made
        self._lines: list[str] = []
        self._exact: set[str] = set()  # values that rounding has no part in
        self._numbers = torch.Generator().manual_seed(draw.randrange(1 << 30))

    def make(self) -> RandomProgram:
        draw = self._draw
        for rank in (draw.choice([2, 3, 3, 4]), draw.choice([2, 3])):
            self._exact.add(self._input(*(draw.choice(_SIZES) for _ in range(rank))))
        self._steps = list(self._inputs)
        wanted = draw.randint(5, 11)
        for _ in range(60):
            if len(self._lines) >= wanted:
                break
            # The last values are taken most often, so that the program is deep.
            name = draw.choices(self._steps, [1 + 3 * i for i in range(len(self._steps))])[0]
            draw.choice(self._kinds())(name)
        made = [name for name in self._steps if name not in self._inputs] or self._steps
        others = draw.sample(made[:-1], min(draw.choice([0, 1, 2]), len(made) - 1))
        body = [*self._lines, f"return [{', '.join([made[-1], *others])}]"]
        text = f"def program({', '.join(self._inputs)}):\n" + "".join(f"    {line}\n" for line in body)
        return RandomProgram(text, [*self._inputs.values()], draw.random() < 0.2, self._backward)

    def _kinds(self) -> list[Callable[[str], None]]:
        often = [self._product, self._product, self._heads, self._permuted, self._pointwise, self._pointwise]
        some = [
            self._batched,
            self._slice,
            self._shape,
            self._reduced,
            self._written,
            self._joined,
            self._cast,
            self._placed,
            self._placed,
            self._changed,
            self._changed,
        ]
        rare = [self._bits, self._input_written, self._copied, self._sorted, self._convolved, self._strided]
        rare += [self._paired, self._several_products]
        return [*often, *often, *some, *some, *rare]

    # -- adding ----------------------------------------------------------------------------------------

    def _input(self, *shape: int) -> str:
        name = f"x{len(self._inputs)}"
        self._inputs[name] = self._laid_out(shape)
        self._values[name] = _copy(self._inputs[name])
        return name

    def _laid_out(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Random numbers, mostly contiguous: else permuted, or with gaps and an offset."""
        kind = self._draw.random()
        if kind < 0.8 or not shape:
            return self._randn(*shape)
        order = list(range(len(shape)))
        self._draw.shuffle(order)
        if kind < 0.9:
            back = [order.index(i) for i in range(len(shape))]
            return self._randn(*(shape[i] for i in order)).permute(back)
        at = self._number(len(shape))
        return self._randn(*(n + 3 * (i == at) for i, n in enumerate(shape))).narrow(at, 2, shape[at])

    def _randn(self, *shape: int) -> torch.Tensor:
        return (torch.randn(shape, generator=self._numbers) / 2).to(self._dtype)

    def _add(self, expression: str, *more: str, exact: bool = False) -> None:
        """`{new}` in further statements is the variable that the expression is assigned to."""
        new = f"v{len(self._lines)}"
        lines = [f"{new} = {expression}", *(each.replace("{new}", new) for each in more)]
        names: dict[str, Any] = {"torch": torch, "F": F, **self._values}
        before = {name: value.clone() for name, value in self._values.items()}
        try:
            exec("\n".join(lines), names)
        except (RuntimeError, NotImplementedError):  # not of this dtype
            self._values |= before
            return
        if names[new].numel() > _LARGEST or not names[new].numel():
            self._values |= before
            return
        self._lines.append("; ".join(lines))
        self._values[new] = names[new]
        self._steps.append(new)
        if exact:
            self._exact.add(new)

    def _number(self, size: int) -> int:
        return self._draw.randrange(size)

    def _float(self, name: str) -> bool:
        return self._values[name].dtype == self._dtype

    # -- the kinds of statements -------------------------------------------------------------------------

    def _product(self, x: str) -> None:
        shape = list(self._values[x].shape)
        if not self._float(x) or not shape:
            return
        n = self._draw.choice([shape[-1], 4, 8, 12, 16])
        weight = self._input(shape[-1], n)
        flat = self._draw.choice([f"({x}.reshape(-1, {shape[-1]}) @ {weight})", f"({x} @ {weight})"])
        is_flat = "reshape" in flat and self._draw.random() < 0.5
        self._add(f"{flat}.view({[*shape[:-1], n]})" if is_flat else flat)

    def _batched(self, x: str) -> None:
        if self._values[x].dim() < 2 or not self._float(x):
            return
        self._add(self._draw.choice([f"{x} @ {x}.transpose(-1, -2)", f"{x}.transpose(-1, -2) @ {x}"]))

    def _heads(self, x: str) -> None:
        shape = list(self._values[x].shape)
        heads = [h for h in (2, 3, 4) if shape and shape[-1] % h == 0 and shape[-1] > h]
        if not heads or len(shape) > 4:
            return
        h = self._draw.choice(heads)
        order = list(range(len(shape) + 1))
        self._draw.shuffle(order)
        self._add(f"{x}.reshape({[*shape[:-1], h, shape[-1] // h]}).permute({order})", exact=x in self._exact)

    def _permuted(self, x: str) -> None:
        order = list(range(self._values[x].dim()))
        self._draw.shuffle(order)
        self._add(f"{x}.permute({order})", exact=x in self._exact)

    def _shape(self, x: str) -> None:
        value = self._values[x]
        if value.dim() < 2:
            return
        at = self._number(value.dim() - 1)
        self._add(f"{x}.flatten({at}, {at + 1})", exact=x in self._exact)

    def _slice(self, x: str) -> None:
        index = self._index(x)
        if index:
            self._add(f"{x}[{index}]", exact=x in self._exact)

    def _index(self, x: str) -> str:
        """Part of a value: every element of some dimensions, a range or every second one of another."""
        shape = self._values[x].shape
        fitting = [d for d, n in enumerate(shape) if n > 1]
        if not fitting:
            return ""
        at = self._draw.choice(fitting)
        start = self._number(shape[at])
        end = self._draw.randint(start + 1, shape[at])
        part = self._draw.choice([f"{start}:{end}", f"{start}:{end}", f"{start % 2}::2", str(start)])
        return ", ".join([":"] * at + [part])

    def _pointwise(self, x: str) -> None:
        others = [o for o in self._steps if self._fits(o, x) and o != x]
        if others and self._draw.random() < 0.6:
            other = self._draw.choice(others)
            self._add(self._draw.choice(["{0} + {1}", "{0} * {1}", "{0} * {1} + {0}"]).format(x, other))
        elif self._draw.random() < 0.4:
            last = self._values[x].shape[-1:]
            self._add(f"{x} * {self._input(*self._draw.choice([last, self._values[x].shape]))} + 1")
        elif self._values[x].is_floating_point():
            self._add(self._draw.choice(_FUNCTIONS).format(x))

    def _fits(self, a: str, b: str) -> bool:
        x, y = self._values[a], self._values[b]
        return x.shape == y.shape and x.dtype == y.dtype

    def _reduced(self, x: str) -> None:
        value = self._values[x]
        if not value.dim() or not value.is_floating_point():
            return
        dim = self._number(value.dim())
        kinds = [f"{x}.sum({dim}, keepdim=True)", f"{x} - {x}.mean({dim}, keepdim=True)", f"{x}.amax({dim})"]
        kinds += [f"{x}.softmax({dim})", f"F.layer_norm({x}, [{value.shape[-1]}])", f"{x}.cumsum({dim})"]
        self._add(self._draw.choice(kinds))

    def _written(self, x: str) -> None:
        index = self._index(x)
        if not index or not self._values[x].is_floating_point():
            return
        fresh = self._draw.choice([f"{x}.clone()", f"{x} + 1", f"{x}.contiguous() * 2"])
        changes = ["{new}[INDEX].mul_(2)", "{new}[INDEX] = 3", "{new}[INDEX].add_(BASE.sin())"]
        change = self._draw.choice([*changes, "{new}.t_()" if self._values[x].dim() == 2 else changes[0]])
        self._add(fresh, change.replace("INDEX", index).replace("BASE", f"{x}[{index}]"))

    def _input_written(self, x: str) -> None:
        """A write to an input of the program."""
        if x not in self._inputs or self._backward:
            return
        index = self._index(x)
        self._add(f"{x} * 1", f"{x}[{index}].add_(1)" if index else f"{x}.mul_(2)")
        self._exact.discard(x)

    def _joined(self, x: str) -> None:
        value = self._values[x]
        if not value.dim():
            return
        dim = self._number(value.dim())
        others = [o for o in self._steps if self._fits(o, x)]
        other = self._draw.choice(others)
        whole = (
            f"torch.cat([{x}, {other}], {dim})"
            if self._draw.random() < 0.7
            else f"torch.stack([{x}, {other}])"
        )
        if value.is_floating_point() and self._draw.random() < 0.6:
            whole = whole.replace(f"[{x},", f"[{x}.sin(),")
        self._add(whole)

    def _cast(self, x: str) -> None:
        to = self._draw.choice(["torch.float32", "torch.float64", "torch.bfloat16", "torch.float32"])
        if self._values[x].is_floating_point():
            self._add(f"{x}.to({to}) * 2")

    def _bits(self, x: str) -> None:
        """Memory looked at in another dtype; only of values that rounding has no part in."""
        bits = {torch.float32: "torch.int32", torch.float16: "torch.int16", torch.float64: "torch.int64"}
        value = self._values[x]
        if x not in self._exact or value.dtype not in bits or not value.dim() or self._backward:
            return
        kinds = [f"({x}.contiguous().view({bits[value.dtype]}) + 1).view({value.dtype})"]
        if value.dtype is torch.float32:
            kinds.append(f"{x}.contiguous().view(torch.int16) + 1")
            kinds.append(f"{x}.contiguous().view(torch.uint8)")
        if value.dtype is torch.float32 and value.shape[-1] % 2 == 0:
            kinds.append(f"torch.view_as_real(torch.view_as_complex({x}.reshape(-1, 2)) * 2)")
        self._add(self._draw.choice(kinds), exact=True)

    def _copied(self, x: str) -> None:
        kinds = [f"{x}.contiguous()", f"{x}.clone()"]
        if self._values[x].dim() == 4:
            kinds.append(f"{x}.contiguous(memory_format=torch.channels_last)")
        self._add(self._draw.choice(kinds), exact=x in self._exact)

    def _sorted(self, x: str) -> None:
        if self._values[x].dim() and x in self._exact:
            self._add(f"torch.sort({x}, dim=-1, stable=True)[0]", exact=True)

    def _convolved(self, x: str) -> None:
        shape = self._values[x].shape
        if len(shape) == 4 and self._values[x].dtype is torch.float32:
            self._add(f"F.conv2d({x}, {self._input(4, shape[1], 1, 1)})")

    def _strided(self, x: str) -> None:
        if self._values[x].numel() % 4 == 0 and self._values[x].dtype == self._dtype:
            n = self._values[x].numel() // 4
            self._add(f"{x}.contiguous().as_strided([{n}, 4], [1, {n}])", exact=x in self._exact)

    def _placed(self, x: str) -> None:
        statement = self._draw.choice(view_statements.copied(x, self._values[x].shape, self._draw))
        self._add(*statement, exact=x in self._exact)

    def _changed(self, x: str) -> None:
        if self._values[x].is_floating_point():
            self._add(*self._draw.choice(view_statements.computed(x, self._values[x].shape, self._draw)))

    def _paired(self, x: str) -> None:
        value = self._values[x]
        if value.dtype in (torch.float32, torch.float64) and value.numel() % 2 == 0 and not self._backward:
            self._add(*self._draw.choice(view_statements.of_pairs(x, self._draw)))

    def _several_products(self, x: str) -> None:
        """Joined or split: each product may be written to a slice of one memory."""
        shape = self._values[x].shape
        if not self._float(x) or not shape:
            return
        one, other = self._input(shape[-1], 4), self._input(shape[-1], 8)
        whole = f"torch.cat([{x} @ {one}, {x} @ {other}], -1)"
        kinds = [
            whole,
            f"{whole}.split([4, 8], -1)[1] * 2",
            f"{whole}.relu()",
            f"({x} @ {other}).chunk(2, -1)[0] * 2",
        ]
        self._add(self._draw.choice(kinds))
