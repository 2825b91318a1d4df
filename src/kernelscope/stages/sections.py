"""The four sections of a graph's document, as text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]


@dataclass(frozen=True)
class Shown:
    """Which sections, and which parts of them."""

    fx: bool = True
    dag: bool = True
    code: bool = True
    wrapper: bool = True
    metadata: bool = True  # meta of nodes, and the inputs' tensors
    flow: bool = True  # connections between nodes
    lines: int = 0  # at most so many of each part; 0 for all


def title(text: str) -> list[str]:
    return ["", "=" * 80, f"=== {text} ===", "=" * 80]


def heading(text: str) -> list[str]:
    return ["", "-" * 60, f"--- {text} ---", "-" * 60]


def _entry(first: str, **fields: object) -> list[str]:
    """A line, and an indented line for each field: `Memory type: …` for memory_type."""
    return [first, *(f"  {name.capitalize().replace('_', ' ')}: {value}" for name, value in fields.items())]


def render(document: Document, shown: Shown = Shown()) -> str:  # noqa: B008  # frozen
    """The sections that the document has, as far as they are to be shown."""
    lines: list[str] = []
    for is_shown, part, section in (
        (shown.fx, "fx", _fx),
        (shown.dag, "dag", _dag),
        (shown.code, "code", _code),
        (shown.wrapper, "wrapper", _wrapper),
    ):
        if is_shown and document.get(part) is not None:
            lines += section(document[part], shown)
    return "\n".join(lines)


def _cut(lines: list[str], shown: Shown) -> list[str]:
    """The lines that fit, and the number of the others."""
    if not shown.lines or len(lines) <= shown.lines:
        return lines
    return [*lines[: shown.lines], f"… {len(lines) - shown.lines} more lines"]


def _apart(entries: Iterable[list[str]]) -> list[str]:
    """Entries with an empty line between them."""
    lines: list[str] = []
    for entry in entries:
        lines += ["", *entry] if lines else entry
    return lines


def _fx(fx: Document, shown: Shown) -> list[str]:
    lines = [*title("FX GRAPH MODULE"), "Graph Structure:", *_cut(fx["graph"].splitlines(), shown)]
    lines += [*heading("Generated Code"), *_cut(fx["code"].splitlines(), shown)]
    lines += heading("Node Details")
    entries = []
    for number, node in enumerate(fx["nodes"]):
        fields = {key: node[key] for key in ("op", "target", "args", "kwargs")}
        fields |= {"meta": _mapping(node["meta"])} if shown.metadata else {}
        entries.append(_entry(f"Node {number}: {node['name']}", **fields))
    lines += _cut(_apart(entries), shown)
    if shown.metadata:
        inputs = _apart(map(_input, fx["inputs"]))
        lines += [*heading("Input Tensor Information"), *_cut(inputs, shown)]
    return lines


def _input(given: Document) -> list[str]:
    fields = {key: given[key] for key in ("shape", "dtype", "device", "requires_grad")}
    return [*_entry(f"Input {given['index']}:", **fields), *_continued("  Data: ", given["data"])]


def _continued(start: str, text: str) -> list[str]:
    first, *rest = text.splitlines() or [""]
    return [start + first, *(" " * len(start) + line for line in rest)]


def _mapping(items: Document) -> str:
    return "{" + ", ".join(f"{key!r}: {value}" for key, value in items.items()) + "}"


def _dag(dag: Document, shown: Shown) -> list[str]:
    lines = title("INTERNAL DAG REPRESENTATION")
    lines += [f"Total nodes: {len(dag['nodes'])}", f"Input buffers: {len(dag['inputs'])}"]
    lines += [f"Output buffers: {len(dag['outputs'])}"]
    for word in ("Input", "Output"):
        buffers = dag[f"{word.lower()}s"]
        lines += heading(f"{word} Buffers")
        lines += _cut(_apart(_buffer(f"{word} {number}", b) for number, b in enumerate(buffers)), shown)
    lines += heading("Computation Nodes")
    lines += _cut(_apart(_node(number, node, shown) for number, node in enumerate(dag["nodes"])), shown)
    if shown.flow:
        lines += [*heading("Data Flow Connections"), "Data Flow Graph:", *_cut(_flow(dag), shown)]
    return lines


def _buffer(label: str, b: Document) -> list[str]:
    shape = ", ".join(map(str, b["shape"])) + ("," if len(b["shape"]) == 1 else "")
    return _entry(f"{label}: {b['name']}", shape=f"({shape})", dtype=b["dtype"], scope=b["scope"])


def _node(number: int, node: Document, shown: Shown) -> list[str]:
    inputs, outputs = (f"[{', '.join(node[key])}]" for key in ("inputs", "outputs"))
    metadata = {"metadata": _mapping(node["metadata"])} if shown.metadata else {}
    first = f"Node {number}: {node['name']}"
    return _entry(first, inputs=inputs, outputs=outputs, **metadata, type=node["type"])


def _flow(dag: Document) -> list[str]:
    label = {node["name"]: f"Node_{number}_{node['name']}" for number, node in enumerate(dag["nodes"])}
    targets: dict[str, list[str]] = {}
    for a, b in dag["edges"]:
        targets.setdefault(a, []).append(label[b])
    return [
        f"  {label[node['name']]} -> {', '.join(targets.get(node['name'], ())) or '(no connections)'}"
        for node in dag["nodes"]
    ]


def _code(code: Document, shown: Shown) -> list[str]:
    lines = [*title(code["title"]), *heading(code["heading"]), *_cut(code["text"].splitlines(), shown)]
    if code["device_text"]:
        lines += [*heading("Device Kernel Code"), *_cut(code["device_text"].splitlines(), shown)]
    return lines


def _wrapper(wrapper: Document, shown: Shown) -> list[str]:
    lines = [*title("HOST WRAPPER INTEGRATION"), *heading("Function Signature")]
    lines += [f"Generated signature: {s}" for s in wrapper["signatures"]]
    lines += heading("Buffer Allocation & Memory Management")
    lines += _cut(_apart(_allocation(b) for b in wrapper["buffers"]), shown)
    lines += [*heading("Critical Host Wrapper Code"), "Data Marshalling & Execution Code:"]
    return lines + _cut([f"{line['number']:5d}: {line['text']}" for line in wrapper["critical"]], shown)


def _allocation(b: Document) -> list[str]:
    fields = {key: b[key] for key in ("alignment", "memory_type", "dtype")}
    shape = f"[{', '.join(map(str, b['shape']))}]"
    return _entry(f"Buffer: {b['name']}", size=f"{b['size']} bytes", **fields, shape=shape)
