"""The script or module that a command is told to run, looked at before anything is started."""

from __future__ import annotations

import argparse
import shutil
import warnings
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from zipfile import is_zipfile

from kernelscope.errors import RunError


def script_words(args: argparse.Namespace, command: str, instead: str = ", not a command") -> list[str]:
    """What a command runs in a child of its own; `instead` says what to do with another command."""
    if args.module is not None:
        if not args.module:
            raise RunError("-m needs the name of a module")
        check_module(args.module[0])
        return ["-m", *args.module]
    if not args.command:
        raise RunError("what shall it run? Give a script, or -m module")
    if args.command[0] == "--":
        raise RunError(f"{command} runs a Python script or -m module{instead}")
    check_script(Path(args.command[0]))
    return list(args.command)


def check_module(name: str) -> None:
    """Say what Python would say, before a run is made for it; nothing of the user's is imported."""
    first, *inner = name.split(".")
    spec = _find(first)
    for word in inner:
        below = None if spec is None else spec.submodule_search_locations
        if below is None:
            break
        spec = PathFinder.find_spec(f"{spec.name}.{word}" if spec else word, list(below))
    if spec is None:
        raise RunError(f"there is no module named {name}")
    if spec.submodule_search_locations is not None:
        spec = PathFinder.find_spec(f"{name}.__main__", list(spec.submodule_search_locations))
        if spec is None:
            raise RunError(f"{name} is a package without a __main__ module")
    if spec.origin and spec.origin.endswith(".py"):
        check_script(Path(spec.origin))


def _find(name: str) -> ModuleSpec | None:
    """A module from here or from where Python looks; an editable install may have a finder of its own."""
    here = PathFinder.find_spec(name, [str(Path.cwd())])
    try:
        return here or find_spec(name)
    except ValueError:  # it is loaded and does not say from where
        return None


def check_script(path: Path) -> None:
    if path.is_dir():
        if not (path / "__main__.py").is_file():
            raise RunError(f"{path} is a folder without a __main__.py")
        return
    try:
        if not path.is_file() and path.exists():
            return  # a pipe, such as <(…), can be read once
        source = path.read_bytes()
    except FileNotFoundError:
        hint = f"; for a command: kernelscope run -- {path} …" if shutil.which(str(path)) else ""
        raise RunError(f"there is no script {path}{hint}") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    if path.suffix == ".pyc" or is_zipfile(path):
        return  # compiled already, or an application in a zip file
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python will say them once more
            compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.lineno else ""
        raise RunError(f"{path}{where}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise RunError(f"{path} is no Python script: {error}") from None
