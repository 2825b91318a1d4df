"""The checks of `kernelscope doctor`. Torch is imported in a child, never in this process."""

from __future__ import annotations

import json
import locale
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from kernelscope import __version__
from kernelscope.config import USUAL_COMPILERS, cache_folder, compilers, has_gil, torch_variables
from kernelscope.processes.resources import usable_cores, usable_memory
from kernelscope.store import folder
from kernelscope.supported import SUPPORTED, in_words, too_new, too_old, untested
from kernelscope.text.process_ends import how_it_ended

from .torch_variables import unread_variables

_LITTLE_MEMORY = 2 << 30
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
from kernelscope.probes.probe_list import PROBES
from kernelscope.compiler_control.forced_settings import STAGE_SETTINGS
found["probes"] = PROBES.check()
found["kineto"] = torch.profiler.kineto_available()
found["stages"] = PROBES.acquire_stages() + STAGE_SETTINGS.acquire(fresh=True)
STAGE_SETTINGS.release()
PROBES.release_stages()
print("\\n" + json.dumps(found))
"""


@cache
def _torch() -> dict[str, Any]:
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-c", _ASK_TORCH],
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
        return {"error": said[-1] if said else f"the check {how_it_ended(child.returncode)}"}


def versions() -> Iterator[Result]:
    python = f" ({sys.executable})"
    if has_gil():
        yield _of_version("Python", platform.python_version(), python)
    else:
        advice = "to record, start it with PYTHON_GIL=1 or -X gil=1, or use the standard build of Python"
        found = f"{platform.python_version()}{python}, without its global interpreter lock"
        yield Result("bad", "python", found, advice)
    yield Result("ok", "kernelscope", f"{__version__} ({Path(__file__).parent.parent})")
    for name, needed in (("torch", True), ("numpy", True), ("safetensors", True), ("triton", False)):
        try:
            yield _of_version(name, version(name))
        except PackageNotFoundError:
            health: Health = "bad" if needed else "warn"
            advice = _NO_WHEELS if name == "torch" and _is_musl() else f"pip install {name}"
            yield Result(health, name, "not installed", advice)


_NO_WHEELS = "torch does not support musl (Alpine); only commands that read runs work here"


def _is_musl() -> bool:
    return "musl" in str(sysconfig.get_config_var("SOABI"))


def machine() -> Iterator[Result]:
    cores, memory = usable_cores(), usable_memory()
    found = f"{platform.machine()}, {cores} {'core' if cores == 1 else 'cores'}, {memory / 1e9:.1f} GB memory"
    if memory < _LITTLE_MEMORY:
        advice = "compiling may need more; set TORCHINDUCTOR_COMPILE_THREADS=1"
        yield Result("warn", "machine", found, advice)
    else:
        yield Result("ok", "machine", found)
    encoding = locale.getpreferredencoding(False)
    if encoding.lower().replace("-", "") != "utf8":
        advice = "torch reads its own files in this encoding; set PYTHONUTF8=1 or LC_ALL=C.UTF-8"
        yield Result("warn", "locale", encoding, advice)


def _of_version(name: str, found: str, where: str = "") -> Result:
    if name not in SUPPORTED:
        return Result("ok", name, found + where)
    if why := too_old(name, found):
        return Result("bad", name.lower(), found + where, why)
    if why := too_new(name, found):
        advice = f"{why}; if a probe does not fit, use {in_words(name)}"
        return Result("warn", name.lower(), found + where, advice)
    if note := untested(name, found):
        where = f"{where} ({note})"
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
            "warn", "probe CompileStages", misfit, "record(stages=True) will lack the data of this hook"
        )
    if not found["stages"]:
        yield Result("ok", "probe CompileStages", f"fits torch {found['torch']}")


def audit() -> Iterator[Result]:
    if _torch().get("kineto", True):
        yield Result("ok", "audit", "kernelscope audit SCRIPT checks that every launch is recorded")
    else:
        yield Result(
            "warn", "audit", "this torch has no profiler (Kineto)", "kernelscope audit will not work"
        )


def compiler() -> Iterator[Result]:
    chosen, *others = compilers()
    found = [path for given in (chosen, *others) if (path := _program(given))]
    if chosen not in USUAL_COMPILERS and not _program(chosen):
        yield Result(
            "bad", "C++ compiler", f"CXX={chosen} is not a program",
            "torch.compile uses CXX and nothing else: unset it, or correct it",
        )  # fmt: skip
    elif found:
        yield Result("ok", "C++ compiler", found[0])
    else:
        yield Result(
            "bad", "C++ compiler", "none found",
            "torch.compile needs one: apt-get install g++, dnf install gcc-c++ or conda install gxx",
        )  # fmt: skip
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if header.is_file():
        yield Result("ok", "Python.h", str(header))
    else:
        yield Result("bad", "Python.h", f"not in {header.parent}", "install python3-dev")


def _program(command: str) -> str | None:
    words = shlex.split(command)
    return shutil.which(words[0]) if words else None


def gpu() -> Iterator[Result]:
    found = _torch()
    if "error" in found:
        return
    if found.get("gpu_error"):
        yield Result(
            "warn", "GPU", found["gpu_error"], "check nvidia-smi: driver and CUDA version must match"
        )
    elif found.get("gpus"):
        yield Result("ok", "GPU", f"{', '.join(found['gpus'])} (CUDA {found['cuda']})")
    elif found.get("cuda"):
        yield Result("warn", "GPU", "torch was built with CUDA and finds no GPU", "check nvidia-smi")
    else:
        yield Result("ok", "GPU", "none: this torch is built for the CPU")


def folders() -> Iterator[Result]:
    yield _writable("runs", Path.cwd() / folder.HOME, "choose another with -o")
    try:
        temporary = Path(tempfile.gettempdir())
    except OSError as error:
        yield Result("bad", "folder for temporary files", str(error.strerror), "set TMPDIR to another")
    else:
        yield _writable("temporary files", temporary, "set TMPDIR to a writable directory")
        yield from _without_spaces("TMPDIR", temporary)
    yield from _without_spaces(
        "TORCHINDUCTOR_CACHE_DIR", Path(torch_variables().get("TORCHINDUCTOR_CACHE_DIR", ""))
    )
    advice = "compiled code is not kept between processes; set XDG_CACHE_HOME to a writable directory"
    try:
        result = _writable("kernelscope's compile cache", cache_folder(), advice)
    except FileNotFoundError as error:
        result = Result("warn", "folder for kernelscope's compile cache", str(error.strerror), advice)
    yield replace(result, health="warn") if result.health == "bad" else result


def _without_spaces(variable: str, path: Path) -> Iterator[Result]:
    if len(str(path).split()) > 1:
        advice = (
            f"torch.compile does not quote it for the C++ compiler: set {variable} to a path without spaces"
        )
        yield Result("bad", variable, f"{path} has a space", advice)


def _writable(what: str, path: Path, advice: str) -> Result:
    """Whether a file can be made there, or, where there is nothing yet, above."""
    existing = next(p for p in (path, *path.parents) if os.path.exists(p))  # False where it may not look
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Result("bad", f"folder for {what}", f"{existing} is not writable", advice)
    free = shutil.disk_usage(existing).free
    if free < 100 << 20:
        return Result("warn", f"folder for {what}", f"{existing} has {free >> 20} MB left", "free some space")
    return Result("ok", f"folder for {what}", f"{path}, {free >> 30} GB free")


def variables() -> Iterator[Result]:
    """A misspelt variable has no effect, silently."""
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


CHECKS = (versions, machine, probes, audit, compiler, gpu, folders, variables)
