"""What a trial runs: a script, a module or a function, each time from the same state."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch

from kernelscope.determinism.state import Generators, State
from kernelscope.processes.quick_start import only_this_process

from .kept_objects import KeptClasses, KeptModules, clear


class ScriptFailed(Exception):
    """A script exited with a non-zero status."""


class Script:
    """A script, or a module with -m; calling it runs it and returns its global names."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._code: CodeType | None = None
        self._main = ModuleType("__main__")
        self._classes = KeptClasses(vars(self._main))
        self._generators, self._cwd = Generators(), os.getcwd()
        self._modules = KeptModules(self._is_own)

    def __call__(self) -> dict[str, Any]:
        self._generators.put_back()
        os.chdir(self._cwd)
        argv, path, main = sys.argv, sys.path[:], sys.modules["__main__"]
        try:
            with self._modules.kept(), only_this_process():
                return self._execute()
        except SystemExit as end:
            if end.code not in (None, 0):
                raise ScriptFailed(f"it exited with {end.code}") from None
            return {}
        finally:
            sys.argv, sys.path[:], sys.modules["__main__"] = argv, path, main

    def _execute(self) -> dict[str, Any]:
        if self._words[0] == "-m":
            sys.argv = self._words[1:]
            sys.path.insert(0, self._cwd)
            return runpy.run_module(self._words[1], run_name="__main__", alter_sys=True)
        script = self._words[0]
        sys.argv = self._words
        sys.path.insert(0, str(Path(script).resolve().parent))
        if self._code is None:
            # Once, so that Dynamo recognises its functions and finds what it has compiled.
            self._code = compile(Path(script).read_bytes(), script, "exec", dont_inherit=True)
        names = vars(self._main)
        clear(names)
        self._main.__file__ = script
        sys.modules["__main__"] = self._main
        with self._classes.kept():
            exec(self._code, names)
        return names

    def _is_own(self, file: str) -> bool:
        """The program's own modules are loaded again, because they may keep state; libraries are not."""
        here = (str(Path(self._words[0]).resolve().parent) + os.sep, self._cwd + os.sep)
        return file.startswith(here) and "site-packages" not in file and "torchinductor" not in file


class Function:
    """A function with its arguments; their state is restored before each call."""

    def __init__(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, compile: bool
    ) -> None:
        self._fn, self._args, self._kwargs, self._compile = fn, args, kwargs, compile
        self._state = State(fn, args, kwargs)

    def __call__(self) -> Any:
        self._state.put_back()
        if not self._compile:
            return self._fn(*self._args, **self._kwargs)
        from kernelscope.shadowing.run_once import try_once

        return try_once(self._fn, self._args, self._kwargs)

    def put_back(self) -> None:
        self._state.put_back()
        torch.compiler.reset()
