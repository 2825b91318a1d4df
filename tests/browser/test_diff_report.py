"""Two runs on one page: the first divergence in view, its spread, its tensors."""

from __future__ import annotations

from playwright.sync_api import Page, expect

import kernelscope
from kernelscope.store.stored_run import load

from .conftest import Recorded, Write, served


def check(page: Page, training: Recorded) -> None:
    found = kernelscope.diff(training["first"], training["second"])
    assert found.index_a is not None
    expect(page.locator("h1")).to_contain_text(found.verdict)
    expect(page.locator("h1")).to_contain_text(f"call {found.index_a}")
    first = page.locator(".row.aligned.first")
    expect(first).to_be_in_viewport()
    expect(first).to_contain_text(found.kernel_name)
    for link in found.spread.chain[:3]:
        expect(page.locator(".chain")).to_contain_text(f"call {link.index}")
    [errors] = found.errors
    expect(page.locator(".tensor")).to_contain_text(
        f"{errors.differing} of {errors.elements:,} elements differ"
    )
    expect(page.locator(".worst tbody tr")).to_have_count(min(12, errors.differing))
    expect(page.locator(".worst tbody tr").first).to_contain_text(str(list(errors.where)))
    assert page.locator(".heats canvas").count() == 3
    colours = (
        page.locator(".heats canvas")
        .nth(2)
        .evaluate(
            """(canvas) => {
          const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
          const found = new Map();
          for (let i = 0; i < data.length; i += 4) {
            const key = data.slice(i, i + 3).join();
            found.set(key, (found.get(key) || 0) + 1);
          }
          return [...found.values()].sort((a, b) => a - b);
        }"""
        )
    )
    assert colours[0] == errors.differing == 1  # one element was nudged, and one cell stands out


def test_from_disk(page: Page, training: Recorded, written: Write) -> None:
    page.goto(written(training["first"], training["second"]))
    expect(page.locator(".findings")).to_contain_text("The runs first differ at call")
    page.get_by_role("link", name="See the diff").click()
    check(page, training)


def test_served(page: Page, training: Recorded) -> None:
    with served(training["first"], training["second"]) as server:
        page.goto(server.address + "#diff")
        check(page, training)
        page.goto("about:blank")


def test_calls_of_the_second_run(page: Page, training: Recorded, written: Write) -> None:
    found = kernelscope.diff(training["first"], training["second"])
    page.goto(written(training["first"], training["second"]) + f"#call={found.index_b}&run=b")
    expect(page.locator(".steps")).to_contain_text("second run")
    [call] = load(training["second"]).select(first=found.index_b or 0, limit=1)
    position = next(d.position for d in found.differences)
    expect(page.locator("table.arguments")).to_contain_text(f"#{call.pre_hashes[position]:016x}")


def test_other_calls_stand_side_by_side(page: Page, tmp_path, written: Write) -> None:  # type: ignore[no-untyped-def]
    from tests.support.long_runs import copy_without_a_call, write_long_run

    first = write_long_run(tmp_path / "a.kscope", 500)
    second = copy_without_a_call(first, tmp_path / "b.kscope", 300)
    page.goto(written(first, second) + "#diff")
    expect(page.locator("h1")).to_contain_text("missing-call")
    row = page.locator(".row.aligned.first")
    expect(row).to_be_in_viewport()
    expect(row.locator(".mark")).to_have_attribute("title", "only in the first run")


def test_one_run_says_how_to_compare(page: Page, training: Recorded, written: Write) -> None:
    page.goto(written(training["first"]) + "#diff")
    expect(page.locator("main")).to_contain_text("kernelscope report first --diff OTHER")
