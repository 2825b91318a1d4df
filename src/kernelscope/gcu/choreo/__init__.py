"""The Choreo language: text to syntax tree and back, legality checks, and translation to C++."""

from __future__ import annotations

from .errors import ChoreoError as ChoreoError
from .parser import parse as parse
from .printer import show as show
from .to_cpp import translate as translate

__all__ = ["ChoreoError", "parse", "show", "translate"]
