"""A run in the terminal: calls, one call, its source, and where two runs differ. Needs Textual."""

from __future__ import annotations
