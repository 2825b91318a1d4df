"""Kernels that compute every element on its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernelscope.gcu.lowering.dag import ELEMENT, INDEX, Access, Node
from kernelscope.gcu.lowering.fuse import Hint, Plan, collapse
from kernelscope.gcu.lowering.sizes import Size, is_one, product

from .kernels import Names, covers, identifier

TILE = 16 << 10  # elements that a tile may have


@dataclass(frozen=True)
class Chunk:
    """Which part of each dimension a tile is."""

    at: list[str]  # as `chunkat` takes it
    tile: list[int]
    absolute: list[str]  # the index of an element in the whole


class Bodies:
    """Expressions of nodes, one after another."""

    def __init__(self, made: Plan, names: Names) -> None:
        self.made = made
        self.names = names
        self.source = {n.output: n for n in made.nodes}

    def value(self, n: Node, reads: list[str]) -> str:
        text = n.body
        for place in range(len(reads) - 1, -1, -1):
            text = text.replace(f"${place}", reads[place])
        return text

    @staticmethod
    def variable(n: Node) -> str:
        return f"v_{n.name}"


def in_memory_order(made: Plan, outputs: list[str], hint: Hint) -> Plan:
    """The same plan with its dimensions from the slowest to the fastest of what is stored."""
    stored = next((made.stores[n.name] for n in made.nodes if n.output in outputs), None)
    if stored is None:
        return made
    order = sorted(range(len(made.dims)), key=lambda i: -hint(stored.strides[i]))

    def moved(a: Access) -> Access:
        return replace(a, strides=tuple(a.strides[i] for i in order))

    return replace(
        made,
        dims=tuple(made.dims[i] for i in order),
        reads={k: moved(a) for k, a in made.reads.items()},
        stores={k: moved(a) for k, a in made.stores.items()},
    )


class PointwiseBody(Bodies):
    def __init__(self, made: Plan, names: Names, outputs: list[str], hint: Hint, threads: int) -> None:
        super().__init__(in_memory_order(made, outputs, hint), names)
        self.outputs = outputs
        self.hint = hint
        runs = self._runs()
        self.dims: list[Size] = [product(self.made.dims[i] for i in run) for run in runs] or [1]
        self._runs_found = runs
        self.threads = threads
        self.parallel_dim = self._parallel_dim()
        extent = self.dims[self.parallel_dim]
        self.threads = min(threads, extent) if isinstance(extent, int) else threads

    def _runs(self) -> list[list[int]]:
        made = self.made
        accesses = [a.strides for a in (*made.reads.values(), *made.stores.values())]
        runs = collapse(made.dims, accesses, [0] * len(made.dims))
        last = made.dims[-1] if made.dims else 1
        # A matrix that is large enough, or small enough not to matter, is left a matrix: it reads better.
        total = self.hint(product(made.dims))
        if len(runs) == 1 and len(made.dims) == 2 and (self.hint(last) >= 64 or total < 4096):
            return [[0], [1]]
        return runs

    def _parallel_dim(self) -> int:
        sizes = [self.hint(d) for d in self.dims]
        least = 8 if self.hint(product(self.dims)) >= 4096 else self.threads
        enough = [i for i, s in enumerate(sizes) if s >= least]
        return enough[0] if enough else sizes.index(max(sizes))

    def _over(self, access: Access) -> Access:
        strides: tuple[Size, ...] = tuple(access.strides[run[-1]] for run in self._runs_found) or (0,)
        return replace(access, strides=strides)

    def lines(self) -> list[str]:
        extent = self.dims[self.parallel_dim]
        if (
            isinstance(extent, int)
            and extent % self.threads == 0
            and all(isinstance(d, int) for d in self.dims)
        ):
            return self._in_tiles()
        return self._by_element(extent)

    # -- tiles that are copied in, computed and copied out ---------------------------------------------

    def _in_tiles(self) -> list[str]:
        pd, last = self.parallel_dim, len(self.dims) - 1
        loops = self._loops()
        counts = [1] * len(self.dims)
        counts[pd] = self.threads * loops
        tile = [d // c for d, c in zip(self.dims, counts, strict=True)]
        chunk = ["_"] * len(self.dims)
        chunk[pd] = "p # index"
        if loops == 1 and pd != last:
            chunk[pd], chunk[last] = "p", "index"
        absolute = [f"i{d}" for d in range(len(self.dims))]
        for d, c in enumerate(chunk):
            if c != "_":
                start = {"p # index": f"(p * {loops} + index)"}.get(c, c)
                absolute[d] = f"{start} * {tile[d]} + i{d}" if counts[d] > 1 else f"i{d}"
        inner = self.one_tile(Chunk(chunk, tile, absolute))
        body = [f"foreach index in [{loops}] {{", *("  " + line for line in inner), "}"]
        return [f"parallel p by {self.threads} {{", *("  " + line for line in body), "}"]

    def one_tile(self, c: Chunk) -> list[str]:
        """What is done with one tile: copied in, computed, copied out."""
        whole = self._is_plain()
        index = ["i"] if whole else [f"i{d}" for d in range(len(self.dims))]
        copies, reads = self._copied_in(c.at, index, c.absolute)
        inner = copies + self._locals(c.tile)
        inner += [f"foreach {'i' if whole else '{' + ', '.join(index) + '}'} in {self._span(c.tile)} {{"]
        inner += ["  " + line for line in self._statements(reads, index)]
        inner += ["}"]
        for buffer in self.outputs:
            shaped = self._shaped(buffer)
            order = [c.at[i] for i in self._place(buffer)]
            inner.append(f"dma.copy {self._local(buffer)} => {shaped}.chunkat({', '.join(order) or '_'});")
        return inner

    def read_across(self, access: Access) -> list[int] | None:
        """The dimensions of a buffer as it lies, if tiles of it shall be transposed on their way."""
        return None

    def _loops(self) -> int:
        """Into how many tiles each thread's part is divided, so that a tile fits into local memory."""
        share = int(self.dims[self.parallel_dim]) // self.threads
        elements = int(product(self.dims)) // self.threads
        return next((n for n in range(1, share + 1) if share % n == 0 and elements // n <= TILE), share)

    def _is_plain(self) -> bool:
        accesses = [self._over(a) for a in (*self._outside().values(), *self.made.stores.values())]
        every = list(range(len(self.dims)))
        ones = any(is_one(d) for d in self.dims)
        return not ones and all(
            a.buffer != INDEX and covers(a, self.dims, self.names.buffer(a.buffer)) == every for a in accesses
        )

    def _outside(self) -> dict[tuple[str, int], Access]:
        return {k: a for k, a in self.made.reads.items() if a.buffer not in self.source}

    def _span(self, tile: list[int]) -> str:
        return (
            f"[{', '.join(map(str, tile))}]"
            if not self._is_plain()
            else f"{self._local(self.outputs[0])}.span"
        )

    def _place(self, buffer: str) -> list[int]:
        access = self._over(self.made.stores[self.source[buffer].name])
        found = covers(access, self.dims, self.names.buffer(buffer))
        if found is None:  # stored in another order than it is computed in
            found = sorted(range(len(self.dims)), key=lambda i: -self.hint(access.strides[i]))
        return found

    def _shaped(self, buffer: str) -> str:
        return self.names.shaped(buffer, [self.dims[i] for i in self._place(buffer)] or [1])

    def _local(self, buffer: str) -> str:
        return "l1_out" if len(self.outputs) == 1 else f"{self.names[buffer]}_out"

    def _locals(self, tile: list[int]) -> list[str]:
        lines = []
        for buffer in self.outputs:
            shape = [tile[i] for i in self._place(buffer)] or [1]
            element = ELEMENT[self.names.buffer(buffer).dtype]
            lines.append(f"local {element} [{', '.join(map(str, shape))}] {self._local(buffer)};")
        return lines

    def _copied_in(
        self, chunk: list[str], index: list[str], absolute: list[str]
    ) -> tuple[list[str], dict[tuple[str, int], str]]:
        """DMAs of the tiles, and how each read is written."""
        futures: dict[tuple[str, tuple[int, ...]], str] = {}
        reads: dict[tuple[str, int], str] = {}
        lines: list[str] = []
        outside = self._outside()
        tiled = {}
        for key, access in outside.items():
            over = self._over(access)
            found = None
            if over.buffer != INDEX:
                found = covers(over, self.dims, self.names.buffer(over.buffer)) or self.read_across(over)
            if found:
                tiled[key] = (over.buffer, tuple(found))
            else:
                reads[key] = self.names.element(over, self.dims, absolute)
        distinct = list(dict.fromkeys(tiled.values()))
        for number, (buffer, place) in enumerate(distinct):
            pair = ("lf", "rf")[number] if len(distinct) == 2 else "lf"
            name = pair if len(distinct) <= 2 else identifier(f"f{number}")  # f16 is a type
            futures[buffer, place] = name
            shaped = self.names.shaped(buffer, [self.dims[i] for i in place])
            at = ", ".join(chunk[i] for i in place)
            order = [place.index(i) for i in sorted(place)]
            is_across = order != sorted(order)
            move = f"transp<{{{', '.join(map(str, order))}}}>" if is_across else "copy"
            lines.append(f"{name} = dma.{move}.async {shaped}.chunkat({at}) => local;")
        if futures:
            lines.append(f"wait {', '.join(futures.values())};")
        for key, (buffer, place) in tiled.items():
            at = "i" if index == ["i"] else ", ".join(index[i] for i in sorted(place))
            reads[key] = f"{futures[buffer, place]}.data.at({at})"
        return lines, reads

    def _statements(self, reads: dict[tuple[str, int], str], index: list[str]) -> list[str]:
        targets = {}
        for buffer in self.outputs:
            at = "i" if index == ["i"] else ", ".join(index[i] for i in self._place(buffer)) or "0"
            targets[buffer] = f"{self._local(buffer)}.at({at})"
        return self.computed(reads, targets)

    def computed(self, reads: dict[tuple[str, int], str], targets: dict[str, str]) -> list[str]:
        """The values of all nodes, stored where they are wanted outside."""
        lines = []
        used = {a.buffer for a in self.made.reads.values()}
        for n in self.made.nodes:
            given = [
                self.variable(self.source[a.buffer]) if a.buffer in self.source else reads[n.name, place]
                for place, a in enumerate(n.inputs)
            ]
            text = self.value(n, given)
            if n.output in used:
                lines.append(f"{n.compute} {self.variable(n)} = {text};")
                text = self.variable(n)
            if n.output in targets:
                lines.append(f"{targets[n.output]} = {text};")
        return lines

    # -- element by element, with a remainder ----------------------------------------------------------

    def _by_element(self, extent: Size) -> list[str]:
        pd, rank, names = self.parallel_dim, len(self.dims), self.names
        share = self.share(extent)
        at = [f"i{d}" for d in range(rank)]
        main = [*at]
        main[pd] = f"p * ({share}) + i{pd}"
        sizes = [names.size(d) for d in self.dims]
        within = [share if d == pd else sizes[d] for d in range(rank)]
        lines = [f"parallel p by {self.threads} {{"]
        lines += ["  " + line for line in self._loop(at, within, main)]
        if not isinstance(extent, int) or extent % self.threads:
            rest = [*at]
            rest[pd] = f"({share}) * {self.threads} + p"
            left = [d for d in range(rank) if d != pd]
            inner = self._loop([at[d] for d in left], [sizes[d] for d in left], rest)
            lines.append(f"  if (p < {names.size(extent)} % {self.threads}) {{")
            lines += ["    " + line for line in inner]
            lines.append("  }")
        return [*lines, "}"]

    def share(self, extent: Size) -> str:
        if isinstance(extent, int):
            return str(extent // self.threads)
        return f"({self.names.size(extent)}) / {self.threads}"

    def _loop(self, index: list[str], sizes: list[str], absolute: list[str]) -> list[str]:
        names = self.names
        reads = {k: names.element(self._over(a), self.dims, absolute) for k, a in self._outside().items()}
        targets = {}
        for buffer in self.outputs:
            access = self._over(self.made.stores[self.source[buffer].name])
            targets[buffer] = names.element(access, self.dims, absolute)
        body = self.computed(reads, targets)
        if not index:
            return body
        head = f"foreach {{{', '.join(index)}}} in [{', '.join(sizes)}] {{"
        return [head, *("  " + line for line in body), "}"]
