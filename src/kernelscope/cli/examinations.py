"""What `kernelscope doctor` looks at. Torch is asked in a child, so that this process never loads it."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from .. import __version__
from ..config import cache_folder, compilers, has_gil, torch_variables
from ..run import folder
from ..supported import TESTED, in_words, too_new, too_old
from .torch_names import unread_variables

Health = Literal["ok", "warn", "bad"]


@dataclass(frozen=True, slots=True)
class Result:
    health: Health
    what: str
    found: str = ""
    advice: str = ""

    def form(self) -> dict[str, str]:
        return asdict(self)


# Asked in a child: each probe is installed and removed, as a recording would do.
_ASK_TORCH = """
import json, sys
found = {}
import torch
found["torch"] = torch.__version__
found["cuda"] = torch.version.cuda
try:
    found["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
except Exception as error:
    found["gpu_error"] = str(error)
from kernelscope.probes import PROBES
probes = {}
for probe in [*PROBES._always, PROBES._operators]:
    try:
        probe.install()
        probes[type(probe).__name__] = ""
    except Exception as error:
        probes[type(probe).__name__] = str(error)
    finally:
        try:
            probe.remove()
        except Exception:
            pass
stages = PROBES._stages
try:
    stages.install()
finally:
    stages.remove()
found["probes"], found["stages"] = probes, stages.misfits
print("\\n" + json.dumps(found))
"""


@cache
def _torch() -> dict[str, Any]:
    try:
        child = subprocess.run(
            [sys.executable, "-c", _ASK_TORCH],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=300,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": "importing torch took more than five minutes"}
    lines = child.stdout.strip().splitlines()
    try:
        return dict(json.loads(lines[-1]))
    except (IndexError, ValueError):
        said = [line for line in child.stderr.splitlines() if re.match(r"[\w.]+(Error|Exception)\b", line)]
        return {"error": said[-1] if said else f"it ended with status {child.returncode}"}


def versions() -> Iterator[Result]:
    python = f" ({sys.executable})"
    if has_gil():
        yield _of_version("Python", platform.python_version(), python)
    else:
        advice = "to record, start it with PYTHON_GIL=1 or -X gil=1, or use the standard build of Python"
        found = f"{platform.python_version()}{python}, without its global interpreter lock"
        yield Result("bad", "Python", found, advice)
    yield Result("ok", "kernelscope", f"{__version__} ({Path(__file__).parent.parent})")
    for name, needed in (("torch", True), ("numpy", True), ("safetensors", True), ("triton", False)):
        try:
            yield _of_version(name, version(name))
        except PackageNotFoundError:
            health: Health = "bad" if needed else "warn"
            yield Result(health, name, "not installed", f"pip install {name}")


def _of_version(name: str, found: str, where: str = "") -> Result:
    if name not in TESTED:
        return Result("ok", name, found + where)
    if why := too_old(name, found):
        return Result("bad", name.lower(), found + where, why)
    if why := too_new(name, found):
        return Result(
            "warn", name.lower(), found + where, f"{why}; if a probe does not fit, use {in_words(name)}"
        )
    return Result("ok", name.lower(), found + where)


def probes() -> Iterator[Result]:
    found = _torch()
    if "error" in found:
        yield Result("bad", "import torch", found["error"], f"{sys.executable} -c 'import torch' must work")
        return
    for name, error in found["probes"].items():
        if error:
            advice = f"use {in_words('torch')}, or KERNELSCOPE_STRICT=0 to record without this probe"
            yield Result("bad", f"probe {name}", error, advice)
        else:
            yield Result("ok", f"probe {name}", f"fits torch {found['torch']}")
    for misfit in found["stages"]:
        yield Result(
            "warn", "probe CompileStages", misfit, "record(stages=True) will lack what this hook tells"
        )
    if not found["stages"]:
        yield Result("ok", "probe CompileStages", f"fits torch {found['torch']}")


def compiler() -> Iterator[Result]:
    for given in compilers():
        words = given.split()
        path = shutil.which(words[0]) if words else None
        if path is not None:
            yield Result("ok", "C++ compiler", path)
            break
    else:
        yield Result(
            "bad", "C++ compiler", "none found",
            "torch.compile needs one: apt-get install g++, dnf install gcc-c++ or conda install gxx",
        )  # fmt: skip
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if header.is_file():
        yield Result("ok", "Python.h", str(header))
    else:
        yield Result("bad", "Python.h", f"not in {header.parent}", "apt-get install python3-dev, or its like")


def gpu() -> Iterator[Result]:
    found = _torch()
    if "error" in found:
        return
    if found.get("gpu_error"):
        yield Result(
            "warn", "GPU", found["gpu_error"], "look at nvidia-smi: driver and CUDA version must fit"
        )
    elif found.get("gpus"):
        yield Result("ok", "GPU", f"{', '.join(found['gpus'])} (CUDA {found['cuda']})")
    elif found.get("cuda"):
        yield Result("warn", "GPU", "torch was built with CUDA and finds no GPU", "look at nvidia-smi")
    else:
        yield Result("ok", "GPU", "none: this torch is built for the CPU")


def folders() -> Iterator[Result]:
    for what, path in (("runs", Path.cwd() / folder.HOME), ("temporary files", Path(tempfile.gettempdir()))):
        yield _writable(what, path)
    yield _writable("our compile cache", cache_folder())


def _writable(what: str, path: Path) -> Result:
    """Whether a file can be made there, or, where there is nothing yet, above."""
    existing = next(p for p in (path, *path.parents) if p.exists())
    free = shutil.disk_usage(existing).free
    if not os.access(existing, os.W_OK | os.X_OK):
        return Result(
            "bad", f"folder for {what}", f"{existing} cannot be written to", "choose another with -o"
        )
    if free < 100 << 20:
        return Result("warn", f"folder for {what}", f"{existing} has {free >> 20} MB left", "make room there")
    return Result("ok", f"folder for {what}", f"{path}, {free >> 30} GB free")


def variables() -> Iterator[Result]:
    """A misspelt variable does nothing, and says nothing."""
    given = torch_variables()
    unread = unread_variables(list(given))
    for name in given:
        if name in unread:
            close = f"did you mean {unread[name]}? " if unread[name] else ""
            yield Result(
                "warn",
                f"{name}={given[name]}",
                "this torch does not read it",
                f"{close}unset it, or correct it",
            )
        else:
            yield Result("ok", f"{name}={given[name]}", "is read by this torch")


EXAMINATIONS = (versions, probes, compiler, gpu, folders, variables)
