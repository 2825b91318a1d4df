"""Random Choreo programs, right and wrong ones, of all constructs."""

from __future__ import annotations

import random

_BUILTINS = ("exp", "gelu", "softplus", "sqrtf", "fabs", "tanh", "rsqrt", "log1p", "floor", "isfinite")
_DEVICE = "__cok__ {\n__co_device__ static int twice_of(int x) { return 2 * x; }\n}\n"


class _Writer:
    """Writes one function; now and then something that is not allowed."""

    def __init__(self, r: random.Random, number: int) -> None:
        self.r = r
        self.number = number
        self.rows, self.columns = r.choice([2, 4, 6]), r.choice([4, 8])
        self.lines: list[str] = []
        self.depth = 1
        self.serial = 0
        self.bounded: list[tuple[str, int]] = []
        self.mutable: list[str] = []
        self.in_parallel = self.in_team = self.in_loop = False

    def text(self) -> str:
        r = self.r
        head = f"#define ROWS_{self.number} {self.rows}\n" if r.random() < 0.5 else ""
        rows = f"ROWS_{self.number}" if head else str(self.rows)
        shape = f"[{rows}, {self.columns}]"
        self.emit(f"s32 {shape} out {{{r.randint(0, 9)}}};")
        for _ in range(r.randint(2, 5)):
            self.statement(3)
        body = "\n".join(self.lines)
        name = f"r{self.number}"
        parameters = f"s32 {shape} x, f32 [{self.columns}] y, int n"
        return f"{head}{_DEVICE}__co__ auto {name}({parameters}) {{\n{body}\n  return out;\n}}\n"

    def emit(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def fresh(self, stem: str) -> str:
        self.serial += 1
        return f"{stem}{self.serial}"

    # -- expressions -----------------------------------------------------------------------------------

    def index(self, extent: int) -> str:
        r = self.r
        fitting = [name for name, bound in self.bounded if bound == extent]
        if fitting and r.random() < 0.8:
            return r.choice(fitting)
        if r.random() < 0.04:
            return str(extent + r.randint(0, 2))  # wrong
        if self.bounded and r.random() < 0.3:
            return f"{r.choice(self.bounded)[0]} % {extent}"
        return str(r.randrange(extent))

    def element(self, name: str = "x") -> str:
        return f"{name}.at({self.index(self.rows)}, {self.index(self.columns)})"

    def whole(self, depth: int = 2) -> str:
        r = self.r
        if depth == 0:
            names = [*self.mutable, *(n for n, _ in self.bounded), "n"]
            return r.choice([str(r.randint(0, 20)), r.choice(names), self.element(), self.some_bound()])
        a, b = self.whole(depth - 1), self.whole(depth - 1)
        return r.choice([
            f"({a} {r.choice('+-*')} {b})", f"({a} % {r.randint(2, 7)})", f"({a} & {r.randint(1, 15)})",
            f"({a} > {b} ? {a} : {b})", f"~({a})", f"__alignup({a}, 4)", f"cdiv({a}, 3)",
            f"call twice_of({a})", f"select({a} < {b}, {a}, {b})", f"__to<s32>({self.fraction(1)})", a,
        ])  # fmt: skip

    def some_bound(self) -> str:
        """`#i`; the extent of a span where there is no variable."""
        return f"#{self.r.choice(self.bounded)[0]}" if self.bounded else "x.span(0)"

    def fraction(self, depth: int) -> str:
        r = self.r
        if depth == 0:
            return r.choice([f"{r.randint(0, 9)}.5f", f"y.at({self.index(self.columns)})", "__to<f32>(n)"])
        a = self.fraction(depth - 1)
        return r.choice([f"__{r.choice(_BUILTINS)}({a})", f"({a} * {self.fraction(0)})", a])

    def condition(self) -> str:
        return f"{self.whole(1)} {self.r.choice(['<', '>', '==', '!=', '<='])} {self.whole(1)}"

    # -- statements ------------------------------------------------------------------------------------

    def statement(self, depth: int) -> None:
        r = self.r
        simple = [self.store, self.store, self.scalar, self.update, self.named, self.printed]
        nested = [self.loop, self.loop, self.branch, self.repeat, self.tuple_loop, self.parallel, self.tile]
        nested += [self.array, self.buffering, self.threads, self.window, self.tied, self.matrix]
        r.choice(simple if depth == 0 else [*simple, *nested, *nested])(depth - 1)

    def block(self, head: str, depth: int, count: int = 2) -> None:
        self.emit(head + " {")
        self.depth += 1
        bounded, mutable = list(self.bounded), list(self.mutable)
        for _ in range(self.r.randint(1, count)):
            self.statement(max(depth, 0))
        self.bounded, self.mutable = bounded, mutable
        self.depth -= 1
        self.emit("}")

    def store(self, depth: int) -> None:
        op = self.r.choice(["=", "=", "+=", "-=", "|="])
        self.emit(f"{self.element('out')} {op} {self.whole()};")

    def scalar(self, depth: int) -> None:
        name = self.fresh("v")
        kind = self.r.choice(["int", "s32", "u32", "s64", ""])
        init = self.r.choice([f" = {self.whole()}", f"{{{self.r.randint(0, 9)}U}}"])
        self.emit(f"mutable {kind} {name}{init};".replace("  ", " "))
        self.mutable.append(name)

    def update(self, depth: int) -> None:
        if not self.mutable or self.in_team:
            self.store(depth)
            return
        name = self.r.choice(self.mutable)
        self.emit(self.r.choice([f"{name}++;", f"{name} += {self.whole(1)};", f"{name} = {self.whole(1)};"]))

    def named(self, depth: int) -> None:
        name = self.fresh("w")
        self.emit(f"{name} = {self.whole()};")
        self.emit(f"{self.element('out')} = {name};")

    def printed(self, depth: int) -> None:
        self.emit(f'println("n ", {self.whole(1)}, " ", x.span);')

    def branch(self, depth: int) -> None:
        self.block(f"if ({self.condition()})", depth)
        if self.r.random() < 0.4:
            self.block("else", depth)

    def loop(self, depth: int) -> None:
        name, bound = self.fresh("i"), self.r.choice([2, 3, self.rows, self.columns])
        before = list(self.bounded)
        self.bounded.append((name, bound))
        self.block(f"foreach {name} in [{bound}]", depth)
        self.bounded = before

    def repeat(self, depth: int) -> None:
        name = self.fresh("c")
        self.emit(f"mutable int {name} = 0;")
        self.emit(f"while ({name} < {self.r.randint(1, 4)}) {{")
        self.depth += 1
        self.emit(f"{name}++;")
        if self.r.random() < 0.5:
            self.emit(f"if ({self.condition()}) {self.r.choice(['break', 'continue'])};")
        self.emit(f"out.at(0, 0) += {name};")
        self.depth -= 1
        self.emit("}")

    def tuple_loop(self, depth: int) -> None:
        whole, a, b = self.fresh("t"), self.fresh("a"), self.fresh("b")
        self.emit(f"with {whole} = {{{a}, {b}}} in [{self.rows}, {self.columns}] {{")
        self.depth += 1
        before = list(self.bounded)
        self.bounded += [(a, self.rows), (b, self.columns)]
        self.block(f"foreach {self.r.choice([whole, f'{a}, {b}'])}", 0)
        self.bounded = before
        self.depth -= 1
        self.emit("}")

    def tile(self, depth: int) -> None:
        name, future, inner = self.fresh("i"), self.fresh("fut"), self.fresh("j")
        parts = self.r.choice([self.rows, self.rows, 2, 5])  # 5: wrong
        self.emit(f"foreach {name} in [{parts}] {{")
        self.depth += 1
        word = self.r.choice(["copy", "copy.async"])
        self.emit(f"{future} = dma.{word} x.chunkat({name}, _) => {self.r.choice(['local', 'shared'])};")
        if word == "copy.async" and self.r.random() < 0.95:
            self.emit(f"wait {future};")
        read = self.r.choice([future, f"{future}.data"])
        self.emit(f"foreach {inner} in [{self.columns}] out.at(0, {inner}) += {read}.at(0, {inner});")
        self.emit(f"dma.copy {read} => out.chunkat({name}, _);")
        self.depth -= 1
        self.emit("}")

    def array(self, depth: int) -> None:
        name, i = self.fresh("q"), self.fresh("i")
        count = self.r.randint(1, 3)
        self.emit(f"local s32 [1, {self.columns}] {name}[{count}];")
        self.emit(f"foreach {i} in [{self.rows}] {{")
        at = self.r.choice([f"{i} % {count}", "0", str(count) if self.r.random() < 0.1 else "0"])
        self.emit(f"  dma.copy x.chunkat({i}, _) => {name}[{at}];")
        self.emit(f"  dma.copy {name}[{at}] => out.chunkat({i}, _);")
        self.emit("}")

    def window(self, depth: int) -> None:
        """A window that may be too large, or lie too far down."""
        f, r = self.fresh("fut"), self.r
        high, wide = r.randint(1, self.rows + 1), r.randint(1, self.columns)
        view = f"view({high}, {wide}).from({r.randint(0, 1)}, {r.choice(['0', 'n'])})"
        tile = f"subspan({high}, {wide}).step({r.randint(1, 2)}, 1).stride(1, {r.randint(1, 2)}).at(0, n)"
        rest = f"modspan({high}, _).at({self.rows // high}, 0)"
        self.emit(f"{f} = dma.copy x.{r.choice([view, tile, rest])} => local;")
        self.emit(f"foreach k in [|{f}.span|] {{ out.at(0, 0) += k * {f}.at(0, 0); }}")

    def tied(self, depth: int) -> None:
        a, b = self.fresh("a"), self.fresh("b")
        other = self.rows if self.r.random() < 0.9 else self.rows + 1  # wrong
        self.emit(f"with {a} in [{self.rows}], {b} in [{other}] where {a} <-> {b} {{")
        self.emit(f"  foreach {self.r.choice([a, b])} : unroll({a}) {{ out.at({a}, 0) -= x.at({b}, 1); }}")
        self.emit("}")

    def matrix(self, depth: int) -> None:
        c, a, b = self.fresh("m"), self.fresh("m"), self.fresh("m")
        order = self.r.choice(["row.row", "row.row", "col.col", "row.col"])  # of x and x: the first fits
        self.emit(f"{c} = mma.fill{self.r.choice(['', '.f32'])} {self.fraction(0)};")
        self.emit(f"{a} = mma.load x;")
        self.emit(f"{b} = mma.load out;")
        self.emit(f"mma.{order} {c}, {a}, {b};")
        self.emit(f"{c} {self.r.choice(['+=', '*='])} 2;")
        self.emit(f"local s32 [{self.rows}, {self.rows}] t{c};")
        self.emit(f"mma.store{self.r.choice(['', '.transp'])} {c}, t{c};")
        self.emit(f"out.at(0, 1) += t{c}.at(0, 1);")

    def buffering(self, depth: int) -> None:
        t, a, b = self.fresh("t"), self.fresh("a"), self.fresh("b")
        turn = self.r.choice([f"swap({a}, {b});", f"rotate({a}, {b});"])
        self.emit(f"with {t} in [{self.rows}] {{")
        self.emit(f"  {a} = dma.copy.async x.chunkat({t}, _) => local;")
        self.emit(f"  {b} = dma.any;")
        self.emit(f"  foreach {t}(1:) {{")
        self.emit(f"    {b} = dma.copy.async x.chunkat({t}, _) => local;")
        self.emit(f"    wait {a};")
        self.emit(f"    dma.copy {a} => out.chunkat({t} - 1, _);")
        self.emit(f"    {turn}")
        self.emit("  }")
        self.emit(f"  wait {self.r.choice([a, f'select(#{t} % 2, {b}, {a})'])};")
        self.emit(f"  dma.copy {a}.data => out.chunkat({t}(-1), _);")
        self.emit("}")

    def parallel(self, depth: int) -> None:
        if self.in_team:
            self.store(depth)
            return
        name = self.fresh("p")
        before, was = list(self.bounded), self.in_parallel
        self.bounded.append((name, self.rows))
        self.in_parallel = True
        self.block(f"parallel {name} by {self.rows}{self.r.choice(['', ' : block'])}", depth - 1)
        self.bounded, self.in_parallel = before, was

    def threads(self, depth: int) -> None:
        if self.in_team:
            self.store(depth)
            return
        p, e, buf = self.fresh("p"), self.fresh("e"), self.fresh("buf")
        self.emit(f"parallel {p} by {self.columns} {{")
        self.emit(f"  shared s32 [{self.columns}] {buf};")
        self.emit(f"  shared event {e}[{self.columns}];")
        self.emit(f"  {buf}.at({p}) = x.at(0, {p});")
        self.emit(f"  {self.r.choice(['sync.shared', 'sync.barrier : block', 'sync.fence : thread'])};")
        self.emit(f"  __atomic_{self.r.choice(['add', 'max', 'xor', 'exch'])}(out.at(1, 0), {p});")
        kind = self.r.choice(["", ".async"])
        self.emit(f"  inthreads{kind} ({p} == 0) {{ trigger {e}; }}")
        if self.r.random() < 0.9:
            self.emit(f"  inthreads{kind} ({p} > {self.r.randint(0, 2)}) {{ wait {e}[{p}]; }}")
        self.emit(f"  out.at(0, {p}) = {buf}.at({self.columns - 1} - {p});")
        self.emit("}")


def program(seed: int) -> str:
    """One random program; its function is called r{seed}."""
    return _Writer(random.Random(seed), seed).text()
