"""What a compiler did to a graph, as plain data: the document of one graph, and its four printed sections."""

from __future__ import annotations

from .document import VERSION as VERSION
from .document import new_document as new_document
from .document import write as write
from .sections import Shown as Shown
from .sections import render as render

__all__ = ["VERSION", "Shown", "new_document", "render", "write"]
