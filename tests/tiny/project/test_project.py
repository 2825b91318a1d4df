"""The project's own files: one version, links that lead somewhere, no local paths; and conftest's check."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import installed, left_behind

import kernelscope

ROOT = Path(__file__).parents[3]
FOLDERS = (".ci", "src", "tests", "examples", "benchmarks", "docs")
LOCAL = re.compile("/" + "work/|/" + "tmp/p|pypi" + "-more")  # split, so that this file passes too
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
BESIDE = re.compile(r"(?:__file__\)(?:\.resolve\(\))?|HERE)\.parents\[(\d)\]((?: / \"[^\"]+\")*)")
NAMED = re.compile(r"`([a-z_]\w*(?:/\w+)*(?:\.(?:py|js|cpp|h|css|html|md)|/|/\w+))`")  # a file or a folder
LINK = re.compile(r"\]\(<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]: (\S+)|(?:src|href)=\"([^\"]+)\"", re.MULTILINE)


def texts() -> Iterator[tuple[str, str]]:
    """Name and content of the project's text files."""
    # .git is a file in a second working tree.
    files = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    files += [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    for path in files:
        content = path.read_bytes()
        # In a worktree, .git is a file, and says where the repository is.
        if b"\0" not in content and "__pycache__" not in path.parts and path.name != ".git":
            yield str(path.relative_to(ROOT)), content.decode()


def pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def missing_links(page: Path, text: str) -> list[str]:
    """The links to files that do not exist."""
    targets = ["".join(match) for match in LINK.findall(FENCED.sub("", text))]
    paths = [t.partition("#")[0] for t in targets if not re.match(r"[a-z][a-z+.-]*:", t)]
    return [path for path in paths if path and not (page.parent / path).exists()]


def test_version_is_written_once() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert pyproject["project"]["dynamic"] == ["version"]
    assert "version" not in pyproject["project"]
    source = (ROOT / pyproject["tool"]["hatch"]["version"]["path"]).read_text()
    assert re.findall(r"^__version__ = \"(.+)\"", source, re.MULTILINE) == [kernelscope.__version__]


@pytest.mark.parametrize(
    "name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "docs/architecture.md"]
)
def test_page_is_there(name: str) -> None:
    assert (ROOT / name).read_text().strip()


def test_links_lead_somewhere() -> None:
    missing = {page.name: missing_links(page, page.read_text()) for page in pages()}
    assert not any(missing.values()), missing


def test_missing_link_is_noticed() -> None:
    text = 'a [page](LICENSE#x), [nowhere](no/such.md), [web](https://x.org)\n<img src="no.png">\n'
    text += "[ref]: gone.md\n```\n[code](not-a-link)\n```\n"
    assert missing_links(ROOT / "CHANGELOG.md", text) == ["no/such.md", "no.png", "gone.md"]


def test_paths_of_the_architecture_exist() -> None:
    """In full, from src/kernelscope or from the root of the repository: a reader can open them."""
    named = set(NAMED.findall(FENCED.sub("", (ROOT / "docs" / "architecture.md").read_text())))
    assert {"config.py", "cli/programs", "report/page/", "diagnosis/diagnose.py"} <= named
    roots = (ROOT / "src" / "kernelscope", ROOT)
    assert not [path for path in sorted(named) if not any((root / path).exists() for root in roots)]


def missing_paths(file: Path, text: str) -> list[Path]:
    """What a program names by its own place and is not there: it was moved, and counts folders as before."""
    named = [(file.parents[int(up)], re.findall(r'"([^"]+)"', down)) for up, down in BESIDE.findall(text)]
    return [path for above, parts in named if not (path := above.joinpath(*parts)).exists()]


def test_paths_beside_a_program_exist() -> None:
    programs = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert not [path for file in programs for path in missing_paths(file, file.read_text(encoding="utf-8"))]


def test_a_missing_path_beside_a_program_is_noticed() -> None:
    here = "HERE"  # apart, so that this file passes too
    text = f'A = Path(__file__).parents[3] / "src"\nB = {here}.parents[2] / "src" / "x"\n'
    assert missing_paths(Path(__file__), text) == [ROOT / "tests" / "src" / "x"]


def test_no_local_paths() -> None:
    assert not [name for name, text in texts() if LOCAL.search(text)]


def test_local_path_is_noticed() -> None:
    assert LOCAL.search("see /" + "work/x")
    names = {name for name, _ in texts()}
    assert {"Makefile", ".ci/run", "LICENSE", "src/kernelscope/__init__.py", "tests/conftest.py"} <= names


def test_left_behind_patch_is_noticed(leftovers: Callable[[], list[str]]) -> None:
    import torch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda.CUDAGraph, "replay", kernelscope_function())
        with torch.overrides.BaseTorchFunctionMode():
            assert leftovers() == [
                "torch function modes: 0 before, 1 after",
                "torch.cuda.graphs.CUDAGraph.replay is not what it was",
            ]
    assert leftovers() == []


def test_left_behind_setting_is_noticed() -> None:
    from torch._inductor import config

    before = installed()
    leftovers = lambda: left_behind(before, installed())  # noqa: E731
    config.epilogue_fusion = not config.epilogue_fusion
    try:
        assert leftovers() == ["torch._inductor.config.epilogue_fusion was True and is False"]
    finally:
        config.epilogue_fusion = not config.epilogue_fusion
    del config.aot_inductor.metadata  # as monkeypatch does in the end
    try:
        assert leftovers() == ["torch._inductor.config.aot_inductor.metadata was None and is 'missing'"]
    finally:
        config.aot_inductor.metadata = {}
    assert leftovers() == []


def kernelscope_function() -> object:
    """A function that looks as if a module of ours had defined it."""
    space = {"__name__": "kernelscope.probes.test"}
    exec("def replay(self): ...", space)
    return space["replay"]


def test_installing_brings_only_torch_numpy_and_safetensors() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [re.split(r"[<>=]", each)[0] for each in project["dependencies"]] == [
        "torch",
        "numpy",
        "safetensors",
    ]


INTEGRATIONS_ALONE = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in PACKAGES:
            raise ModuleNotFoundError(name)

PACKAGES = {"mcp", "anyio", "IPython", "mlflow", "wandb", "tensorboard", "transformers", "lightning"}
sys.meta_path.insert(0, Missing())
from kernelscope.integrations import mlflow, notebook, packages, servers, tensorboard, tracked_run, wandb
from kernelscope.integrations.mcp import server
import kernelscope.pytest_plugin
servers.load()
print(sorted(sys.modules.keys() & {*PACKAGES, "torch"}))
"""


def test_integrations_load_without_their_packages() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    words = [sys.executable, "-c", INTEGRATIONS_ALONE]
    child = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert child.stdout == "[]\n", child.stderr
