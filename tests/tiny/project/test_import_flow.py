"""Data flows one way, probes → events → run → analysis → views, and this keeps it so."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[3] / "src"
PACKAGE = SRC / "kernelscope"

NOT_STDLIB = "anything but the standard library"

# package or module → what it may never import, wherever in the file (".run" is ours, "." anything of ours)
FORBIDDEN = {
    "events": (".", "torch"),
    "config": (NOT_STDLIB,),
    "supported": (NOT_STDLIB,),
    "fingerprint": (".recording", ".probes", ".analysis", ".views"),
    "probes": (".recording", ".analysis", ".views"),
    "run": (".recording", ".probes", ".analysis", ".views"),
    "analysis": (".views",),
    "views": (".recording", ".probes"),
    "report": (".recording", ".probes"),
    "export": (".recording", ".probes"),
    "repro": (".recording", ".probes", ".shadowing", ".reduction"),
}

# package or module → all that it may import of ours
ALLOWED = {
    "recording": (".probes", ".fingerprint", ".run", ".events", ".config", ".stages.records", ".__version__"),
}

# package or module → what it may import in functions or for type checkers only
FORBIDDEN_AT_IMPORT = {
    "__init__": ("torch", "triton", "numpy"),
    "run": ("torch",),
    "analysis": ("torch",),
    "views": ("torch",),
    "report": ("torch",),
    "cli": ("torch",),
    "export": ("torch", "pyarrow"),
}

WIRES = ("cli", "__main__")  # who may import .cli
TYPE_CHECKING = ("TYPE_CHECKING", "typing.TYPE_CHECKING")
READS_ENVIRONMENT = ("config",)
ENVIRONMENT = ("environ", "environb", "getenv", "getenvb")

# these, and all that they import in turn, load without torch
LIGHT = (
    "events", "config", "run", "stages", "analysis", "views", "report", "export", "bisection", "repro", "cli"
)  # fmt: skip
EXISTING = [name for name in LIGHT if list(PACKAGE.glob(f"{name}.py")) + list(PACKAGE.glob(f"{name}/*.py"))]


def imports(tree: ast.AST, package: str, at_import: bool = True) -> Iterator[tuple[str, bool]]:
    """The dotted names imported below `tree`, and whether importing the file imports them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_import) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = ".".join(parents[: len(parents) + 1 - node.level]) if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            yield from ((f"{module}.{alias.name}", at_import) for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) in TYPE_CHECKING:
            for part, runs in ((node.body, False), (node.orelse, at_import)):
                yield from imports(ast.Module(part, []), package, runs)
        elif isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):  # no expression imports
            deferred = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from imports(node, package, at_import and not deferred)


def environment_reads(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        by_attribute = isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT
        by_name = isinstance(node, ast.ImportFrom) and any(alias.name in ENVIRONMENT for alias in node.names)
        if by_attribute or by_name:
            yield node.lineno


def within(name: str, packages: tuple[str, ...]) -> bool:
    outside = NOT_STDLIB in packages and name.split(".")[0] not in sys.stdlib_module_names
    full = ["kernelscope" + p.rstrip(".") if p.startswith(".") else p for p in packages]
    return outside or any(name == p or name.startswith(p + ".") for p in full)


def violations(path: Path, source: str) -> list[str]:
    """What is wrong with the imports of the file at `path`, relative to the package."""
    tree = ast.parse(source)
    part = path.parts[0].removesuffix(".py")
    forbidden = FORBIDDEN.get(part, ()) + (() if part in WIRES else (".cli",))
    found = []
    for name, at_import in imports(tree, package=".".join(("kernelscope", *path.parts[:-1]))):
        if within(name, (f".{part}",)):
            continue
        stray = part in ALLOWED and within(name, (".",)) and not within(name, ALLOWED[part])
        if stray or within(name, forbidden):
            found.append(f"{path} imports {name}")
        if at_import and within(name, FORBIDDEN_AT_IMPORT.get(part, ())):
            found.append(f"{path} imports {name} at import")
    if part not in READS_ENVIRONMENT and any(word in source for word in ENVIRONMENT):
        found += [f"{path}:{line} reads the environment" for line in environment_reads(tree)]
    return found


def test_sources_keep_the_flow() -> None:
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        found += violations(file.relative_to(PACKAGE), file.read_text())
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", ["kernelscope", *(f"kernelscope.{name}" for name in EXISTING)])
def test_loads_without_torch(name: str) -> None:
    code = f"import {name}, sys; sys.exit('torch' in sys.modules and '{name} imported torch')"
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    child = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("events.py", "import torch", "imports torch"),
        ("events.py", "import kernelscope", "imports kernelscope"),
        ("events.py", "def f():\n    from .config import Config", "imports kernelscope.config.Config"),
        ("config.py", "import numpy as np", "imports numpy"),
        ("config.py", "from kernelscope import events", "imports kernelscope.model.events"),
        (
            "probes/inductor.py",
            "from ..analysis import align",
            "imports kernelscope.analysis.alignment.align",
        ),
        ("probes/deep/er.py", "from ...views.html import page", "imports kernelscope.views.html.page"),
        ("probes/__init__.py", "from .. import views", "imports kernelscope.views"),
        ("run/reader.py", "import torch.nn", "imports torch.nn at import"),
        ("run/reader.py", "try:\n    from torch import Tensor\nfinally: ...", "torch.Tensor at import"),
        ("run/reader.py", "def f():\n    import kernelscope.probes", "imports kernelscope.probes"),
        ("recording.py", "from kernelscope.stages import graphs", "imports kernelscope.stages.graphs"),
        ("recording.py", "from kernelscope import record", "imports kernelscope.record"),
        ("gcu/lower.py", "from ..cli import main", "imports kernelscope.cli.main"),
        ("__init__.py", "import torch", "imports torch at import"),
        ("values/save.py", "import os as o\nfolder = o.environ['X']", "save.py:2 reads the environment"),
        ("values/save.py", "from os import getenv", "reads the environment"),
    ],
)
def test_notices(path: str, source: str, complaint: str) -> None:
    found = violations(Path(path), source)
    assert len(found) == 1
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("events.py", "from __future__ import annotations\nfrom dataclasses import dataclass"),
        ("events.py", "import torchlike, kernelscope_plugin"),
        ("config.py", "import os\nlevel = os.environ.get('KERNELSCOPE')"),
        ("probes/inductor.py", "import torch\nfrom ..events import Call\nfrom .base import Probe"),
        ("run/tensors.py", "def load():\n    import torch"),
        ("run/tensors.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("recording.py", "import torch\nfrom . import __version__, config\nfrom .probes import PROBES"),
        ("cli/show.py", "from ..views import terminal\nfrom ..analysis import align"),
        ("__main__.py", "from .cli import main"),
    ],
)
def test_allows(path: str, source: str) -> None:
    assert violations(Path(path), source) == []
