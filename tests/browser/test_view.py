"""`kernelscope view`: only for who was given its address, nothing but the run, and live."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from kernelscope.events import GraphCall
from kernelscope.store.writer_thread import Writer
from tests.support.long_runs import write_long_run
from tests.support.sample_runs import GRAPH, Hashes, full_call, info, site, write_sample

from .conftest import ROOT, Recorded, served


def ask(server: Any, path: str, *, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.putrequest(method, path, skip_host=True)
    given = {"Host": f"127.0.0.1:{server.port}"} | {k.replace("_", "-"): v for k, v in headers.items()}
    for name, value in given.items():
        if value:
            connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    return response.status, response.read(), dict(response.getheaders())


@pytest.fixture
def server(tmp_path: Path):  # type: ignore[no-untyped-def]
    write_sample(tmp_path / "run.kscope")
    (tmp_path / "secret.txt").write_text("secret")
    with served(tmp_path / "run.kscope") as server:
        yield server


def test_listens_on_loopback_only(server: Any) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    listening = {
        line.split()[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    }
    own = {address for address in listening if int(address.partition(":")[2], 16) == server.port}
    assert own == {f"0100007F:{server.port:04X}"}
    others = {entry[4][0] for entry in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in others - {"127.0.0.1"}:
        if not address.startswith("127."):
            with pytest.raises(OSError, match=r"."):
                socket.create_connection((address, server.port), timeout=2)


def test_the_token_is_needed(server: Any) -> None:
    assert len(server.token) >= 32
    assert ask(server, f"/{server.token}/")[0] == 200
    for path in (
        "/",
        "/x/",
        f"/{server.token[:-1]}/",
        f"/{server.token}x/",
        f"//{server.token[:-1]}/api/a/about",
    ):
        status, body, _ = ask(server, path)
        assert status == 403, path
        assert b"token" in body


@pytest.mark.parametrize(
    "host",
    [
        "",
        "example.com",
        "127.0.0.1",
        "127.0.0.1:1",
        "evil.127.0.0.1:{port}",
        "[::1]:{port}",
        "0.0.0.0:{port}",
    ],
)
def test_another_host_is_refused(server: Any, host: str) -> None:
    """A name that was made to resolve to this machine is not ours."""
    assert ask(server, f"/{server.token}/", Host=host.format(port=server.port))[0] in (400, 403)


def test_localhost_is_us(server: Any) -> None:
    assert ask(server, f"/{server.token}/", Host=f"localhost:{server.port}")[0] == 200


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://example.com"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}]
)
def test_other_pages_are_refused(server: Any, headers: dict[str, str]) -> None:
    assert ask(server, f"/{server.token}/api/a/about", **headers)[0] == 403


@pytest.mark.parametrize(
    "path",
    ["run.db", "../secret.txt", "..%2fsecret.txt", "%2e%2e/secret.txt", "api/../../secret.txt", "tensors/x",
     "api/", "api/a/../../x", "api/c/about", "api/a/__class__", "api/a/run", "api/diff/about", "command.json",
     "api/a/about/x"],
)  # fmt: skip
def test_nothing_but_the_run(server: Any, path: str) -> None:
    status, body, _ = ask(server, f"/{server.token}/{path}")
    assert status == 404
    assert b"secret" not in body


@pytest.mark.parametrize(
    "query", ["call?index=9999999", "call?index=-1", "call?index=x", "call", "kernel?number=77",
              "graph?number=9", "calls?sites=1;DROP", "calls?step=1e9", "calls?first=99999999999999999999"]
)  # fmt: skip
def test_bad_questions_get_a_sentence(server: Any, query: str) -> None:
    status, body, _ = ask(server, f"/{server.token}/api/a/{query}")
    assert status == 422
    assert re.search(r" has no | is not a number", json.loads(body)["error"])


def test_only_get(server: Any) -> None:
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
        assert ask(server, f"/{server.token}/", method=method)[0] == 501


def test_a_slow_client_keeps_nobody_waiting(server: Any) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as slow:
        slow.sendall(f"GET /{server.token}/ HTTP/1.1\r\nHost: 127.0".encode())  # and no more
        assert ask(server, f"/{server.token}/")[0] == 200
        assert ask(server, f"/{server.token}/api/a/about")[0] == 200


def test_headers(server: Any) -> None:
    _, _, headers = ask(server, f"/{server.token}/")
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in headers


def test_a_linked_tensor_is_not_followed(training: Recorded, tmp_path: Path) -> None:
    """A run that somebody else made names a file of ours."""
    import shutil

    from kernelscope.report.document import RunDocument
    from kernelscope.store.stored_run import load

    copy = tmp_path / "copy.kscope"
    shutil.copytree(training["first"], copy)
    file = next(iter(load(copy).saved_tensors(0).values()))
    outside = tmp_path / "outside.safetensors"
    (copy / "tensors" / file).rename(outside)
    (copy / "tensors" / file).symlink_to(outside)
    assert "error" in RunDocument(load(copy)).call(0)["pictures"][file]


def test_served_as_from_disk(page: Page, training: Recorded) -> None:
    with served(training["first"]) as server:
        page.goto(server.address)
        expect(page.locator("table.kernels tbody tr").first).to_be_visible()
        page.keyboard.press("2")
        page.locator(".pane .line.linked", has_text="self.down(F.gelu").click()
        page.locator(".launch").get_by_role("link", name=re.compile(r"^call \d+$")).first.click()
        expect(page.locator("table.arguments")).to_be_visible()
        assert page.locator("canvas.heat").count() > 0
        page.keyboard.press("4")
        expect(page.locator(".timeline-page .toolbar")).to_contain_text("in view")
        page.goto("about:blank")


def test_a_long_run_is_paged(page: Page, tmp_path: Path) -> None:
    run = write_long_run(tmp_path / "long.kscope", 30_000)
    with served(run) as server:
        page.goto(server.address + "#calls")
        expect(page.locator(".toolbar .count")).to_have_text("30,000 calls")
        expect(page.locator(".row.call:visible").first).to_contain_text("cpp_fused_relu_0")
        assert page.locator(".row").count() < 100
        page.get_by_role("listbox", name="Calls").focus()
        page.keyboard.press("End")
        last = page.locator('.row[aria-posinset="30000"]')
        expect(last).to_be_in_viewport()
        expect(last).to_contain_text("29999")
        page.locator("#search").fill("relu_49")
        expect(page.locator(".toolbar .count")).to_have_text("600 of 30,000 calls")
        page.goto(server.address + "#calls&at=12345")
        page.reload()
        expect(page.locator('.row[aria-posinset="12346"]')).to_be_in_viewport()
        page.goto("about:blank")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_longer_than_a_browser_can_scroll(page: Page, tmp_path: Path) -> None:
    """Such a list scrolls on a shorter track: the wheel still moves row by row, and both ends are reached."""
    run = write_long_run(tmp_path / "long.kscope", 1_000_000)
    with served(run) as server:
        page.goto(server.address + "#calls")
        expect(page.locator(".toolbar .count")).to_have_text("1,000,000 calls", timeout=60_000)
        rows = page.get_by_role("listbox", name="Calls")
        rows.hover()
        page.mouse.wheel(0, 10 * 28)
        expect(page.locator('.row[aria-posinset="11"]')).to_be_in_viewport()
        top = rows.bounding_box()["y"]  # type: ignore[index]
        eleventh = page.locator('.row[aria-posinset="11"]').bounding_box()["y"]  # type: ignore[index]
        assert abs(eleventh - top) < 2
        rows.focus()
        page.keyboard.press("End")
        expect(page.locator('.row[aria-posinset="1000000"]')).to_be_in_viewport()
        expect(page.locator('.row[aria-posinset="1000000"]')).to_contain_text("999999")
        page.goto(server.address + "#call=777777")
        expect(page.locator(".flow")).to_contain_text("call 777776", timeout=60_000)
        page.goto(server.address + "#timeline")
        expect(page.locator(".timeline-page .toolbar")).to_contain_text("zoom in", timeout=60_000)
        page.goto("about:blank")


def test_live(page: Page, tmp_path: Path) -> None:
    """Calls that are recorded while the page is open show up by themselves, until the run is closed."""
    folder = tmp_path / "live.kscope"
    folder.mkdir()
    writer = Writer(folder, info())
    writer.graph_call(GraphCall(0, GRAPH, 7, 0, "forward", 1))

    def record(calls: int, number: int) -> None:
        for _ in range(calls):
            call = full_call(next(writer.flight), site(number, f"cpp_fused_{number}"), Hashes())
            writer.enter(call)
            writer.leave(call)
        writer.flush()

    record(3, 1)
    with served(folder) as server:
        page.goto(server.address)
        expect(page.locator(".live")).to_contain_text("recording · 3 calls")
        expect(page.locator("h1 .chip")).to_have_text("recording now")
        record(4, 2)
        expect(page.locator(".heading")).to_contain_text("7 calls of 2 kernels")
        page.keyboard.press("3")
        expect(page.locator(".toolbar .count")).to_have_text("7 calls")
        record(5, 3)
        expect(page.locator(".toolbar .count")).to_have_text("12 calls")
        expect(page.locator('.row[aria-posinset="12"]')).to_contain_text("cpp_fused_3")
        page.keyboard.press("4")
        told = page.locator(".timeline-page .toolbar .quiet").first
        expect(told).to_contain_text("in view")
        before = told.inner_text()
        record(2, 3)
        expect(told).not_to_have_text(before)  # of a longer run
        page.keyboard.press("1")
        writer.close()
        expect(page.locator(".live")).to_be_hidden()
        expect(page.locator("h1 .chip")).to_have_text("complete")
        page.goto("about:blank")


def test_the_command(tmp_path: Path) -> None:
    write_sample(tmp_path / "run.kscope")
    command = [sys.executable, "-m", "kernelscope", "view", "run", "--no-browser"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    child = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # also in the background
    )  # fmt: skip
    try:
        assert child.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:(\d+)/([\w-]+)/", child.stdout.readline())
        assert address is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(address[1]), timeout=20)
        connection.request("GET", f"/{address[2]}/api/a/about")
        assert json.loads(connection.getresponse().read())["facts"]["totals"]["calls"] == 40
    finally:
        child.send_signal(signal.SIGINT)
    assert child.wait(20) == 128 + signal.SIGINT
