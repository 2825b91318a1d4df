"""The script, module or command that a command line names, checked before anything is started."""

from __future__ import annotations

import shutil
import sys
import warnings
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from zipfile import is_zipfile

from kernelscope.errors import RunError


def script_words(module: list[str] | None, words: list[str], refusal: str = "") -> list[str]:
    """What to give Python: script.py … or -m module …; `refusal` is the error for a command after --."""
    if module is not None:
        if not module:
            raise RunError("-m needs the name of a module")
        check_module(module[0])
        return ["-m", *module]
    if not words:
        raise RunError("nothing to run: give a script, or -m module")
    if words[0] == "--":
        raise RunError(refusal)
    check_script(Path(words[0]))
    return list(words)


def command_words(module: list[str] | None, words: list[str]) -> list[str]:
    """What to start, which may also be a command after --."""
    if module is None and not words:
        raise RunError("nothing to run: give a script, -m module, or -- command")
    if module is not None or words[0] != "--":
        return [sys.executable, *script_words(module, words)]
    if len(words) < 2:
        raise RunError("nothing to run: give a command after --")
    if shutil.which(words[1]) is None:
        raise RunError(f"there is no command {words[1]}")
    return words[1:]


def predicate_words(where: str) -> tuple[str, str]:
    """`file.py:function` in two."""
    file, _, name = where.rpartition(":")
    if not file or not Path(file).is_file():
        raise RunError(f"--predicate {where}: there is no file {file or where}; give file.py:function")
    return file, name


def stem_of(module: list[str] | None, words: list[str]) -> str:
    """What to name a run of it after."""
    return module[0] if module else Path(words[1] if words[0] == "--" else words[0]).stem


def check_module(name: str) -> None:
    """Report what Python would report, before a run is made; imports nothing of the user's."""
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
    """A module in this folder, or found as Python would; an editable install may have its own finder."""
    here = PathFinder.find_spec(name, [str(Path.cwd())])
    try:
        return here or find_spec(name)
    except ValueError:  # it is loaded and has no __spec__
        return None


def check_script(path: Path) -> None:
    if str(path) == "-":
        raise RunError("a script from standard input (-) is not supported: save it to a file, and name that")
    if path.is_dir():
        if not (path / "__main__.py").is_file():
            raise RunError(f"{path} is a folder without a __main__.py")
        return
    try:
        if not path.is_file() and path.exists():
            return  # a pipe, e.g. <(…), can be read only once
        source = path.read_bytes()
    except FileNotFoundError:
        hint = f"; for a command: kernelscope run -- {path} …" if shutil.which(str(path)) else ""
        raise RunError(f"there is no script {path}{hint}") from None
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None
    if path.suffix == ".pyc" or is_zipfile(path):
        return  # already compiled, or a zip application
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python will print them when it runs the script
            compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.lineno else ""
        raise RunError(f"{path}{where}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise RunError(f"{path} is not a Python script: {error}") from None
