"""The Choreo language: text to syntax tree and back, legality checks, and translation to C++."""

from __future__ import annotations

from kernelscope.gcu.choreo.cpp.to_cpp import translate as translate
from kernelscope.gcu.choreo.syntax.errors import ChoreoError as ChoreoError
from kernelscope.gcu.choreo.syntax.parser import parse as parse
from kernelscope.gcu.choreo.syntax.printer import show as show

__all__ = ["ChoreoError", "parse", "show", "translate"]
