"""The report of a transformer's training, as a person uses it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from kernelscope.store.stored_run import load

from .conftest import Recorded, Seen, Write, shown


@pytest.fixture
def opened(page: Page, training: Recorded, written: Write) -> Page:
    page.goto(written(training["first"]))
    expect(page.locator("h1").first).to_contain_text("first")
    return page


def test_overview_tells_what_ran(opened: Page, training: Recorded) -> None:
    run = load(training["first"])
    calls, kernels, graphs = run.totals()
    expect(opened.locator(".heading")).to_contain_text(
        f"{calls} calls of {kernels} kernels in {graphs} graphs"
    )
    slowest, _, _, _ = run.times()[0]
    expect(opened.locator("table.kernels tbody")).to_contain_text(slowest.kernel.name)
    expect(opened.locator(".findings, p.fine").first).to_be_visible()


def test_from_a_line_to_its_kernel_to_its_call(opened: Page, training: Recorded) -> None:
    run = load(training["first"])
    opened.get_by_role("link", name="Pipeline").click()
    source = opened.locator(".pane").filter(has=opened.get_by_role("heading", name="Source"))
    source.locator(".line.linked", has_text="self.down(F.gelu").click()
    for name in ("Source", "Graph", "Wrapper"):
        pane = opened.locator(".pane").filter(has=opened.get_by_role("heading", name=name, exact=True))
        expect(pane.locator(".line.marked").first).to_be_in_viewport()
    chip = opened.locator(".launch", has_text="gelu").first
    kernel = chip.get_by_role("button").inner_text()
    chip.get_by_role("button").click()
    expect(opened.locator(".launch")).to_have_count(1)
    expect(opened.locator("select[aria-label=Kernel] option:checked")).to_have_text(kernel)
    opened.locator(".launch").get_by_role("link", name=re.compile(r"^call \d+$")).click()
    index = int(re.findall(r"#call=(\d+)", opened.url)[0])
    [call] = run.select(first=index, limit=1)
    assert call.kernel_name == kernel
    assert call.provenance is not None
    assert any(node.frames[0].line for node in call.provenance.nodes if node.frames)
    expect(opened.locator("h1")).to_contain_text(kernel)


def test_pointing_marks_and_leaving_unmarks(opened: Page) -> None:
    opened.goto(opened.url.partition("#")[0] + "#pipeline")
    graph = opened.locator(".pane").filter(has=opened.get_by_role("heading", name="Graph", exact=True))
    graph.locator(".line.linked", has_text="aten").first.hover()
    expect(opened.locator(".pane .line.marked").first).to_be_attached()
    opened.locator(".brand").hover()
    expect(opened.locator(".pane .line.marked")).to_have_count(0)


def test_fusion_groups_lead_to_kernels(opened: Page) -> None:
    opened.goto(opened.url.partition("#")[0] + "#pipeline")
    opened.get_by_role("button", name="Fusion graph").click()
    groups = opened.locator("g.group")
    assert groups.count() > 3
    assert opened.locator("path.edge").count() > 2
    groups.filter(has_text="cpp_fused").first.click()
    expect(opened.locator("g.group.marked").first).to_be_visible()
    expect(opened.locator(".launch")).to_contain_text("cpp_fused")


def test_filters(opened: Page, training: Recorded) -> None:
    run = load(training["first"])
    opened.keyboard.press("/")
    search = opened.locator("#search")
    expect(search).to_be_focused()
    search.fill("extern_kernels.addmm")
    wanted = [c for c in run.calls if "addmm" in c.kernel_name]
    expect(opened.locator(".toolbar .count")).to_have_text(f"{len(wanted)} of {len(run)} calls")
    opened.get_by_label("Step").fill("1")
    wanted = [c for c in wanted if c.step == 1]
    expect(opened.locator(".toolbar .count")).to_have_text(f"{len(wanted)} of {len(run)} calls")
    expect(opened.locator(".row.call:visible").first).to_contain_text(str(wanted[0].index))
    search.fill("no such kernel")
    expect(opened.locator(".toolbar .count")).to_have_text(f"0 of {len(run)} calls")
    opened.get_by_label("Step").fill("")
    search.fill("")
    opened.get_by_label("Phase").select_option("backward")
    count = len(run.select(phase="backward"))
    expect(opened.locator(".toolbar .count")).to_have_text(f"{count} of {len(run)} calls")
    assert "phase=backward" in opened.url


def test_deep_link_to_a_call(page: Page, training: Recorded, written: Write) -> None:
    run = load(training["first"])
    call = next(c for c in run.calls if c.kind == "cpp" and c.index > 5)
    page.goto(f"{written(training['first'])}#call={call.index}")
    expect(page.locator("h1")).to_contain_text(f"call {call.index}")
    expect(page.locator("h1")).to_contain_text(call.kernel_name)
    table = page.locator("table.arguments")
    for i, name in enumerate(call.arg_names):
        expect(table).to_contain_text(name)
        if i in call.post_hashes:
            expect(table).to_contain_text(f"#{call.post_hashes[i]:016x}")
    assert page.locator("canvas.heat").count() > 0
    assert page.locator(".histogram rect").count() > 0
    expect(page.locator(".source")).to_contain_text("kernel(")


def test_who_produced_and_who_used(page: Page, training: Recorded, written: Write) -> None:
    """As an independent walk through the storages of the run finds it."""
    run = load(training["first"])
    call, writer = next(found for found in map(_with_writer, _pairs(run.calls)) if found)
    page.goto(f"{written(training['first'])}#call={call.index}")
    produced = page.locator(".flow section").filter(has=page.get_by_role("heading", name="Produced by"))
    produced.get_by_role("link", name=re.compile(rf"^call {writer.index} ")).click()
    used = page.locator(".flow section").filter(has=page.get_by_role("heading", name="Used by"))
    expect(used.get_by_role("link", name=re.compile(rf"^call {call.index} "))).to_be_visible()


def _pairs(calls):  # type: ignore[no-untyped-def]
    return [(call, calls[:at]) for at, call in enumerate(calls)]


def _with_writer(pair):  # type: ignore[no-untyped-def]
    call, earlier = pair
    for i, role in enumerate(call.roles):
        if role == "in" and i in call.storages:
            for other in reversed(earlier):
                written = {other.storages[j][0] for j in other.modified_args if j in other.storages}
                if call.storages[i][0] in written:
                    return call, other
    return None


def test_light_and_dark(opened: Page, seen: Seen) -> None:
    def ground() -> str:
        return str(opened.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = ground()
    opened.keyboard.press("t")
    dark = ground()
    assert dark != light
    opened.reload()
    expect(opened.locator("h1").first).to_be_visible()
    assert ground() == dark
    opened.locator("#theme").click()
    assert ground() == light
    opened.emulate_media(color_scheme="dark")
    opened.evaluate("delete document.documentElement.dataset.theme")
    assert ground() == dark


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_stand_out(opened: Page, scheme: str) -> None:
    """Text has the contrast that WCAG AA asks for, 4.5 to 1, in both schemes."""
    opened.emulate_media(color_scheme=scheme)
    pairs = [
        ("ink", "ground"), ("ink", "panel"), ("soft", "ground"), ("soft", "panel"), ("accent", "panel"),
        ("accent", "ground"), ("grave", "grave-ground"), ("odd", "odd-ground"), ("fine", "ground"),
        ("ink", "mark"), ("ink", "linked"), ("ink", "step"), ("ink", "compiling"),
        *(("on-kind", f"graph-{direction}") for direction in ("forward", "backward", "other")),
        *(("on-kind", f"kind-{kind}") for kind in ("triton", "cpp", "extern", "op", "gcu", "other")),
    ]  # fmt: skip
    shades = opened.evaluate(
        """(names) => names.map((name) => {
          const probe = document.createElement('i');
          probe.style.color = `var(--${name})`;
          document.body.append(probe);
          const found = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map(Number);
          probe.remove();
          return found;
        })""",
        list(dict.fromkeys(name for pair in pairs for name in pair)),
    )
    by_name = dict(zip(dict.fromkeys(name for pair in pairs for name in pair), shades, strict=True))
    assert {pair: c for pair in pairs if (c := _contrast(by_name[pair[0]], by_name[pair[1]])) < 4.5} == {}


def _contrast(a: list[float], b: list[float]) -> float:
    def light(rgb: list[float]) -> float:
        linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(a), light(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_keyboard_alone(opened: Page) -> None:
    opened.keyboard.press("3")
    rows = opened.get_by_role("listbox", name="Calls")
    expect(opened.locator(".row.call:visible").first).to_be_visible()
    rows.focus()
    for key in ("j", "j", "ArrowDown", "k", "Enter"):
        opened.keyboard.press(key)
    expect(opened.locator("h1")).to_contain_text("call 1 ")
    opened.keyboard.press("]")
    expect(opened.locator("h1")).to_contain_text("call 2 ")
    opened.keyboard.press("[")
    expect(opened.locator("h1")).to_contain_text("call 1 ")
    opened.keyboard.press("?")
    expect(opened.get_by_role("dialog")).to_be_visible()
    opened.keyboard.press("Escape")
    expect(opened.get_by_role("dialog")).not_to_be_visible()


def test_timeline_zooms_and_leads_to_calls(opened: Page) -> None:
    opened.keyboard.press("4")
    told = opened.locator(".timeline-page .toolbar .quiet")
    expect(told).to_contain_text("in view")
    opened.get_by_role("button", name="Show all").click()
    everything = told.inner_text()
    opened.get_by_role("button", name="Zoom in").click()
    expect(told).not_to_have_text(everything)
    opened.get_by_role("button", name="Show all").click()
    expect(told).to_have_text(everything)
    expect(opened.locator(".in-view tbody tr").first).to_be_visible()


def test_copies(opened: Page) -> None:
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened.goto(opened.url.partition("#")[0] + "#call=0")
    opened.get_by_role("button", name="Copy the name").click()
    expect(opened.locator("#said")).to_contain_text("Copied")
    name = opened.evaluate("navigator.clipboard.readText()")
    assert name in opened.locator("h1").inner_text()


def test_a_wide_and_a_narrow_window(opened: Page) -> None:
    for width, height in ((1280, 720), (2560, 1300)):
        opened.set_viewport_size({"width": width, "height": height})
        for view in ("overview", "pipeline", "calls", "timeline"):
            opened.goto(opened.url.partition("#")[0] + f"#{view}")
            expect(opened.locator(f"main.view-{view}")).to_be_visible()
            shown(opened, view)
            assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")
