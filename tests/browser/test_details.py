"""What each view shows and does, beside what the run says: filters, marks, pictures, lanes, keys."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

import kernelscope
from kernelscope.events import GraphCall
from kernelscope.report.document import RunDocument
from kernelscope.store.stored_run import load
from kernelscope.store.writer_thread import Writer
from tests.support.long_runs import copy_without_a_call, write_long_run
from tests.support.sample_runs import GRAPH, full_call, info, site, write_sample

from .boxes import DRAWN
from .conftest import Recorded, Write, shown

TEXTS = "document.querySelector('canvas.timeline').texts.map((each) => each.text)"


def lane(page: Page, name: str) -> tuple[float, float]:
    """Where the time begins on the page, and the middle of a lane."""
    canvas = page.locator("canvas.timeline")
    box = canvas.bounding_box()
    assert box is not None
    told = canvas.evaluate("(canvas) => [canvas.dataset.margin, canvas.dataset.lanes]")
    top, height = json.loads(told[1])[name]
    return box["x"] + float(told[0]), box["y"] + top + height / 2


def at(page: Page, address: str, view: str) -> None:
    page.goto(f"{address}#{view}")
    shown(page, re.split("[=&]", view)[0])


def in_view(lines: Locator) -> bool:
    """Whether one of them is inside of what scrolls; waits for it."""
    inside = """(all) => all.some((line) => {
      const [own, around] = [line, line.closest('.virtual')].map((e) => e.getBoundingClientRect());
      return own.top >= around.top && own.bottom <= around.bottom;
    })"""
    for _ in range(100):
        if lines.evaluate_all(inside):
            return True
        lines.page.wait_for_timeout(50)
    return False


def counted(page: Page, number: int, of: int) -> None:
    expect(page.locator(".toolbar .count")).to_have_text(f"{number} of {of} calls")


def test_kinds_graphs_and_kernels(page: Page, training: Recorded, written: Write) -> None:
    run = load(training["first"])
    at(page, written(training["first"]), "calls")
    page.get_by_label("Kind").select_option("extern")
    counted(page, len(run.select(kind="extern")), len(run))
    page.get_by_label("Kind").select_option("")
    expect(page.locator(".toolbar .count")).to_have_text(f"{len(run)} calls")
    backward = next(graph for graph in run.graphs if graph.direction == "backward")
    page.get_by_label("Graph").select_option(str(backward.id))
    counted(page, len(run.select(graph=backward.id)), len(run))
    at(page, written(training["first"]), "overview")
    rows = page.locator("table.kernels tbody tr")
    times: dict[str, int] = {}
    for each, _, took, _ in run.times():
        times[each.kernel.name] = times.get(each.kernel.name, 0) + took
    listed = rows.locator("td.name a").all_inner_texts()
    assert listed[0] == max(times, key=lambda name: times[name])
    share = times[listed[0]] / sum(times.values())
    expect(rows.first.locator(".share")).to_have_text(f"{100 * share:.1f}%")
    page.get_by_role("link", name=listed[1], exact=True).click()
    counted(page, sum(call.kernel_name == listed[1] for call in run.calls), len(run))
    expect(page.locator(".toolbar .chip")).to_contain_text(listed[1])


def test_a_call_that_raised(page: Page, tmp_path: Path, written: Write) -> None:
    write_sample(tmp_path / "run.kscope")
    run = load(tmp_path / "run.kscope")
    [failed] = [call for call in run.calls if call.error]
    at(page, written(tmp_path / "run.kscope"), "calls")
    expect(page.locator(".row.call.failed:visible")).to_have_count(1)
    page.locator(".row.call.failed:visible").click()
    expect(page.locator("h1")).to_contain_text(f"call {failed.index} ")
    expect(page.locator(".card.grave")).to_contain_text("RuntimeError: no")
    table = page.locator("table.arguments tbody tr")
    expect(table.nth(1)).to_contain_text("uninitialised")
    expect(table.nth(2)).to_contain_text("512")
    expect(table.nth(3)).to_contain_text(str(failed.recorded.scalars[0]))
    places = [f"{Path(f.file).name}:{f.line}" for f in failed.site.origin]
    assert page.locator("ol.stack code").all_inner_texts() == places


def test_what_a_call_computes_and_holds(page: Page, training: Recorded, written: Write) -> None:
    run = load(training["first"])
    call = next(c for c in run.calls if c.kind == "cpp" and c.provenance and len(c.provenance.nodes) > 2)
    at(page, written(training["first"]), f"call={call.index}")
    nodes = page.locator("table.nodes tr td:first-child").all_inner_texts()
    assert nodes == [node.name for node in call.provenance.nodes]
    pictures = RunDocument(run).call(call.index)
    told = [pictures["pictures"][pictures["saved"][key]] for key in _keys_shown(call, pictures["saved"])]
    drawn = page.locator("figure.histogram").evaluate_all(
        "(all) => all.map((f) => [...f.querySelectorAll('rect')].map((r) => +r.getAttribute('height')))"
    )
    counts = [picture["histogram"]["counts"] for picture in told]
    tall = [[max(1.5 if n else 0, 44 * n / max(each)) for n in each] for each in counts]
    assert [[pytest.approx(h, abs=0.06) for h in bars] for bars in tall] == drawn
    ends = page.locator("canvas.heat").evaluate_all(
        """(all) => all.map((canvas) => {
          const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
          const found = new Set();
          for (let i = 0; i < data.length; i += 4) found.add(data.slice(i, i + 3).join());
          return [found.has('68,1,84'), found.has('253,231,37')];
        })"""
    )
    heats = [picture["heat"] for picture in told]
    assert ends == [[True, heat["low"] < heat["high"]] for heat in heats]  # the lowest and the highest
    page.get_by_role("link", name="see it in the pipeline").click()
    expect(page.locator(".launch")).to_have_count(1)
    expect(page.locator(".launch")).to_contain_text(call.kernel_name)


def _keys_shown(call, saved):  # type: ignore[no-untyped-def]
    """Before, and after if it is something else: as the table has them, row by row."""
    for i in range(len(call.arguments)):
        before, after = f"{i} before", f"{i} after"
        if before in saved:
            yield before
        if after in saved and call.pre_hashes.get(i) != call.post_hashes.get(i):
            yield after


def test_the_pipeline_follows(page: Page, training: Recorded, written: Write) -> None:
    run = load(training["first"])
    at(page, written(training["first"]), "pipeline")
    graph = page.locator(".pane").filter(has=page.get_by_role("heading", name="Graph", exact=True))
    source = page.locator(".pane").filter(has=page.get_by_role("heading", name="Source"))
    source.locator(".line.linked", has_text="self.down(F.gelu").click()
    marked = graph.locator(".line.marked:visible")
    assert in_view(marked)
    for stage in ("aot", "schedule", "dynamo"):
        name = graph.locator("option").filter(has_text=re.compile(rf"^{stage} ·"))
        graph.get_by_role("combobox", name="Stage").select_option(name.get_attribute("value"))
        assert in_view(marked), stage
        expect(graph.locator(".line:visible:not(.marked)").first).to_be_attached()
    page.keyboard.press("Escape")
    expect(page.locator(".launch")).to_have_count(0)
    expect(marked).to_have_count(0)
    names = [g.name for g in run.stages]
    page.get_by_role("combobox", name="Graph", exact=True).select_option(label="0/0 backward")
    expect(page.locator(".toolbar")).to_contain_text(
        f"{len(run.stages.graph('0/0 backward').provenance)} launches"
    )
    assert page.url.endswith(f"graph={names.index('0/0 backward')}")


def test_the_fusion_graph(page: Page, training: Recorded, written: Write) -> None:
    graph = load(training["first"]).stages.graph("0/0 forward")
    at(page, written(training["first"]), "pipeline")
    page.get_by_role("button", name="Fusion graph").click()
    paths = page.locator("path.edge").evaluate_all("(all) => all.map((path) => path.getAttribute('d'))")
    ends = [[float(n) for n in re.findall(r"[\d.]+", path)] for path in paths]
    assert all(first < last for first, *_, last, _ in ends)  # from left to right
    page.get_by_text("Why other pairs were not fused").click()
    reasons = page.locator(".fusion details li")
    expect(reasons).to_have_count(len(graph.refusals))
    expect(reasons.first).to_contain_text(graph.refusals[0].reason)
    box = page.locator("g.group").filter(has_text="cpp_fused").first
    box.focus()
    page.keyboard.press("Enter")
    expect(box).to_have_class(re.compile("marked"))
    expect(page.locator(".launch").first).to_contain_text("cpp_fused")


@pytest.fixture
def lanes(page: Page, tmp_path: Path, written: Write) -> Page:
    """Three calls of 500 ns, 1000 ns apart; the last is of another thread."""
    folder = tmp_path / "run.kscope"
    folder.mkdir()
    writer = Writer(folder, info())
    for number in range(2):
        writer.graph_call(GraphCall(number, GRAPH, 7 + number, 0, "forward", 0))
    for number in range(3):
        call = full_call(next(writer.flight), site(number + 1, f"cpp_fused_{number}"))
        call.start_ns, call.duration_ns, call.thread = 1000 + 1000 * number, 500, 9 if number == 2 else 7
        call.graph_call = 0 if number < 2 else 1
        writer.enter(call)
        writer.leave(call)
    writer.flush()
    writer.close()
    page.add_init_script(DRAWN)
    at(page, written(folder), "timeline")
    expect(page.locator(".timeline-page .toolbar")).to_contain_text("3 calls in view")
    return page


def test_lanes_tips_and_clicks(lanes: Page) -> None:
    page = lanes
    box = page.locator("canvas.timeline").bounding_box()
    assert box is not None
    right = box["x"] + box["width"]

    def point(moment: float, number: int) -> tuple[float, float]:
        left, y = lane(page, f"thread {number + 1}")
        return left + (moment - 1000) / 2500 * (right - left), y

    tip = page.locator(".tip")
    page.mouse.move(*point(2250, 0))
    expect(tip).to_contain_text("call 1 cpp_fused_1")
    expect(tip).to_contain_text("500 ns · at 1.00 µs")
    page.mouse.move(*point(3250, 0))
    expect(tip).to_be_hidden()  # that one is of the other thread
    page.mouse.move(*point(3250, 1))
    expect(tip).to_contain_text("call 2 cpp_fused_2")
    assert {"thread 1", "thread 2", "0", "1.0 µs"} <= set(page.evaluate(TEXTS))

    canvas = page.locator("canvas.timeline")
    canvas.focus()
    page.keyboard.press("+")
    expect(page.locator(".toolbar .quiet").first).to_contain_text("1.56 µs of 2.50 µs")
    page.mouse.move(*point(2250, 0))
    expect(tip).to_contain_text("call 1 ")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.mouse.move(*point(2250, 1))
    page.mouse.move(*point(3250, 1))
    expect(tip).to_contain_text("call 2 ")
    page.mouse.down()
    page.mouse.move(*point(3450, 1), steps=4)
    page.mouse.up()
    assert "#timeline" in page.url  # that was no click
    page.keyboard.press("0")
    expect(page.locator(".toolbar .quiet").first).to_contain_text("2.50 µs of 2.50 µs")
    page.mouse.click(*point(2250, 0))
    expect(page.locator("h1")).to_contain_text("call 1 ")


def test_marks_of_the_axis_differ(page: Page, training: Recorded, written: Write) -> None:
    page.add_init_script(DRAWN)
    at(page, written(training["first"]), "timeline")
    page.get_by_role("button", name="Show all").click()
    for _ in range(12):
        page.get_by_role("button", name="Zoom in").click()
        page.wait_for_timeout(250)  # until it has asked for what is in view
        marks = [t for t in page.evaluate(TEXTS) if re.fullmatch(r"[\d.]+ (s|ms|µs|ns)", t)]
        assert len(marks) >= 3
        assert len(marks) == len(set(marks)), marks


def test_compilations_are_on_the_timeline(page: Page, training: Recorded, written: Write) -> None:
    run = load(training["first"])
    graphs = [graph.compilation for graph in run.stages]
    at(page, written(training["first"]), "timeline")
    page.get_by_role("button", name="Show all").click()
    place = page.locator("canvas.timeline").bounding_box()
    assert place is not None
    ends = [c.recorded.start_ns + max(c.recorded.duration_ns, 0) for c in run.calls]
    low = min(*(g.start_ns for g in graphs), *(c.recorded.start_ns for c in run.calls))
    high = max(*(g.start_ns + g.duration_ns for g in graphs), *ends)
    middle = (graphs[0].start_ns + graphs[0].duration_ns / 2 - low) / (high - low)
    left, y = lane(page, "compiling")
    page.mouse.move(left + middle * (place["x"] + place["width"] - left), y)
    expect(page.locator(".tip")).to_contain_text("compiling 0/0 forward")


def test_from_the_diff_to_calls(page: Page, tmp_path: Path, written: Write) -> None:
    first = write_long_run(tmp_path / "a.kscope", 300)
    second = copy_without_a_call(first, tmp_path / "b.kscope", 100)
    at(page, written(second, first), "diff")  # the first lacks a call of the second
    row = page.locator(".row.aligned.only-b")
    expect(row).to_be_in_viewport()
    expect(page.locator("main")).to_contain_text("Only one of the runs has this call")
    row.click()
    expect(page).to_have_url(re.compile(r"#call=100&run=b$"))
    expect(page.locator(".steps")).to_contain_text("second run")
    page.locator(".steps").get_by_role("link", name="the diff").click()
    strip = page.locator("canvas.strip")
    expect(strip).to_be_visible()
    box = strip.bounding_box()
    assert box is not None
    strip.click(position={"x": box["width"] - 2, "y": 5})
    expect(page.locator('.row.aligned[aria-posinset="300"]')).to_be_in_viewport()


def test_what_differs_is_listed(page: Page, training: Recorded, written: Write) -> None:
    found = kernelscope.diff(training["first"], training["second"])
    at(page, written(training["first"], training["second"]), "diff")
    listed = page.locator("section", has=page.get_by_role("heading", name="What differs"))
    for each in found.differences:
        expect(listed).to_contain_text(f"#{each.a:016x}")
        expect(listed).to_contain_text(f"#{each.b:016x}")
    share = found.spread.differing / found.spread.later
    bar = page.locator("section", has=page.get_by_role("heading", name="How it spread")).locator(".bar span")
    assert bar.evaluate("(e) => parseFloat(e.style.width)") == pytest.approx(100 * share, abs=0.01)
    states = page.locator("canvas.strip").evaluate(
        """(canvas) => {
          const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, 1).data;
          return Array.from({ length: canvas.width }, (_, i) => data.slice(4 * i, 4 * i + 3).join());
        }"""
    )
    pairs = [found.index is not None and i >= (found.index_a or 0) for i in range(len(states))]
    assert states[0] != states[pairs.index(True)]
    assert len(set(states)) == 2


def test_copying_without_a_clipboard(page: Page, tmp_path: Path, written: Write) -> None:
    """As a page from disk in a browser that keeps it from such pages: the old way."""
    write_sample(tmp_path / "run.kscope")
    page.add_init_script(
        "Object.defineProperty(navigator, 'clipboard', { value: undefined });"
        "document.addEventListener('copy', () => { window.copied = getSelection().toString(); });"
    )
    at(page, written(tmp_path / "run.kscope"), "call=0")
    page.get_by_role("button", name="Copy the name").click()
    expect(page.locator("#said")).to_have_text("Copied the name")
    assert page.evaluate("window.copied") == "cpp_fused_relu_0"
