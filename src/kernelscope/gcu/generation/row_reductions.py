"""Kernels that reduce: softmax, layer norm, sums over rows and over columns.

A unit of work is one row, or one strip of columns. It is read once for each chain of reductions: a
pass computes what it can for each element, and reduces; what follows from that is computed once; then comes
the next.
"""

from __future__ import annotations

from dataclasses import replace

from kernelscope.gcu.lowering.dag import INDEX, Access, Node
from kernelscope.gcu.lowering.fuse import Hint, Plan, collapse, kept, repeated
from kernelscope.gcu.lowering.operator_texts import number
from kernelscope.gcu.lowering.pointwise import rounded
from kernelscope.gcu.lowering.sizes import Size, product

from .kernels import Names, covers, identifier
from .pointwise import Bodies

LONG = 4096  # more than so many floats are summed in double precision
WIDTHS = (256, 128, 64, 32, 16, 8)

_KEPT, _REDUCED, _VECTOR = 0, 1, 2
_LOWEST = {
    "u8": 0, "u16": 0, "u32": 0, "u64": 0, "s8": -(2**7), "s16": -(2**15), "s32": -(2**31), "s64": -(2**63),
}  # fmt: skip
_HIGHEST = {
    "u8": 2**8 - 1, "u16": 2**16 - 1, "u32": 2**32 - 1, "u64": 2**63 - 1,
    "s8": 2**7 - 1, "s16": 2**15 - 1, "s32": 2**31 - 1, "s64": 2**63 - 1,
}  # fmt: skip


def nothing(how: str, element: str) -> str:
    """What a reduction starts from."""
    if how in ("sum", "prod"):
        return number(0 if how == "sum" else 1, element)
    if element in ("f32", "f64"):
        return number(float("-inf") if how == "max" else float("inf"), element)
    return number((_LOWEST if how == "max" else _HIGHEST)[element], element)


class RowsBody(Bodies):
    def __init__(self, made: Plan, names: Names, outputs: list[str], hint: Hint, threads: int) -> None:
        super().__init__(made, names)
        self.outputs = outputs
        self.hint = hint
        classes = self._classes()
        accesses = [a.strides for a in (*made.reads.values(), *made.stores.values())]
        self.runs = collapse(made.dims, accesses, classes)
        self.dims: list[Size] = [product(made.dims[i] for i in run) for run in self.runs]
        self.classes = [classes[run[0]] for run in self.runs]
        self.width = self._width(threads)
        self.reduced = [i for i, c in enumerate(self.classes) if c == _REDUCED]
        self.threads = threads
        self._kept = kept(made)

    def _classes(self) -> list[int]:
        made = self.made
        last = max(made.reduced)
        found = [_REDUCED if i in made.reduced else _KEPT for i in range(len(made.dims))]
        if all(isinstance(d, int) for d in made.dims[last + 1 :]):
            found[last + 1 :] = [_VECTOR] * (len(found) - last - 1)
        return found

    def _width(self, threads: int) -> int:
        """How many columns a strip has; 0: there are no columns, only rows."""
        columns = [i for i, c in enumerate(self.classes) if c == _VECTOR]
        if not columns:
            return 0
        self.classes[columns[0] : -1] = [_KEPT] * (len(columns) - 1)  # only the innermost is a strip
        extent = int(self.dims[-1])
        others = self.hint(product(d for d, c in zip(self.dims, self.classes, strict=True) if c == _KEPT))
        # Wide strips are read in order; but what is kept of a row must stay small.
        most = 64 if kept(self.made) else 4096
        for parts in (1, threads, 2 * threads, *(extent // w for w in WIDTHS)):
            if parts and extent % parts == 0 and extent // parts <= most and others * parts >= threads:
                return extent // parts
        if extent <= most:
            return extent
        self.classes[-1] = _KEPT
        return 0

    def _over(self, access: Access) -> Access:
        return replace(access, strides=tuple(access.strides[run[-1]] for run in self.runs))

    # -- loops over units ------------------------------------------------------------------------------

    def lines(self) -> list[str]:
        units: list[tuple[int, Size]] = [(i, self.dims[i]) for i, c in enumerate(self.classes) if c == _KEPT]
        if self.width:
            last = len(self.dims) - 1
            units.append((last, int(self.dims[last]) // self.width))
        if not units:
            return ["parallel p by 1 {", *("  " + line for line in self._unit({})), "}"]
        sizes = [self.hint(s) for _, s in units]
        enough = [k for k, s in enumerate(sizes) if s >= self.threads]
        pd = enough[0] if enough else sizes.index(max(sizes))
        extent = units[pd][1]
        threads = min(self.threads, extent) if isinstance(extent, int) else self.threads
        share = (
            str(extent // threads) if isinstance(extent, int) else f"({self.names.size(extent)}) / {threads}"
        )
        lines = [f"parallel p by {threads} {{"]
        if not isinstance(extent, int) or extent // threads:
            lines += ["  " + line for line in self._main(units, pd, share)]
        if not isinstance(extent, int) or extent % threads:
            lines.append(f"  if (p < {self.names.size(extent)} % {threads}) {{")
            lines += ["    " + line for line in self._rest(units, pd, share, threads)]
            lines.append("  }")
        return [*lines, "}"]

    def _main(self, units: list[tuple[int, Size]], pd: int, share: str) -> list[str]:
        index = [f"o{k}" for k in range(len(units))]
        sizes = [share if k == pd else self.names.size(s) for k, (_, s) in enumerate(units)]
        at = {i: index[k] for k, (i, _) in enumerate(units)}
        at[units[pd][0]] = f"p # {index[pd]}"
        head = f"foreach {{{', '.join(index)}}} in [{', '.join(sizes)}] {{"
        return [head, *("  " + line for line in self._unit(at)), "}"]

    def _rest(self, units: list[tuple[int, Size]], pd: int, share: str, threads: int) -> list[str]:
        index = {k: f"o{k}" for k in range(len(units)) if k != pd}
        at = {i: index.get(k, "") for k, (i, _) in enumerate(units)}
        at[units[pd][0]] = f"(({share}) * {threads} + p)"
        body = self._unit(at)
        if not index:
            return body
        sizes = [self.names.size(units[k][1]) for k in index]
        head = f"foreach {{{', '.join(index.values())}}} in [{', '.join(sizes)}] {{"
        return [head, *("  " + line for line in body), "}"]

    # -- one unit --------------------------------------------------------------------------------------

    def _unit(self, at: dict[int, str]) -> list[str]:
        index = [at.get(i, "") for i in range(len(self.dims))]
        for number_, i in enumerate(self.reduced):
            index[i] = f"r{number_}"
        if self.width:
            last = len(self.dims) - 1
            whole = int(self.dims[last]) == self.width
            index[last] = "v" if whole else f"({at[last]}) * {self.width} + v"
        lines, reads = self._copied_in(at, index)
        for n in self.made.nodes:
            if n.name in self._kept:
                row = [self.names.size(self.dims[i]) for i in self.reduced]
                shape = ", ".join([*row, *([str(self.width)] if self.width else [])])
                lines.append(f"local {n.compute} [{shape}] k_{n.name};")
        for level in range(self.made.passes):
            lines += self._once(level, reads, index)
            lines += self._pass(level, reads, index)
        return lines

    def _copied_in(
        self, at: dict[int, str], index: list[str]
    ) -> tuple[list[str], dict[tuple[str, int], str]]:
        """DMAs of the rows that are read whole, and how each read is written."""
        reads: dict[tuple[str, int], str] = {}
        tiles: dict[str, str] = {}
        lines: list[str] = []
        rows = not self.width and len(self.dims) == 2 and self.classes == [_KEPT, _REDUCED]
        outside = [(k, self._over(a)) for k, a in self.made.reads.items() if a.buffer not in self.source]
        for key, access in outside:
            natural = rows and access.buffer != INDEX
            if natural and covers(access, self.dims, self.names.buffer(access.buffer)) == [0, 1]:
                name = tiles.setdefault(access.buffer, identifier(f"f{len(tiles)}"))
                reads[key] = f"{name}.data.at(0, {index[1]})"
            else:
                reads[key] = self.names.element(access, self.dims, index)
        for buffer, name in tiles.items():
            shaped = self.names.shaped(buffer, self.dims)
            size = self.names.size(self.dims[1])
            lines.append(f"{name} = dma.copy.async {shaped}.subspan(1, {size}).at({at[0]}, 0) => local;")
        if tiles:
            lines.append(f"wait {', '.join(tiles.values())};")
        return lines, reads

    def _read(self, n: Node, reads: dict[tuple[str, int], str], level: int) -> list[str]:
        found = []
        for place, a in enumerate(n.inputs):
            source = self.source.get(a.buffer)
            if source is None:
                found.append(reads[n.name, place])
            elif source.name in self._kept and self.made.level[source.name] < level:
                found.append(f"k_{source.name}.at({self._row_index()})")
            elif self.width and (source.kind == "reduce" or source.name not in self.made.full):
                found.append(f"a_{source.name}.at(v)")
            else:
                found.append(self.variable(source))
        return found

    def _row_index(self) -> str:
        return ", ".join([*(f"r{k}" for k in range(len(self.reduced))), *(["v"] if self.width else [])])

    def _target(self, n: Node, index: list[str]) -> str:
        return self.names.element(self._over(self.made.stores[n.name]), self.dims, index)

    def _once(self, level: int, reads: dict[tuple[str, int], str], index: list[str]) -> list[str]:
        """What is computed once per row, before this pass."""
        body, declared = [], []
        for n in self.made.nodes:
            if n.name in self.made.full or self.made.level[n.name] != level:
                continue
            text = self.value(n, self._read(n, reads, level))
            if self.width:
                declared.append(f"local {n.compute} [{self.width}] a_{n.name};")
                body.append(f"a_{n.name}.at(v) = {text};")
                value = f"a_{n.name}.at(v)"
            else:
                body.append(f"{n.compute} {self.variable(n)} = {text};")
                value = self.variable(n)
            if n.output in self.outputs:
                body.append(f"{self._target(n, index)} = {value};")
        return declared + self._over_strip(body)

    def _over_strip(self, body: list[str]) -> list[str]:
        if not self.width or not body:
            return body
        return [f"foreach v in [{self.width}] {{", *("  " + line for line in body), "}"]

    def _pass(self, level: int, reads: dict[tuple[str, int], str], index: list[str]) -> list[str]:
        now = [n for n in self.made.nodes if n.name in self.made.full and self.made.level[n.name] == level]
        if not now:
            return []
        reductions = [n for n in now if n.kind == "reduce"]
        lines, body = self._start(reductions), []
        used = self._used_in_pass(now)
        body += self._again(now, level, reads)
        for n in now:
            given = self._read(n, reads, level)
            text = self.value(n, given)
            if self._normalises(n):
                lines.append(f"f32 i_{n.name} = 1.0f / {given[1]};")
                text = f"{given[0]} * i_{n.name}"
            if n.kind == "reduce":
                body.append(self._step(n, text))
                continue
            if n.name in used or n.name in self._kept:
                body.append(f"{n.compute} {self.variable(n)} = {text};")
                text = self.variable(n)
            if n.name in self._kept:
                body.append(f"k_{n.name}.at({self._row_index()}) = {text};")
            if n.output in self.outputs:
                body.append(f"{self._target(n, index)} = {text};")
        loops = [f"r{k}" for k in range(len(self.reduced))]
        sizes = ", ".join(self.names.size(self.dims[i]) for i in self.reduced)
        lines.append(f"foreach {{{', '.join(loops)}}} in [{sizes}] {{")
        lines += ["  " + line for line in self._over_strip(body)]
        lines.append("}")
        return lines + self._finish(reductions, index)

    def _normalises(self, n: Node) -> bool:
        """Whether it is the end of a softmax, whose sum is at least 1: one division per row is enough."""
        total = self.source.get(n.inputs[1].buffer) if len(n.inputs) == 2 else None
        if self.width or n.body != "($0 / $1)" or n.compute != "f32" or total is None:
            return False
        if total.how != "sum" or total.inputs[0].buffer != n.inputs[0].buffer:
            return False
        power = self.source.get(n.inputs[0].buffer)
        if power is None or power.body != "__exp($0)":
            return False
        below = self.source.get(power.inputs[0].buffer)
        most = (
            self.source.get(below.inputs[1].buffer) if below is not None and len(below.inputs) == 2 else None
        )
        return below is not None and below.body == "($0 - $1)" and most is not None and most.how == "max"

    def _again(self, now: list[Node], level: int, reads: dict[tuple[str, int], str]) -> list[str]:
        """Cheap values of an earlier pass that this one needs too."""
        wanted = {a.buffer for n in now for a in n.inputs}
        cheap = repeated(self.made)
        return [
            f"{n.compute} {self.variable(n)} = {self.value(n, self._read(n, reads, level))};"
            for n in self.made.nodes
            if n.name in cheap and n.output in wanted and self.made.level[n.name] < level
        ]

    def _used_in_pass(self, now: list[Node]) -> set[str]:
        outputs = {n.output: n.name for n in now}
        read = [outputs[a.buffer] for n in now for a in n.inputs if a.buffer in outputs]
        stored_and_read = [n.name for n in now if n.output in self.outputs and read.count(n.name)]
        return {*read, *stored_and_read}

    def _accumulator(self, n: Node) -> str:
        long = n.how == "sum" and n.compute == "f32" and self._row_length() > LONG
        return "f64" if long else n.compute

    def _row_length(self) -> int:
        return self.hint(product(self.dims[i] for i in self.reduced))

    def _start(self, reductions: list[Node]) -> list[str]:
        lines, body = [], []
        for n in reductions:
            element = self._accumulator(n)
            start = nothing(n.how, element)
            if self.width:
                lines.append(f"local {element} [{self.width}] a_{n.name};")
                body.append(f"a_{n.name}.at(v) = {start};")
            else:
                lines.append(f"mutable {element} acc_{n.name} = {start};")
        return lines + self._over_strip(body)

    def _step(self, n: Node, text: str) -> str:
        place = f"a_{n.name}.at(v)" if self.width else f"acc_{n.name}"
        if n.how in ("sum", "prod"):
            sign = "+" if n.how == "sum" else "*"
            return f"{place} = {place} {sign} ({text});"
        return f"{place} = __{n.how}({place}, {text});"

    def _finish(self, reductions: list[Node], index: list[str]) -> list[str]:
        body = []
        for n in reductions:
            dtype = self.names.buffer(n.output).dtype
            if self.width:
                value = f"a_{n.name}.at(v)"
                if rounded(value, dtype) != value:
                    body.append(f"{value} = {rounded(value, dtype)};")
            else:
                value = self.variable(n)
                body.append(f"{n.compute} {value} = {rounded(f'acc_{n.name}', dtype)};")
            if n.output in self.outputs:
                body.append(f"{self._target(n, index)} = {value};")
        return self._over_strip(body) if any(" = " in line for line in body) else []
