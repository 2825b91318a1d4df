"""Inference servers: entry points as vLLM and SGLang load them, and recording switched from outside.

A program of ours calls the loaders of both packages, where they are installed (`make test-integrations`), and
otherwise does what they do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

import kernelscope
from kernelscope.store import folder

ROOT = Path(__file__).parents[3]
GROUPS = ("vllm.general_plugins", "sglang.srt.plugins")
# What both servers do in each process: find the entry points of their group, choose by name, load, call.
SERVER = """
import os, sys
from importlib.metadata import entry_points
import torch

if sys.argv[1] == "vllm":
    from vllm.plugins import load_general_plugins
    load_general_plugins()
elif sys.argv[1] == "sglang":
    from sglang.srt.plugins import load_plugins
    load_plugins()
else:
    allowed = os.environ.get("VLLM_PLUGINS") or os.environ.get("SGLANG_PLUGINS")
    for plugin in entry_points(group=sys.argv[1]):
        if allowed is None or plugin.name in allowed.split(","):
            plugin.load()()
half = torch.compile(lambda x: x.sin() / 2)
print("ready", flush=True)
for line in sys.stdin:
    half(torch.ones(8))
    print("done", "kernelscope.startup.autorecord" in sys.modules, flush=True)
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The entry points of pyproject.toml as pip would install them."""
    made = tmp_path / "site" / "kernelscope-0.dist-info"
    made.mkdir(parents=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [
        f"[{group}]\nkernelscope = {project['entry-points'][group]['kernelscope']}\n" for group in GROUPS
    ]
    (made / "entry_points.txt").write_text("\n".join(lines))
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: kernelscope\nVersion: 0\n")
    (tmp_path / "server.py").write_text(SERVER)
    return made.parent


class Server:
    """A process of our own that loads plugins as the servers do, and computes once for each line."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self.child = child

    def compute(self) -> str:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write("compute\n")
        self.child.stdin.flush()
        return self.child.stdout.readline().strip()


@contextmanager
def server(site: Path, loader: str, **variables: str) -> Iterator[Server]:
    """-S, because the .pth file of an installed kernelscope would start the recording before any plugin."""
    packages = f"{site}:{ROOT / 'src'}:{sysconfig.get_path('purelib')}"
    environment = os.environ | {"PYTHONPATH": packages, **variables}
    words = [sys.executable, "-S", "server.py", loader]
    with subprocess.Popen(
        words, cwd=site.parent, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield Server(child)
        child.communicate()
    assert child.returncode == 0


def calls_in(path: Path) -> int:
    return sum(len(kernelscope.load(part)) for part in folder.parts(path))


def test_nothing_happens_without_the_variable(site: Path) -> None:
    with server(site, GROUPS[0]) as started:
        assert started.compute() == "done False"
    assert not list(site.parent.glob("*.kscope"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loader", "allowed", "calls"),
    [
        (GROUPS[0], {}, 2), (GROUPS[1], {"SGLANG_PLUGINS": "kernelscope"}, 2),
        (GROUPS[0], {"VLLM_PLUGINS": "other"}, 0),
        ("vllm", {}, 2), ("vllm", {"VLLM_PLUGINS": "x,kernelscope"}, 2),
        ("vllm", {"VLLM_PLUGINS": "other"}, 0),
        ("sglang", {}, 2), ("sglang", {"SGLANG_PLUGINS": "x,kernelscope"}, 2),
        ("sglang", {"SGLANG_PLUGINS": "other"}, 0),
    ],
)  # fmt: skip
def test_everything_is_recorded_with_it(loader: str, allowed: dict[str, str], calls: int, site: Path) -> None:
    if loader not in GROUPS and find_spec(loader) is None:
        pytest.skip(f"needs {loader}: make test-integrations")
    variables = {"KERNELSCOPE_RUN": "serving", "KERNELSCOPE_OPTIONS": "--values hash"}
    with server(site, loader, **variables, **allowed) as started:
        for _ in range(2):
            started.compute()
    path = site.parent / "serving.kscope"
    assert (calls_in(path) if path.exists() else 0) == calls


def test_file_and_signal_switch_it(site: Path) -> None:
    switch = site.parent / "on"
    variables = {"KERNELSCOPE_RUN": "serving", "KERNELSCOPE_SWITCH": str(switch)}
    with server(site, GROUPS[1], **variables) as started:
        started.compute()  # not recorded
        switch.touch()
        time.sleep(1)
        started.compute()
        started.compute()
        started.child.send_signal(signal.SIGUSR2)
        wait_until(lambda: not switch.exists())
        time.sleep(1)
        started.compute()  # not recorded
        started.child.send_signal(signal.SIGUSR2)
        wait_until(switch.exists)
        time.sleep(1)
        started.compute()
    assert calls_in(site.parent / "serving.kscope") == 3


def wait_until(holds: object, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.05)
