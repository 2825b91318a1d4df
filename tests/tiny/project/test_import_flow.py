"""Rooms import downwards, without circles; torch and the environment are read where they may be."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import rooms

SRC = rooms.PACKAGE.parent
PACKAGE = rooms.PACKAGE
TYPE_CHECKING = ("TYPE_CHECKING", "typing.TYPE_CHECKING")
ENVIRONMENT = ("environ", "environb", "getenv", "getenvb")
READS_ENVIRONMENT = ("config.py",)

# Rooms that import nothing but the standard library and each other, and those that load without torch.
STDLIB_ALONE = ("errors", "supported", "events", "config", "after_import")
LIGHT = [
    "errors",
    "supported",
    "events",
    "config",
    "text",
    "processes",
    "stages",
    "model",
    "store",
    "analysis",
    "repro",
    "bisection",
    "views",
    "export",
    "report",
    "tui",
    "doctor",
    "cli",
]
EMBEDDED = "repro/embedded/"  # text of scripts that need torch

# Outside of `probes` and `compiler_control`: which file uses private API of torch or triton, and what for.
PRIVATE_TORCH = {
    "debug_mode/labels.py": "whether a tensor is fake; attributes of tensors without the user's modes",
    "debug_mode/live_arguments.py": "the current stream",
    "debug_mode/mode.py": "attributes of tensors without the user's modes",
    "debug_mode/stock_names.py": "the hash functions of torch's DebugMode, under their names",
    "determinism/api.py": "an empty compile cache",
    "fingerprint/captured.py": "the current stream",
    "fingerprint/cpu/bits.py": "addresses of tensors",
    "fingerprint/cpu/in_wrappers/nan_scan.py": "whether a torch-function mode is on",
    "fingerprint/cpu/in_wrappers/planned.py": "whether a torch-function mode is on",
    "fingerprint/cuda/engine.py": "the current device and stream",
    "fingerprint/cuda/launcher.py": "whether a torch-function mode is on",
    "fingerprint/cuda/nan_scan.py": "the current device and stream",
    "fingerprint/cuda/stats.py": "the current device and stream",
    "fingerprint/fingerprinter.py": "the current stream; no modes while it computes",
    "fingerprint/plans.py": "the current stream; no modes while it computes",
    "fingerprint/torch_bits.py": "addresses of tensors; no modes or autograd while it computes",
    "gcu/backend.py": "a backend of torch.compile: AOTAutograd",
    "gcu/direct_calls.py": "whether an example input is fake, and graphs that change the mode of autograd",
    "gcu/execution/executor.py": "symbolic sizes in generated code",
    "gcu/execution/graph_code.py": "symbolic sizes in generated code",
    "gcu/lowering/operator_texts.py": "torch's decompositions",
    "gcu/lowering/pointwise.py": "torch's rules of type promotion",
    "reduction/capture.py": "real tensors while Dynamo traces",
    "reduction/single_node_search.py": "compiles graphs that are made of fake tensors",
    "shadowing/generator_state.py": "whether a functorch transform is running",
    "shadowing/program_state.py": "hooks on saved tensors, levels of torch.func, modes",
    "shadowing/reference/evaluate.py": "evaluates graphs without modes",
    "shadowing/reference/node_kinds.py": "Inductor's own operators",
    "shadowing/reference/places.py": "a view with the sign that torch keeps beside a tensor",
    "shadowing/regions/copies.py": "kinds of tensors and their flags",
    "shadowing/regions/eager_run.py": "evaluates graphs without modes",
    "shadowing/draws/eager_draws.py": "a mode that sees each operator; torch's decompositions",
    "shadowing/regions/function_run.py": "which of our modes is at work",
    "shadowing/regions/modes/operator_modes.py": "modes that see each operator",
    "shadowing/regions/region.py": "whether a functorch transform is running",
    "shadowing/session.py": "evaluates graphs without modes",
    "shadowing/steps/tape.py": "a mode that sees each operator; torch's decompositions",
    "stages/fx_part.py": "values of example inputs, where they are not fake",
    "trials/in_process.py": "how many graphs were compiled; an empty compile cache",
}
# Private by name, but without a public counterpart and the same in every version: nested containers, and the
# class of an operator.
STABLE = ("torch.utils._pytree", "torch._ops")


def imports(tree: ast.AST, at_import: bool = True) -> Iterator[tuple[str, bool]]:
    """Absolute names imported below `tree`, and whether importing the file imports them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_import) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((f"{node.module}.{alias.name}", at_import) for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) in TYPE_CHECKING:
            for part, runs in ((node.body, False), (node.orelse, at_import)):
                yield from imports(ast.Module(part, []), runs)
        elif isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):  # no expression imports
            deferred = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from imports(node, at_import and not deferred)


def environment_reads(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        by_attribute = isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT
        by_name = isinstance(node, ast.ImportFrom) and any(alias.name in ENVIRONMENT for alias in node.names)
        if by_attribute or by_name:
            yield node.lineno


def module_names(node: ast.AST) -> list[str]:
    """What `import_module("a.b")`, `sys.modules["a.b"]` and `sys.modules.get("a.b")` name."""
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "sys.modules":
        texts: list[ast.expr] = [node.slice]
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "sys.modules.get")):
        texts = node.args[:1]
    else:
        return []
    return [text.value for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str)]


def private_torch(tree: ast.AST) -> Iterator[str]:
    """Private modules of torch and triton, imported or looked up, and private attributes: `torch._C`."""
    for node in ast.walk(tree):
        names: list[str] = module_names(node)
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        for name in names:
            package, *parts = name.split(".")
            is_private = any(part.startswith("_") and not part.startswith("__") for part in parts)
            if package in ("torch", "triton") and is_private and not name.startswith(STABLE):
                yield name


def violations(path: Path, source: str) -> list[str]:
    """What the file at `path`, relative to the package, imports or reads and should not."""
    tree = ast.parse(source)
    room = path.parts[0].removesuffix(".py")
    found = []
    for name, at_import in imports(tree):
        package = name.split(".")[0]
        if room in STDLIB_ALONE and package not in (*sys.stdlib_module_names, "kernelscope"):
            found.append(f"{path} imports {name}")
        elif (
            at_import
            and not str(path).startswith(EMBEDDED)
            and room in LIGHT
            and package in ("torch", "triton", "pyarrow")
        ):
            found.append(f"{path} imports {name} at import")
    if room not in ("probes", "compiler_control") and not str(path).startswith(EMBEDDED):
        used = sorted(set(private_torch(tree)))
        if used and str(path) not in PRIVATE_TORCH:
            found.append(f"{path} uses {', '.join(used)}; put it into `probes` or `compiler_control`")
    if str(path) not in READS_ENVIRONMENT and any(word in source for word in ENVIRONMENT):
        found += [f"{path}:{line} reads the environment" for line in environment_reads(tree)]
    return found


def test_rooms_keep_their_rules() -> None:
    assert rooms.broken_rules() == []


@pytest.mark.parametrize("folder", ["tests", "benchmarks", "examples", "tools"])
def test_scripts_and_tests_are_as_short_as_sources(folder: str) -> None:
    lengths = {str(p): len(p.read_text("utf-8").splitlines()) for p in (rooms.ROOT / folder).rglob("*.py")}
    assert lengths, f"no Python files in {folder}"
    assert {path: lines for path, lines in lengths.items() if lines > rooms.MOST_LINES} == {}


def private_imports(source: str) -> Iterator[str]:
    """Private names that a test imports; some of `debug_mode` are the public ones of torch."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kernelscope"):
            names = [alias.name for alias in node.names if rooms.is_private(alias.name)]
            yield from (name for name in names if node.module != "kernelscope.debug_mode")


def test_tests_import_no_private_name() -> None:
    files = sorted((rooms.ROOT / "tests").rglob("*.py"))
    found = {str(file): list(private_imports(file.read_text("utf-8"))) for file in files}
    assert {file: names for file, names in found.items() if names} == {}


def test_a_private_import_is_noticed() -> None:
    assert list(private_imports("from kernelscope.model.html import _CONTROL, page")) == ["_CONTROL"]
    assert not list(private_imports("from kernelscope.debug_mode import _OpCall"))


def test_the_table_in_the_docs_is_the_one_of_the_sources() -> None:
    assert rooms.table() in rooms.PAGE.read_text(), "run: python tools/rooms.py --write-docs"


def test_sources_keep_their_rules() -> None:
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        found += violations(file.relative_to(PACKAGE), file.read_text())
    assert not found, "\n".join(found)


def test_exceptions_are_needed() -> None:
    unneeded = [f for f in PRIVATE_TORCH if not any(private_torch(ast.parse((PACKAGE / f).read_text())))]
    assert not unneeded


@pytest.mark.parametrize("name", ["kernelscope", *(f"kernelscope.{name}" for name in LIGHT)])
def test_loads_without_torch(name: str) -> None:
    code = f"import {name}, sys; sys.exit('torch' in sys.modules and '{name} imported torch')"
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    child = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("events.py", "import torch", "imports torch"),
        ("config.py", "import numpy as np", "imports numpy"),
        ("store/reader.py", "import torch.nn", "imports torch.nn at import"),
        ("store/reader.py", "try:\n    from torch import Tensor\nfinally: ...", "torch.Tensor at import"),
        ("values/save.py", "import os as o\nfolder = o.environ['X']", "save.py:2 reads the environment"),
        ("values/save.py", "from os import getenv", "reads the environment"),
        ("values/save.py", "from torch._inductor import config", "save.py uses torch._inductor.config"),
        ("values/save.py", "import torch\nx = torch._C._get_tracing_state()", "uses torch._C"),
        ("values/save.py", "x = importlib.import_module('torch._inductor.utils')", "torch._inductor.utils"),
        ("values/save.py", "x = sys.modules['torch._dynamo']", "uses torch._dynamo"),
        ("values/save.py", "x = sys.modules.get('torch._dynamo')", "uses torch._dynamo"),
    ],
)
def test_notices(path: str, source: str, complaint: str) -> None:
    [found] = violations(Path(path), source)
    assert complaint in found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("events.py", "from __future__ import annotations\nfrom dataclasses import dataclass"),
        ("config.py", "import os\nlevel = os.environ.get('KERNELSCOPE')"),
        ("probes/inductor.py", "import torch\nfrom ..events import Call\nfrom .base import Probe"),
        ("probes/inductor.py", "import torch._inductor.config"),
        ("values/save.py", "from torch.utils._pytree import tree_map"),
        ("store/tensors.py", "def load():\n    import torch"),
        ("store/tensors.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
    ],
)
def test_allows(path: str, source: str) -> None:
    assert violations(Path(path), source) == []


def test_a_circle_and_an_arrow_upwards_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = {
        "store.a": {"store.b"},
        "store.b": {"store.c"},
        "store.c": {"store.a", "text.x"},
        "text.x": {"cli"},
    }
    assert rooms.circles(edges) == [["store.a", "store.b", "store.c"]]
    monkeypatch.setattr(rooms, "file_edges", lambda: edges)
    assert rooms.broken_rules()[0] == "text.x imports cli, which is further up"


def test_a_public_name_counts_as_an_import_of_its_module(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("from kernelscope import __version__, record\nfrom .. import load")
    assert set(rooms.imported(file, "text.x", rooms.modules())) == {"", "recording", "store.stored_run"}


def test_a_circle_through_a_package_and_a_room_without_a_floor_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rooms, "file_edges", lambda: {"store": {"store.a"}, "store.a": {"store"}})
    monkeypatch.setattr(rooms, "modules", lambda: {"cellar": Path("cellar.py")})
    monkeypatch.setattr(rooms, "private_uses_in_sources", tuple)
    circle = "these files import each other in a circle: store, store.a"
    assert rooms.broken_rules()[:2] == ["cellar has no floor; add it to tools/rooms.py", circle]


def test_a_private_member_of_another_room_is_noticed() -> None:
    defines, uses = "class A:\n    def __init__(self): self._rows = 1", "def f(a): return a._rows"
    files = {"store.a": rooms.Looked.at(ast.parse(defines)), "views.b": rooms.Looked.at(ast.parse(uses))}
    assert list(rooms.private_uses(files)) == ["views.b:1 uses _rows, a private member of store"]


def test_a_private_module_of_another_room_is_noticed() -> None:
    uses = rooms.Looked.at(ast.parse("from ..store._a import rows"))
    assert list(rooms.private_uses({"store._a": rooms.Looked(), "views.b": uses})) == [
        "views.b:1 uses _a, a private member of store"
    ]
