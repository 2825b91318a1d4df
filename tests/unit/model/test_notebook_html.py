"""What a notebook shows of runs, calls and results: text stays text, and nothing can run."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.support.hostile_texts import ARGUMENT, EVIL, KERNEL, write_hostile
from tests.support.sample_runs import write_sample

import kernelscope
from kernelscope.analysis.diff.divergence import Divergence
from kernelscope.analysis.diff.divergence_parts import Compared, Source, Spread
from kernelscope.analysis.diff.pairs import ArgumentDifference
from kernelscope.analysis.tensor_errors import Errors
from kernelscope.events import Frame
from kernelscope.model.html import text
from kernelscope.shadowing.culprit import Culprit
from kernelscope.shadowing.result import ShadowResult

TAGS = {"style", "div", "span", "table", "tr", "td", "th", "code", "pre", "b", "details", "summary"}
VISIBLE = EVIL.translate({ord(c): "\ufffd" for c in "\x1b\x07\x00\u202e\u200b\u2028"})


class Page(HTMLParser):
    """Refuses whatever could do something; collects the text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open, f"{self.open} are not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, f"<{tag}>"
        assert all(name == "class" and re.fullmatch(r"[a-z ]+", value or "") for name, value in attrs), attrs
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    handle_decl = handle_pi = unknown_decl = handle_comment


def culprit(word: str) -> Culprit:
    return Culprit(
        "wrong-kernel", word, 3, word, "cpp", word, origin=(Frame(word, 3, word),), source=word,
        numbers={word: word, "max_abs": float("nan")},
    )  # fmt: skip


def divergence(word: str) -> Divergence:
    return Divergence(
        "inputs-differ", word, 3, 3, 4, word, word, "cpp", word, Frame(word, 3, word), word, 1, "forward",
        differences=(
            ArgumentDifference(word, 0, "before", "values", 1, 2),
            ArgumentDifference(word, 1, "after", "shape", word, word),
        ),
        source=Source("call", word), spread=Spread(differing=2, later=3), notes=(word,),
        compared=Compared(word, word, 5, 5, 5, 3),
    )  # fmt: skip


def test_a_run_and_a_call(tmp_path: Path) -> None:
    write_sample(tmp_path / "a.kscope")
    run = kernelscope.load(tmp_path / "a.kscope")
    page = Page(run._repr_html_())
    assert "40 calls of 3 kernels in 1 graph" in page.text
    assert "20 more" in page.text
    assert "undeclared-write" in page.text
    page = Page(run.calls[0]._repr_html_())
    for shown in (
        "cpp_fused_relu_0",
        "/model.py:11 in forward",
        "0_forward (forward)",
        "uninitialised",
        "1.50 µs",
    ):
        assert shown in page.text
    assert f"#{run.calls[0].post_hashes[1]:016x}"[:9] in page.text
    assert str(run.calls[2].post_stats[1]) in Page(run.calls[2]._repr_html_()).text
    assert "changed" not in page.text
    assert sum("RuntimeError: no" in Page(c._repr_html_()).text for c in run.calls) == 1


def test_results() -> None:
    page = Page(divergence("word")._repr_html_())
    for shown in ("inputs-differ", "call 3 / 4", "2 of 3 later calls differ", "word", "came fromword"):
        assert shown in page.text
    assert "shapewordword" in page.text  # as it is, where no hash is meant
    assert "values#00000000#00000000" in page.text
    assert "no divergence" in Page(Divergence(compared=Compared("a", "b", 5, 5, 5))._repr_html_()).text
    result = ShadowResult()
    assert "no compiled kernel was launched" in Page(result._repr_html_()).text
    result.counts.launches = result.counts.buffers = 4
    assert "nothing wrong" in Page(result._repr_html_()).text
    result.add(culprit("word"))
    result.leave_out("k", "a", "because")
    page = Page(result._repr_html_())
    for shown in ("1 wrong", "wrong-kernel", "word", "k a: because", "max_absnan"):
        assert shown in page.text


def test_numbers_of_a_divergence() -> None:
    errors = Errors("out", "after", 10, 2, 0.5, 0.25, 7, (1, 2), 1.0, 1.5, ())
    page = Page(replace(divergence("word"), errors=(errors,))._repr_html_())
    assert "[1, 2]: 1.0 and 1.5" in page.text


def test_hostile_content_is_text(tmp_path: Path) -> None:
    run = kernelscope.load(write_hostile(tmp_path / "h.kscope"))
    result = ShadowResult()
    result.add(culprit(EVIL))
    result.leave_out(EVIL, EVIL, EVIL)
    result.unshadowed.append(EVIL)
    result.notes.append(EVIL)
    for shown in (run, run.calls[0], divergence(EVIL), Divergence(notes=(EVIL,)), result):
        html = shown._repr_html_()
        page = Page(html)
        assert "<script>alert(1)</script>" in page.text, "it is shown, as text"
        assert not set(page.text) & set("\x1b\x07\x00\u202e\u200b\u2028")
        assert "onerror" not in re.sub(r"&lt;.*?&gt;", "", html)
        html.encode()
    assert VISIBLE in Page(run.calls[0]._repr_html_()).text.replace(KERNEL, "")
    assert ARGUMENT[0] + VISIBLE[:40] in Page(run.calls[0]._repr_html_()).text


@pytest.mark.parametrize("value", ["\ud800", "x" * 1000, 3, None, b"\xff"])
def test_any_value_can_be_shown(value: object) -> None:
    shown = text(value)
    shown.encode()
    assert len(shown) <= 160


def test_light_and_dark(tmp_path: Path) -> None:
    """No background of its own, and both colours that it has are given for each theme."""
    html = kernelscope.load(write_hostile(tmp_path / "h.kscope"))._repr_html_()
    style = html.partition("</style>")[0]
    assert "prefers-color-scheme: dark" in style
    assert 'data-jp-theme-light="false"' in style
    assert set(re.findall(r"background: (\w+)", style)) == {"none"}
    for color, background in (("#b3261e", 255), ("#1b6e3c", 255), ("#ff8a80", 17), ("#7ddba3", 17)):
        assert color in style
        assert contrast(color, background) >= 4.5


def contrast(color: str, grey: int) -> float:
    """As WCAG defines it."""

    def luminance(*channels: int) -> float:
        linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted([luminance(*bytes.fromhex(color[1:])), luminance(grey, grey, grey)])
    return (high + 0.05) / (low + 0.05)
