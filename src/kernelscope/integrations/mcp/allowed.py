"""What the user allowed when the server was started: folders to read, and scripts to run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelscope.store import folder

_LONGEST = 4096  # characters of one argument
_MOST_WORDS = 100  # arguments of a script


class Refused(Exception):
    """An argument that the user did not allow; the message says what is allowed."""


@dataclass(frozen=True)
class Allowed:
    """Folders that may be read, and scripts or folders of scripts that may be run. All are real paths."""

    roots: tuple[Path, ...]
    scripts: tuple[Path, ...] = ()

    @staticmethod
    def of(roots: Sequence[str], scripts: Sequence[str]) -> Allowed:
        """From the command line: no root is this folder, an empty script is every root."""
        found = tuple(Path(root).resolve() for root in roots or ["."])
        runnable = [path for each in scripts for path in ((Path(each).resolve(),) if each else found)]
        return Allowed(found, tuple(dict.fromkeys(runnable)))

    @property
    def home(self) -> Path:
        """The folder in which commands are run."""
        return self.roots[0]

    def run(self, given: str) -> Path:
        """The folder of a run, by name or path; empty is the newest."""
        if not given:
            found = [path for root in self.roots for path in folder.runs_in(root) if self.holds(path)]
            if not found:
                raise Refused(f"there is no run in {self._listed(self.roots)}; make one with: record")
            return max(found, key=lambda path: path.stat().st_mtime_ns)
        name = Path(word(given, "run"))
        homes = [home for root in self.roots for home in (root, root / folder.HOME)]
        for candidate in (home / each for home in homes for each in (name, Path(f"{name}{folder.SUFFIX}"))):
            real = self._inside(candidate, given)
            if os.path.isdir(real) and (  # not Path.is_dir, which raises where a name is too long
                folder.parts(real) or real.name.endswith(folder.SUFFIX)
            ):
                return real
        raise Refused(f"there is no run {given!r}; list_runs lists those that can be read")

    def script(self, given: str) -> Path:
        """A script that may be run."""
        if not self.scripts:
            raise Refused(
                "this server may not run programs; the user can start it with: kernelscope mcp --allow-run"
            )
        real = Path(os.path.realpath(self.home / word(given, "script")))
        if not any(real == each or each in real.parents for each in self.scripts):
            raise Refused(f"{given!r} may not be run; --allow-run allows {self._listed(self.scripts)}")
        if not os.path.isfile(real):
            raise Refused(f"there is no script {given!r}")
        return real

    def shown(self, path: Path | str) -> str:
        """A path as an answer has it: relative to the folder of the commands where it lies below that."""
        path = Path(path)
        return str(path.relative_to(self.home)) if path.is_relative_to(self.home) else str(path)

    def _inside(self, path: Path, given: str) -> Path:
        """Links are followed first, so that a link cannot lead outside."""
        if not self.holds(path):
            raise Refused(f"{given!r} is outside of the folders that may be read: {self._listed(self.roots)}")
        return Path(os.path.realpath(path))

    def holds(self, path: Path | str) -> bool:
        """Whether it lies in a folder that may be read, once links are followed."""
        real = Path(os.path.realpath(path))
        return any(real == root or root in real.parents for root in self.roots)

    @staticmethod
    def _listed(paths: Sequence[Path]) -> str:
        return ", ".join(map(str, paths))


def word(given: str, name: str) -> str:
    """One argument that cannot be taken for an option."""
    if not isinstance(given, str) or not given:
        raise Refused(f"{name} must be a string that is not empty")
    if given.startswith("-"):
        raise Refused(f"{name} starts with -: options cannot be given in an argument")
    return text(given, name)


def text(given: str, name: str) -> str:
    if "\0" in given or len(given) > _LONGEST:
        raise Refused(f"{name} has a NUL character or more than {_LONGEST} characters")
    return given


def words(given: Sequence[str], name: str) -> list[str]:
    """What a script gets as its own arguments: any text, since kernelscope does not read it."""
    if len(given) > _MOST_WORDS:
        raise Refused(f"{name} has more than {_MOST_WORDS} words")
    return [text(each, name) for each in given]
