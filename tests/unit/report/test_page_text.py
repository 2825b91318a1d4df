"""The page's text: data that cannot get out of its block, and a policy that fits the script."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.hostile_runs import ATTACKS

from kernelscope.report import page_text
from kernelscope.report.page_text import SCRIPTS, STYLES, as_block, page


@settings(deadline=None, max_examples=40)
@given(
    st.recursive(
        st.text() | st.integers() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_data_stays_in_its_block(data: object) -> None:
    block = as_block(data)
    assert json.loads(block) == data
    assert block.isascii()
    assert not re.search(r"[<>&]", block)


def test_what_is_filled_in_is_not_filled_again() -> None:
    text = page("$data $script", {"text": [*ATTACKS, "$style", "$policy"]})
    [block] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert json.loads(block)["text"][-2:] == ["$style", "$policy"]
    assert "<title>$data $script</title>" in text


def test_the_policy_allows_our_script_and_style_alone() -> None:
    text = page("x", {})
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    told = dict(part.strip().split(" ", 1) for part in html.unescape(policy).split(";"))
    for directive, tag in (("script-src", "script"), ("style-src", "style")):
        [inside] = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert told[directive] == f"'sha256-{digest}'"
    assert told["default-src"] == told["connect-src"] == told["base-uri"] == told["form-action"] == "'none'"
    assert "unsafe" not in policy
    assert "connect-src 'self'" in html.unescape(page("x", {}, connects=True))


def test_every_file_of_the_page_is_in_it() -> None:
    folder = Path(page_text.__file__).parent / "page"
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == {*SCRIPTS, *STYLES, "page.html"}


def test_the_script_makes_no_markup_of_text() -> None:
    text = page("x", {})
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "srcdoc",
    ):
        assert word not in text, word
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_the_page_writes_out_what_a_notebook_replaces() -> None:
    """One list of characters that nobody can see, in two languages."""
    from importlib.resources import files

    from kernelscope.model.html import CONTROL

    script = (files("kernelscope.report") / "page" / "parts" / "dom.js").read_text(encoding="utf-8")
    [told] = re.findall(r"^const UNSEEN = /(\[.*\])/gu;$", script, re.MULTILINE)
    ours = re.compile(re.sub(r"\\u\{([0-9a-f]+)\}", lambda found: chr(int(found[1], 16)), told))
    every = "".join(map(chr, range(0x110000)))
    lone = set(map(chr, range(0xD800, 0xE000)))  # a notebook's text is encoded, which replaces them
    assert set(ours.findall(every)) - lone == set(CONTROL.findall(every))
    assert lone <= set(ours.findall(every))
