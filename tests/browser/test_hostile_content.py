"""What a run says is shown, and never becomes markup, style, script or an address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.hostile_runs import ATTACKS, write_hostile

from .conftest import Seen, Write, served, shown

STOPPED = ["script-src-elem", "img-src", "frame-src", "style-src-elem", "connect-src"]
VIEWS = ("overview", "pipeline", "calls", "call=0", "call=3", "call=17", "timeline", "diff")


@pytest.fixture(params=["file", "served"])
def address(request: pytest.FixtureRequest, tmp_path: Path, written: Write) -> Iterator[str]:
    run = write_hostile(tmp_path / "</title><script>window.hacked=8<.kscope".replace("/", "∕"))
    if request.param == "file":
        yield written(run)
    else:
        with served(run) as server:
            yield server.address


def test_nothing_executes(page: Page, seen: Seen, address: str) -> None:
    for view in VIEWS:
        page.goto(f"{address}#{view}")
        shown(page, view)
        if view == "pipeline":
            page.get_by_role("button", name="Fusion graph").click()
            page.locator("g.group").first.click()
        page.wait_for_timeout(100)
        assert page.evaluate("window.hacked") is None, view
        assert page.evaluate("getComputedStyle(document.body).display") == "flex"
        tags = page.evaluate("[...document.querySelectorAll('main *')].map((e) => e.localName)")
        assert not {"script", "img", "iframe", "object", "embed", "link", "style", "base"} & set(tags), view
        links = page.evaluate("[...document.querySelectorAll('a')].map((a) => a.getAttribute('href'))")
        assert all(link.startswith("#") for link in links), view
        events = page.evaluate(
            "[...document.querySelectorAll('*')].flatMap((e) => e.getAttributeNames())"
            ".filter((n) => n.startsWith('on'))"
        )
        assert not events, view


def test_it_is_shown_as_it_is(page: Page, address: str) -> None:
    page.goto(f"{address}#call=0")
    expect(page.locator("h1")).to_contain_text(ATTACKS[0])
    page.goto(f"{address}#call=9")
    expect(page.locator("h1")).to_contain_text(r"\u202egnp.exe\u2066\u200b\u0007\u2028")
    assert "\u202e" not in page.locator("body").inner_text()


def test_the_policy_stops_what_would_get_through(page: Page, seen: Seen, address: str) -> None:
    """As if a hole had been found: an inline script, a handler, eval, an address, another host."""
    seen.expected = ("Content Security Policy",)
    refused: dict[str, str | None] = {}
    page.on("requestfailed", lambda request: refused.update({request.url: request.failure}))
    page.goto(address)
    expect(page.locator("h1").first).to_be_visible()
    broken = page.evaluate(
        """async (expected) => {
          const violations = [];
          document.addEventListener('securitypolicyviolation',
            (event) => violations.push(event.effectiveDirective));
          const script = document.createElement('script');
          script.textContent = 'window.hacked = 9';
          document.body.append(script);
          const foreign = document.createElement('script');
          foreign.src = 'https://example.com/x.js';
          document.body.append(foreign);
          const box = document.createElement('div');
          box.innerHTML = '<img src="https://example.com/x.png" onerror="window.hacked = 10">'
            + '<iframe src="https://example.com/"></iframe><style>body { display: none }</style>';
          document.body.append(box);
          const evaluated = await new Promise((tell) => {
            setTimeout(() => { try { tell(String(eval('1 + 1'))); } catch (error) { tell(error.name); } });
          });
          const asked = await fetch('https://example.com/').then(() => 'answered', (error) => error.name);
          for (let turn = 0; turn < 100 && !expected.every((each) => violations.includes(each)); turn++) {
            await new Promise((wake) => setTimeout(wake, 100));
          }
          await new Promise((wake) => setTimeout(wake, 100));
          return { violations, evaluated, asked, hacked: window.hacked ?? null,
            display: getComputedStyle(document.body).display };
        }""",
        STOPPED,
    )
    assert broken["hacked"] is None
    assert broken["evaluated"] == "EvalError"
    assert broken["asked"] == "TypeError"
    assert broken["display"] == "flex"
    assert set(STOPPED) <= set(broken["violations"])
    foreign = {url for url in seen.requests if "example.com" in url}
    assert {refused[url] for url in foreign} <= {"csp"}
    seen.requests[:] = [url for url in seen.requests if url not in foreign]
