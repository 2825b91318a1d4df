"""Standalone scripts from a recorded call or graph: writing them needs no torch, running them no more."""

from __future__ import annotations

from .call_script import call_script as call_script
from .composing import Script as Script
from .files import write as write
from .graph_script import graph_script as graph_script
