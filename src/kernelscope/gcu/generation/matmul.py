"""Small matrix products; large ones are ATen's."""

from __future__ import annotations

from kernelscope.gcu.lowering.dag import Access, Node
from kernelscope.gcu.lowering.sizes import Size, is_one

from .kernels import Names

WIDTH = 64


def matmul_body(n: Node, names: Names, threads: int) -> list[str]:
    """Over [batch…, m, n, k]. Where n is contiguous, a strip of a row is summed at once."""
    dims: list[Size] = list(n.shape)
    assert n.stores is not None
    *batch, rows, columns, inner = dims
    count = len(batch)
    index = [f"b{i}" for i in range(count)]
    left, right = n.inputs[0], n.inputs[1]
    strips = _is_one(right.strides[-2]) and isinstance(columns, int)
    p_by = min(threads, rows) if isinstance(rows, int) else threads
    share = str(rows // p_by) if isinstance(rows, int) else f"({names.size(rows)}) / {p_by}"
    body = _strips if strips else _dots

    def unit(row: str) -> list[str]:
        return body(n, names, dims, index, row, left, right)

    loops = [*index, "o"]
    sizes = [*(names.size(b) for b in batch), share]
    lines = [f"parallel p by {p_by} {{", f"  foreach {{{', '.join(loops)}}} in [{', '.join(sizes)}] {{"]
    lines += ["    " + line for line in unit("p # o")]
    lines.append("  }")
    if not isinstance(rows, int) or rows % p_by:
        lines.append(f"  if (p < {names.size(rows)} % {p_by}) {{")
        rest = unit(f"(({share}) * {p_by} + p)")
        if index:
            head = f"foreach {{{', '.join(index)}}} in [{names.sizes(batch)}] {{"
            rest = [head, *("  " + line for line in rest), "}"]
        lines += ["    " + line for line in rest]
        lines.append("  }")
    del inner
    return [*lines, "}"]


def _is_one(size: Size) -> bool:
    return is_one(size)


def _strips(
    n: Node, names: Names, dims: list[Size], batch: list[str], row: str, left: Access, right: Access
) -> list[str]:
    columns = int(dims[-2])
    width = next((w for w in (WIDTH, 32, 16, 8) if columns % w == 0), columns)
    at = [*batch, row, f"s * {width} + v" if width < columns else "v", "k"]
    a, b = names.element(left, dims, at), names.element(right, dims, at)
    start = f"__cast_{n.compute}({names.element(n.inputs[2], dims, at)})" if len(n.inputs) > 2 else "0"
    target = names.element(n.stores, dims, at)  # type: ignore[arg-type]
    lines = [
        f"local {n.compute} [{width}] acc;",
        f"foreach v in [{width}] {{",
        f"  acc.at(v) = {start};",
        "}",
        f"foreach k in [{names.size(dims[-1])}] {{",
        f"  {n.compute} one = {a};",
        f"  foreach v in [{width}] {{",
        f"    acc.at(v) = acc.at(v) + one * __cast_{n.compute}({b});",
        "  }",
        "}",
        f"foreach v in [{width}] {{",
        f"  {target} = acc.at(v);",
        "}",
    ]
    if width == columns:
        return lines
    return [f"foreach s in [{columns // width}] {{", *("  " + line for line in lines), "}"]


def _dots(
    n: Node, names: Names, dims: list[Size], batch: list[str], row: str, left: Access, right: Access
) -> list[str]:
    at = [*batch, row, "c", "k"]
    a, b = names.element(left, dims, at), names.element(right, dims, at)
    start = names.element(n.inputs[2], dims, at) if len(n.inputs) > 2 else "0"
    target = names.element(n.stores, dims, at)  # type: ignore[arg-type]
    return [
        f"foreach c in [{names.size(dims[-2])}] {{",
        f"  mutable {n.compute} acc = {start};",
        f"  foreach k in [{names.size(dims[-1])}] {{",
        f"    acc = acc + __cast_{n.compute}({a}) * __cast_{n.compute}({b});",
        "  }",
        f"  {target} = acc;",
        "}",
    ]
