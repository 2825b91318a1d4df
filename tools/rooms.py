"""The rooms of the source tree, and which imports which: a table, and what breaks its rules.

    python tools/rooms.py                print the table, and each broken rule
    python tools/rooms.py --write-docs   put the table into docs/architecture.md

A room is a folder below src/kernelscope, or a file beside them. Rooms stand on floors: a room imports only
rooms further down, and uses no private member of another room. No files import each other in a circle.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "kernelscope"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- rooms: begin -->", "<!-- rooms: end -->"

MOST_FILES = 15  # directly in one folder
MOST_LINES = 350  # in one file

# From the ground up. A room may import the rooms before it.
FLOORS = [
    "errors",
    "supported",
    "events",
    "config",
    "private_files",
    "after_import",
    "late_modules",
    "own_warnings",
    "text",
    "processes",
    "native",
    "generated_code",
    "fingerprint",
    "stages",
    "gcu",
    "model",
    "store",
    "probes",
    "compiler_control",
    "recording",
    "values",
    "options",
    "debug_mode",
    "startup",
    "analysis",
    "determinism",
    "shadowing",
    "invariance",
    "comparison",
    "precision",
    "repro",
    "trials",
    "bisection",
    "reduction",
    "views",
    "export",
    "report",
    "diagnosis",
    "tui",
    "doctor",
    "integrations",
    "pytest_plugin",
    "cli",
    "__main__",
]

Edges = dict[str, set[str]]


def modules() -> dict[str, Path]:
    """Every module by its dotted name below kernelscope; the package itself is ""."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def public_homes() -> dict[str, str]:
    """The module of each public name: `from kernelscope import record` imports `recording`."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    found = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1)
    return {alias.name: node.module or alias.name for node in found for alias in node.names}


@dataclass
class Looked:
    """What the rules need to know of a file: a tree of all would take more memory than the tests."""

    imports: list[ast.Import | ast.ImportFrom] = field(default_factory=list)
    defined: set[str] = field(default_factory=set)  # private names: functions, classes, attributes of self …
    used: list[tuple[int, str]] = field(default_factory=list)  # private names, with the line

    @staticmethod
    def at(tree: ast.AST) -> Looked:
        found, nodes = Looked(), [tree]
        while nodes:
            node = nodes.pop()
            found._add(node)
            for value in vars(node).values():  # `ast.walk` takes several times as long
                if type(value) is list:
                    nodes.extend(each for each in reversed(value) if isinstance(each, ast.AST))
                elif isinstance(value, ast.AST):
                    nodes.append(value)
        return found

    def _add(self, node: ast.AST) -> None:
        names: list[str] = []
        if isinstance(node, ast.Attribute):
            names = [node.attr]
        elif isinstance(node, ast.Import):
            self.imports.append(node)
        elif isinstance(node, ast.ImportFrom):
            self.imports.append(node)
            home = node.module or ""
            is_ours = node.level or home.startswith("kernelscope")
            names = [*(home.split(".") if is_ours else ()), *(alias.name for alias in node.names)]
        self.used += ((node.lineno, name) for name in names if is_private(name))
        self.defined.update(filter(is_private, _defined(node)))


def _defined(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.id if isinstance(node, ast.Name) else node.attr


@cache
def looked_at() -> dict[str, Looked]:
    """Each module of the sources, which are read once."""
    texts = ((name, path.read_text(encoding="utf-8")) for name, path in modules().items())
    return {name: Looked.at(ast.parse(text)) for name, text in texts}


def imported(path: Path, module: str, known: Iterable[str]) -> Iterator[str]:
    """The modules of ours that a file imports, wherever in it, also for type checkers only."""
    return imported_by(Looked.at(ast.parse(path.read_text(encoding="utf-8"))), path, module, set(known))


def imported_by(file: Looked, path: Path, module: str, known: set[str]) -> Iterator[str]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in file.imports:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            parents = ["kernelscope", *filter(None, package.split("."))]
            base = ".".join(parents[: len(parents) + 1 - node.level]) if node.level else ""
            base = ".".join(filter(None, (base, node.module)))
            names = [f"{base}.{alias.name}" for alias in node.names]
        for name in names:
            if name.split(".")[0] != "kernelscope":
                continue
            inner = name.removeprefix("kernelscope").removeprefix(".")
            if module and inner not in known:
                inner = public_homes().get(inner, inner)
            target = inner if inner in known else inner.rpartition(".")[0]
            if target in known and target != module:
                yield target


@cache
def file_edges() -> Edges:
    paths, files = modules(), looked_at()
    known = set(paths)
    return {name: set(imported_by(files[name], path, name, known)) for name, path in paths.items()}


def room_of(module: str) -> str:
    return module.split(".")[0]


def room_edges(files: Edges) -> Edges:
    found: Edges = {}
    for module, targets in files.items():
        rooms = {room_of(target) for target in targets if target} - {room_of(module)}
        found.setdefault(room_of(module), set()).update(rooms)
    found.pop("", None)  # the public names: imports what it hands out
    return found


def circles(edges: Edges) -> list[list[str]]:
    """Groups of names that reach each other (Tarjan)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for target in sorted(edges.get(name, ())):
            if target not in order:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], order[target])
        if low[name] == order[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in sorted(edges):
        if name not in order:
            visit(name)
    return found


# Members of torch, argparse and ctypes that share their name with a private member of ours.
FOREIGN = ("_actions", "_boxed_call", "_handle", "_profiler", "_schema", "_spec")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in FOREIGN


def private_uses(files: Mapping[str, Looked]) -> Iterator[str]:
    """Where a room uses a private member that only other rooms define."""
    homes: dict[str, set[str]] = {}
    for module, file in files.items():
        for name in (*filter(is_private, module.split(".")), *file.defined):
            homes.setdefault(name, set()).add(room_of(module))
    for module, file in files.items():
        for line, name in file.used:
            owners = homes.get(name, {room_of(module)})
            if room_of(module) not in owners:
                rooms = ", ".join(sorted(owners))
                yield f"{module}:{line} uses {name}, a private member of {rooms}"


@cache
def private_uses_in_sources() -> tuple[str, ...]:
    return tuple(private_uses(looked_at()))


def broken_rules() -> list[str]:
    files = file_edges()
    found = []
    for module, targets in sorted(files.items()):
        room = room_of(module)
        for target in sorted(targets):
            if not module or not target or room == room_of(target):
                continue
            if room not in FLOORS or room_of(target) not in FLOORS:
                found.append(f"{module} or {target}: give its room a floor in tools/rooms.py")
            elif FLOORS.index(room_of(target)) > FLOORS.index(room):
                found.append(f"{module} imports {target}, which is further up")
    for room in sorted({room_of(module) for module in modules()} - {"", *FLOORS}):
        found.append(f"{room} has no floor; add it to tools/rooms.py")
    inside = {name: targets - {""} for name, targets in files.items() if name}
    found += ["these files import each other in a circle: " + ", ".join(group) for group in circles(inside)]
    found += private_uses_in_sources()
    in_tree = sources()
    counts = Counter(path.parent for path in in_tree)
    for folder, count in sorted(counts.items()):
        if count > MOST_FILES:
            found.append(f"{folder.relative_to(PACKAGE.parent)} has {count} files; {MOST_FILES} is the most")
    for path in in_tree:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MOST_LINES:
            found.append(f"{path.relative_to(PACKAGE.parent)} has {lines} lines; {MOST_LINES} is the most")
    return found


def sources() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]


def table() -> str:
    """The rooms from the top down, what each holds, and what it imports."""
    edges = room_edges(file_edges())
    known = modules()
    lines = ["| room | contents | imports |", "|---|---|---|"]
    for room in reversed(FLOORS):
        if room not in known:
            continue
        what = ast.get_docstring(ast.parse(known[room].read_text(encoding="utf-8"))) or ""
        first = " ".join(what.partition("\n\n")[0].split())
        targets = sorted(edges.get(room, ()), key=FLOORS.index, reverse=True)
        lines.append(f"| `{room}` | {first} | {', '.join(targets)} |")
    return "\n".join(lines)


def main() -> int:
    if sys.argv[1:] == ["--write-docs"]:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")
    else:
        print(table())
    broken = broken_rules()
    print("\n".join(broken), file=sys.stderr)
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
