"""A precision map on the page of a run: error, range, and the formats that kernels may have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from kernelscope.report.content.precision import precision_of
from kernelscope.report.file import report
from kernelscope.store.stored_run import load

from .boxes import DRAWN, faults
from .conftest import Write, kernelscope, served, shown
from .test_what_is_missing import small

SCRIPT = """\
import torch

@torch.compile
def waves(x, weight):
    return (x.mm(weight) * 1000).sin()

torch.manual_seed(0)
waves(torch.randn(64, 64), torch.randn(64, 64))
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of a script, and the map that `kernelscope precision --json` prints of it."""
    folder = tmp_path_factory.mktemp("precision")
    (folder / "waves.py").write_text(SCRIPT)
    assert kernelscope("run", "-o", "waves", "waves.py", cwd=folder).returncode == 0
    done = kernelscope("precision", "--json", "--format", "bfloat16", "waves.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder / "map.json").write_text(done.stdout)
    return folder / "waves.kscope", folder / "map.json"


@contextmanager
def address(measured: tuple[Path, Path], how: str, tmp_path: Path) -> Iterator[str]:
    run, given = measured
    if how == "file":
        done = kernelscope("report", str(run), "--precision", str(given), "-o", "page.html", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        yield (tmp_path / "page.html").as_uri()
    else:
        with served(run, precision=precision_of(given)) as server:
            yield server.address


@pytest.mark.parametrize("how", ["file", "served"])
def test_each_kernel_and_the_promise(
    page: Page, measured: tuple[Path, Path], how: str, tmp_path: Path
) -> None:
    [of] = json.loads(measured[1].read_text())["functions"]
    with address(measured, how, tmp_path) as where:
        page.goto(where)
        page.get_by_role("navigation").get_by_role("link", name="Precision").click()
        shown(page, "precision")
        rows = page.locator(".precision tbody tr")
        expect(rows).to_have_count(len(of["kernels"]))
        for row, kernel in zip(rows.all(), of["kernels"], strict=True):
            expect(row).to_contain_text(kernel["kernel_name"])
            expect(row).to_contain_text("waves.py:5")
            expect(row).to_have_attribute("data-verdict", kernel["verdict"])
            assert float(row.locator("[data-label=ulp]").inner_text()) == pytest.approx(
                kernel["error"]["median_ulp"], rel=0.06
            )
            expect(row.locator("[data-label=lost]")).to_contain_text("mxfp4")
        product, sine = rows.all()
        expect(product.locator("[data-label='could be']")).to_contain_text("✗ bfloat16")
        expect(sine.locator("[data-label='could be']")).to_contain_text("✓ bfloat16")
        expect(sine).to_contain_text("rounding is amplified, as by cancellation")
        expect(page.locator(".precision")).to_contain_text(
            "1 of 2 kernels can be bfloat16, verified in a run"
        )
        expect(page.locator(".precision")).to_contain_text("Should stay as they are: #0 extern_kernels.mm")
        product.get_by_role("link").click()
        shown(page, "calls")
        page.keyboard.press("7")
        shown(page, "precision")
        page.goto("about:blank")


def test_a_run_without_a_map_has_no_such_view(page: Page, tmp_path: Path, written: Write) -> None:
    page.goto(written(small(tmp_path / "run.kscope")))
    expect(page.get_by_role("navigation").get_by_role("link", name="Diff")).to_be_visible()
    expect(page.get_by_role("navigation").get_by_role("link", name="Precision")).to_have_count(0)
    page.keyboard.press("7")
    expect(page.locator("main")).to_contain_text("kernelscope report --precision precision.json")


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_overlaps(
    page: Page, measured: tuple[Path, Path], hostile: dict[str, Any], tmp_path: Path, width: int
) -> None:
    """Also with names and notes that are long, or that would be markup."""
    page.add_init_script(DRAWN)
    page.set_viewport_size({"width": width, "height": 800})
    for name, given in (("plain", precision_of(measured[1])), ("hostile", hostile)):
        path = tmp_path / f"{name}.html"
        path.write_text(report(load(measured[0]), precision=given), encoding="utf-8")
        page.goto(f"{path.as_uri()}#precision")
        shown(page, "precision")
        assert faults(page) == []
        page.emulate_media(color_scheme="dark")
        assert faults(page) == []
    assert page.evaluate("window.hacked") is None
    expect(page.locator(".precision")).to_contain_text("<img src=x onerror=window.hacked=1>")


@pytest.fixture
def hostile(measured: tuple[Path, Path], tmp_path: Path) -> dict[str, Any]:
    form = json.loads(measured[1].read_text())
    [of] = form["functions"]
    attack = "<img src=x onerror=window.hacked=1>"
    form["notes"] = of["notes"] = [attack, "long " * 60]
    of["function"] = f"{attack}\u202e"
    for kernel in of["kernels"]:
        kernel |= {"kernel_name": f"cpp_{'fused_' * 20}{attack}", "verdict": "not-measured", "reason": attack}
        kernel["error"] = None
    (tmp_path / "hostile.json").write_text(json.dumps(form))
    found = precision_of(tmp_path / "hostile.json")
    assert found is not None
    return found
