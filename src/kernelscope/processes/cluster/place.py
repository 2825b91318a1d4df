"""What a machine of a cluster must have in common with the one that asks it. Needs no torch.

A program is run there in the same folder, with the same variables, and as the same file: all of that is
checked before the first trial, by the process of Ray itself.
"""

from __future__ import annotations

import hashlib
import os
import platform
import socket
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kernelscope import __version__
from kernelscope.config import all_variables, set_variables

_OF_A_MACHINE = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "HOSTNAME", "PWD", "OLDPWD", "SHELL", "SHLVL", "TMPDIR", "TERM",
    "DISPLAY", "LD_LIBRARY_PATH", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES", "_",
})  # fmt: skip
_PREFIXES = ("RAY_", "XDG_", "SSH_", "SLURM_")


def place_here(words: list[str]) -> dict[str, Any]:
    """The program, folder, variables and versions of this machine, as plain data."""
    script = "" if words[0] == "-m" else os.path.abspath(words[0])
    return {
        "folder": os.getcwd(), "script": script, "digest": _digest(script), "variables": _variables(),
        "versions": _versions(),
    }  # fmt: skip


def move_to(place: Mapping[str, Any]) -> str:
    """Give this process that folder and those variables; why it cannot have them, or ""."""
    versions = _versions()
    for name, there in place["versions"].items():
        if versions.get(name) != there:
            return f"{host()} has {name} {versions.get(name) or '(none)'}, and this machine has {there}"
    script, folder = place["script"], place["folder"]
    if script and not os.path.exists(script):
        return f"{script} does not exist on {host()}; all machines must see it under the same path"
    if place["digest"] and _digest(script) != place["digest"]:
        return f"{script} on {host()} is a different file; all machines must see the same one"
    try:
        os.chdir(folder)
    except OSError as error:
        return f"the folder {folder} cannot be used on {host()}: {error.strerror}"
    # Ray sets some, for example the number of threads, which changes how sums are rounded.
    set_variables(dict.fromkeys(_variables()) | place["variables"])
    return ""


def host() -> str:
    return socket.gethostname()


def _variables() -> dict[str, str]:
    """What a program should find on another machine as it would here: all but what belongs to a machine."""
    given = all_variables().items()
    return {
        name: each for name, each in given if name not in _OF_A_MACHINE and not name.startswith(_PREFIXES)
    }


def _digest(script: str) -> str:
    path = Path(script)
    return hashlib.sha256(path.read_bytes()).hexdigest() if script and path.is_file() else ""


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version(), "kernelscope": __version__}
    for name in ("torch", "triton"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found
