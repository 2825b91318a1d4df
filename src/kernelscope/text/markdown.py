"""Recorded text in Markdown: always as code, so that it is neither markup, nor a link, nor a mention."""

from __future__ import annotations

from typing import Any

from .visible import one_line, visible


def in_line(value: Any) -> str:
    """As code within a line, whatever is in it."""
    text = one_line(str(value)).strip()
    if not text:
        return ""
    fence = "`"
    while fence in text:
        fence += "`"
    room = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{room}{text}{room}{fence}"


def fenced(text: str, language: str = "") -> str:
    """As a block of code, whatever is in it."""
    text, fence = visible(text), "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def row(*cells: Any) -> str:
    """A row of a table; a bar in a cell does not end it."""
    return "| " + " | ".join(in_line(cell).replace("|", "\\|") for cell in cells) + " |"
