"""Each view of each page at the widths of a telephone, a laptop and a large screen: nothing overlaps."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from kernelscope.store.stored_run import load
from tests.support.hostile_corpus import Scene, every_text
from tests.support.hostile_runs import write_hostile
from tests.support.long_runs import write_long_run

from .boxes import DRAWN, faults
from .conftest import Recorded, Write, served, shown
from .test_what_is_missing import only_findings

SIZES = {390: 844, 1280: 800, 1920: 1080}
VIEWS = ("overview", "pipeline", "fusion", "calls", "call=1", "timeline", "all", "diff", "help")
LONG = "cpp_fused__unsafe_view_add_clone_embedding_dense_backward_native_layer_norm_permute_sum_view_"


small_and_large = pytest.mark.parametrize("sized", [390, 1280], indirect=True)


@pytest.fixture(params=SIZES)
def sized(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    """A page of that width; a telephone has a touch screen."""
    size = {"width": request.param, "height": SIZES[request.param]}
    context = browser.new_context(viewport=size, has_touch=request.param < 500)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda m: errors.append(m.text) if m.type in ("error", "warning") else None)
    page.add_init_script(DRAWN)
    yield page
    context.close()
    assert not errors, errors


def measured(page: Page, address: str, *views: str) -> None:
    """Each view in light and in dark has no faults."""
    found: dict[str, list[str]] = {}
    for view in views:
        name = {"fusion": "pipeline", "all": "timeline", "help": "overview"}.get(view, view)
        page.goto(f"{address}#{name}")
        shown(page, name)
        if view == "fusion" and page.get_by_role("button", name="Fusion graph").count():
            page.get_by_role("button", name="Fusion graph").click()
        if view == "all" and page.locator("canvas.timeline").count():
            page.get_by_role("button", name="Show all").click()
        if view == "help":
            page.get_by_role("button", name="Keyboard help").click()
        page.evaluate("new Promise((wake) => setTimeout(wake, 150))")  # what is drawn a little later
        found[f"{view} light"] = faults(page)
        page.emulate_media(color_scheme="dark")
        found[f"{view} dark"] = faults(page)
        page.emulate_media(color_scheme="light")
        page.keyboard.press("Escape")  # closes the help
    assert {view: what for view, what in found.items() if what} == {}


def test_a_training_with_its_diff(sized: Page, training: Recorded, written: Write) -> None:
    """A compiled program of several steps, recorded with all there is."""
    measured(sized, written(training["first"], training["second"]), *VIEWS)


@pytest.mark.slow
def test_windows_of_any_other_width(browser: Browser, training: Recorded, written: Write) -> None:
    page = browser.new_page()
    page.add_init_script(DRAWN)
    for width in (320, 600, 760, 899, 901, 1100, 1440, 1699, 1701, 2560):
        page.set_viewport_size({"width": width, "height": 800})
        measured(page, written(training["first"], training["second"]), *VIEWS)
    page.close()


@small_and_large
def test_long_names_and_many_calls(sized: Page, tmp_path: Path, written: Write) -> None:
    run = write_long_run(tmp_path / "run.kscope", 5000)
    with sqlite3.connect(run / "run.db") as db:
        db.execute("UPDATE kernels SET name = ? || id", (LONG,))
        db.execute("UPDATE calls SET duration_ns = (id * 7919) % 900 + 50")
    db.close()
    measured(sized, written(run), *(view for view in VIEWS if view not in ("fusion", "diff", "help")))
    if sized.viewport_size == {"width": 390, "height": 844}:
        sized.goto(f"{written(run)}#calls")
        first = sized.locator(".row.call:visible").first
        expect(first.locator(".name")).to_have_text(f"{LONG}0")  # all of it, for who copies it
        assert first.locator(".name").get_attribute("title") == f"{LONG}0"
        tails = sized.locator(".row.call:visible .tail").all_inner_texts()
        assert len(set(tails)) == len(tails), "rows look alike"


@small_and_large
def test_a_run_with_nothing_but_findings_and_a_hostile_one(
    sized: Page, tmp_path: Path, written: Write
) -> None:
    measured(sized, written(only_findings(tmp_path / "found.kscope")), *VIEWS[:-1])
    measured(sized, written(write_hostile(tmp_path / "hostile.kscope")), *VIEWS)


@small_and_large
def test_words_without_an_end(sized: Page, tmp_path: Path, written: Write) -> None:
    """Host, command, kinds and messages of findings may be one long word."""
    scene = Scene(tmp_path / "home")
    every_text(scene)
    measured(sized, written(scene.run), "overview")
    edges = "[...document.querySelectorAll('main *')].map((each) => each.getBoundingClientRect().right)"
    right = sized.evaluate(f"Math.max(...{edges})")
    assert right <= sized.evaluate("innerWidth")


def test_it_finds_what_is_wrong(page: Page, training: Recorded, written: Write) -> None:
    """The measure itself: something over something else, something too wide, something cut off."""
    page.goto(f"{written(training['first'])}#overview")
    shown(page, "overview")
    assert faults(page) == []
    for style, told in (
        ("margin-top: -40px", "overlap: "),
        ("width: 3000px", "scrolls sideways"),
        ("display: block; width: 30px; overflow: hidden; white-space: nowrap", "cut off by"),
    ):
        page.locator(".heading p").first.evaluate("(e, style) => { e.style.cssText = style; }", style)
        assert any(told in each for each in faults(page)), style
    page.locator(".heading p").first.evaluate("(e) => { e.style.cssText = ''; }")


def test_the_served_page_at_the_width_of_a_telephone(browser: Browser, training: Recorded) -> None:
    with served(training["first"]) as server:
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.add_init_script(DRAWN)
        measured(page, server.address, "overview", "calls", "timeline")
        page.close()


@small_and_large
def test_what_a_notebook_shows(sized: Page, training: Recorded) -> None:
    """A wide table scrolls in its own box, and not the page."""
    run = load(training["first"])
    for shown_ in (run, run.calls[4]):
        sized.set_content(f'<body style="margin: 8px"><main id="main">{shown_._repr_html_()}</main>')
        assert faults(sized) == []


# -- the timeline ------------------------------------------------------------------------------------------


def test_steps_graphs_and_compilations_have_lanes(page: Page, training: Recorded, written: Write) -> None:
    run = load(training["first"])
    page.add_init_script(DRAWN)
    page.goto(f"{written(training['first'])}#timeline")
    shown(page, "timeline")
    lanes = page.locator("canvas.timeline").evaluate(
        "(canvas) => Object.keys(JSON.parse(canvas.dataset.lanes))"
    )
    assert lanes[:3] == ["steps", "compiling", "graphs"]
    texts = "document.querySelector('canvas.timeline').texts.map((each) => each.text)"
    told = page.locator(".timeline-page .toolbar .quiet")
    for step in sorted({call.step for call in run.calls}):
        # From one step to the next: each fills the window, with its graphs.
        page.get_by_role("button", name="Next step" if step else "Previous step").click()
        if step == 0:
            page.get_by_role("button", name="Show all").click()
            page.keyboard.press("[")
        # The next frame draws it; before, the texts are those of another step. A box that is too narrow, as
        # one of the graphs is where the other took long, has no name.
        graphs = [graph.name for graph in run.stages] if step else []
        has = f"(text) => {texts}.includes(text)"
        drawn = f"([step, graphs]) => ({has})(step) && (!graphs.length || graphs.some({has}))"
        page.wait_for_function(drawn, arg=[f"step {step}", graphs])
        expect(told).to_contain_text("in view")
        if step:
            calls = sum(call.step == step for call in run.calls)
            expect(told).to_contain_text(f"· {calls} calls in view")


def test_the_minimap_moves_what_is_in_view(page: Page, training: Recorded, written: Write) -> None:
    page.goto(f"{written(training['first'])}#timeline")
    shown(page, "timeline")
    told = page.locator(".timeline-page .toolbar .quiet")
    page.get_by_role("button", name="Show all").click()
    everything = told.inner_text()
    box = page.locator("canvas.minimap").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 20)  # the right edge of what is in view
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20, steps=4)
    page.mouse.up()
    expect(told).not_to_have_text(everything)
    half = told.inner_text()
    units = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
    part, whole = (float(n) * units[unit] for n, unit in re.findall(r"([\d.]+) (s|ms|µs)\b", half))
    assert part < 0.6 * whole
    page.mouse.click(box["x"] + box["width"] - 40, box["y"] + 20)  # elsewhere: it is centred there
    expect(told).not_to_have_text(half)
    assert told.inner_text().partition(" of ")[0] == half.partition(" of ")[0]


# -- panes, times and kernels ------------------------------------------------------------------------------


def test_borders_between_panes_move(page: Page, training: Recorded, written: Write) -> None:
    page.goto(f"{written(training['first'])}#pipeline")
    shown(page, "pipeline")
    pane = page.locator(".pane").first
    bar = page.locator(".panes .columns > .splitter").first

    def wide() -> float:
        box = pane.bounding_box()
        assert box is not None
        return box["width"]

    before = wide()
    below = page.locator(".panes").bounding_box()
    assert below is not None
    assert below["y"] + below["height"] == pytest.approx(900, abs=1)  # they fill the window
    bar.hover()
    page.mouse.down()
    page.mouse.move(300, 300, steps=3)
    page.mouse.up()
    assert wide() == pytest.approx(297, abs=5)
    page.reload()
    shown(page, "pipeline")
    assert wide() == pytest.approx(297, abs=5)  # it is remembered
    bar.focus()
    page.keyboard.press("ArrowRight")
    assert wide() == pytest.approx(321, abs=5)
    bar.dblclick()
    assert wide() == pytest.approx(before, abs=2)


def test_median_and_maximum_stand_beside_the_mean(page: Page, training: Recorded, written: Write) -> None:
    run = load(training["first"])
    page.goto(written(training["first"]))
    row = page.locator("table.kernels tbody tr").first
    name = row.locator("td.name a").inner_text()
    calls = [call for call in run.calls if call.kernel_name == name]
    slowest = max(calls, key=lambda call: call.time or 0)
    heads = page.locator("table.kernels th").all_inner_texts()
    assert heads == ["Kernel", "Calls", "Total", "Median", "Mean", "Max", "GB/s", "Share"]
    times = sorted(call.time or 0 for call in calls)
    half = len(times) // 2
    median = times[half] if len(times) % 2 else (times[half - 1] + times[half]) / 2
    shown_ = [row.locator(f'td[data-label="{label}"]').inner_text() for label in ("median", "mean", "max")]
    sizes = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1}
    for text, time in zip(shown_, (median, sum(times) / len(times), times[-1]), strict=True):
        number, unit = text.split()
        assert float(number) * sizes[unit] == pytest.approx(time, rel=0.01)
    row.locator('td[data-label="max"] a').click()
    expect(page.locator("h1")).to_contain_text(f"call {slowest.index} ")


def test_one_box_for_each_kernel(page: Page, training: Recorded, written: Write) -> None:
    page.goto(f"{written(training['first'])}#pipeline")
    shown(page, "pipeline")
    for at, graph in enumerate(load(training["first"]).stages):
        page.get_by_role("combobox", name="Graph", exact=True).select_option(str(at))
        expect(page.locator(".toolbar")).to_contain_text(f"{len(graph.provenance)} launches")
        page.keyboard.press("f")
        expect(page.locator("g.group").first).to_be_visible()
        titles = page.locator("g.group > title").evaluate_all("(all) => all.map((e) => e.textContent)")
        assert [title.partition("\n")[0] for title in titles] == [p.kernel for p in graph.provenance]
        page.keyboard.press("f")
        expect(page.locator("g.group").first).to_be_hidden()
