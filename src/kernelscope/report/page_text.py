"""The page as one text: its style and its script inline, the data as JSON that nothing executes."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from typing import Any

from kernelscope.text.file_names import readable

# Concatenated in this order into one function, so that nothing of ours is global.
SCRIPTS = (
    "parts/dom.js", "parts/format.js", "parts/names.js", "data/file_data.js", "data/served_data.js",
    "parts/virtual_list.js", "parts/code_pane.js", "parts/drawing.js", "parts/split.js", "parts/minimap.js",
    "views/overview.js", "views/calls.js", "views/call.js", "views/pipeline.js", "views/fusion.js",
    "views/timeline_lanes.js", "views/timeline.js", "views/diff.js", "views/ranks.js", "views/precision.js",
    "keys.js", "main.js",
)  # fmt: skip
STYLES = ("style/base.css", "style/parts.css", "style/views.css", "style/timeline.css", "style/narrow.css")


def page(title: str, data: dict[str, Any], *, connects: bool = False) -> str:
    """The whole document. Only our own script and style may run; `connects` lets it ask its server."""
    script = "(() => {\n'use strict';\n" + "\n".join(map(_part, SCRIPTS)) + "\n})();\n"
    style = "\n".join(map(_part, STYLES))
    source = "'self'" if connects else "'none'"
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        f"connect-src {source}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    filled = {
        "$policy": html.escape(policy, quote=True),
        "$title": html.escape(readable(title)),
        "$style": style,
        "$data": as_block(data),
        "$script": script,
    }
    # In one pass: what is filled in is not searched.
    return re.sub(r"\$(policy|title|style|data|script)", lambda found: filled[found[0]], _part("page.html"))


def as_block(data: Any) -> str:
    """JSON that stands in a <script> and cannot end it: ASCII without <, > and &."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _part(name: str) -> str:
    return (files(__package__) / "page" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
