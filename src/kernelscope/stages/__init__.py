"""What a compiler did to a graph, as plain data: records, views on them, the document of one graph."""

from __future__ import annotations

from .document import VERSION as VERSION
from .document import new_document as new_document
from .document import write as write
from .graphs import NoSuchStage as NoSuchStage
from .graphs import StagedGraph as StagedGraph
from .graphs import Stages as Stages
from .graphs import user_lines as user_lines
from .sections import Shown as Shown
from .sections import render as render
