"""All everyday models by name. A library is imported only when one of its models is wanted."""

from __future__ import annotations

import importlib
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from tests.programs.models.registry import MODELS, Model

_DEFINITION = re.compile(r'^@model\("(.+?)", "(.+?)".*\n(?:#.*\n)*def (\w+)\(', re.MULTILINE)


@dataclass(frozen=True)
class Listed:
    """A model as its file lists it."""

    name: str
    family: str
    library: str
    file: str

    def load(self) -> Model:
        importlib.import_module(f"tests.programs.models.{self.file}")
        return MODELS[self.name]


def _listed() -> dict[str, Listed]:
    files = sorted(Path(__file__).parent.glob("*.py"))
    texts = {file.stem: file.read_text(encoding="utf-8") for file in files}
    return {
        name: Listed(name, family, library, file)
        for file, text in texts.items()
        for family, library, name in _DEFINITION.findall(text)
    }


ALL = _listed()
MISSING = sorted({each.library for each in ALL.values() if importlib.util.find_spec(each.library) is None})
INSTALLED = {name: each for name, each in ALL.items() if each.library not in MISSING}
