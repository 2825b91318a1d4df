"""A stranger's run, read by an assistant's server, by the served page and by Python."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.hostile_cells import CELLS
from tests.support.hostile_corpus import ATTACKS as TEXTS
from tests.support.hostile_corpus import EVIL, SECRET_TEXT, Scene
from tests.support.hostile_shapes import SHAPES
from tests.unit.store.safety.test_hostile_runs import QUICK, check_text, copy_run, scene

import kernelscope
from kernelscope.errors import RunError
from kernelscope.integrations.mcp.allowed import Allowed, Refused
from kernelscope.integrations.mcp.tools import Tools
from kernelscope.report.answers import Answers
from kernelscope.report.server import Server
from kernelscope.store.stored_run import load

__all__ = ["scene"]
ATTACKS = TEXTS | SHAPES | CELLS
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("list_runs", {}), ("show", {}), ("show", {"call": 0, "source": True}), ("show", {"crash": True}),
    ("stages", {}), ("stages", {"kernel": "*"}), ("stages", {"graph": "0", "stage": "output_code"}),
    ("query", {"sql": "SELECT * FROM call"}), ("query", {"sql": "ATTACH 'canary' AS x"}),
    ("diff", {"a": "evil.kscope", "b": "other.kscope"}),
)  # fmt: skip
REQUESTS = ("about", "sites", "counts", "times", "state", "findings", "calls", "place", "call", "kernel",
            "graph", "timeline")  # fmt: skip


def of_attacks(quick: tuple[str, ...], slow: tuple[str, ...]) -> list[Any]:
    return [*quick, *(pytest.param(name, marks=pytest.mark.slow) for name in slow if name not in quick)]


@pytest.mark.parametrize("attack", of_attacks(("every text is hostile",), QUICK))
def test_an_assistant(attack: str, scene: Scene) -> None:
    """Each tool reads in a process of its own; what it answers may be printed as it is."""
    anyio = pytest.importorskip("anyio", reason="needs the mcp package: pip install 'kernelscope[mcp]'")
    ATTACKS[attack](scene)
    copy_run(scene)
    before = {path for path in scene.home.rglob("*") if "kscope" not in str(path)}
    tools = Tools(Allowed.of([], []), 10)
    for name, given in CALLS:
        try:
            answer = anyio.run(lambda name=name, given=given: getattr(tools, name)(**given))
        except (RunError, Refused) as error:
            answer = {"error": str(error)}
        for text in texts_of(answer):
            check_text((name, given), re.sub(r"\r?\n", " ", text))
        check_text((name, given), answer.get("answer", ""))
        assert SECRET_TEXT not in json.dumps(answer), name
        assert "Traceback" not in json.dumps(answer), (name, answer)
        assert scene.is_untouched(), name
    assert {path for path in scene.home.rglob("*") if "kscope" not in str(path)} == before


def texts_of(form: Any) -> Iterator[str]:
    if isinstance(form, str):
        yield form
    for each in form.items() if isinstance(form, dict) else form if isinstance(form, list | tuple) else ():
        yield from texts_of(each)


@contextmanager
def served(answers: Answers) -> Iterator[Server]:
    server = Server(answers, "x")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("attack", of_attacks(QUICK, tuple(ATTACKS)))
def test_the_served_page(attack: str, scene: Scene) -> None:
    """Every request that the page may make is answered, with ASCII that is JSON, or with the reason."""
    ATTACKS[attack](scene)
    copy_run(scene)
    try:
        answers = Answers(load(scene.run), load(scene.run.with_name("other.kscope")))
    except RunError:
        return  # refused as a whole
    with served(answers) as server, closing(http.client.HTTPConnection("127.0.0.1", server.port)) as client:
        place = urlsplit(server.address).path
        for path in (*(f"{run}/{what}" for run in "ab" for what in REQUESTS), "diff/about", "diff/rows"):
            client.request("GET", f"{place}api/{path}?index=0&number=0")
            response = client.getresponse()
            body = response.read()
            told = json.loads(body, parse_constant=pytest.fail)
            assert response.status in (200, 422), (path, response.status, told)
            assert body.isascii(), path
            assert SECRET_TEXT.encode() not in body, path
    assert scene.is_untouched()


AUDITS: dict[str, Any] = {
    "texts": {"device": EVIL, "incomplete": EVIL, "outside": [[EVIL, EVIL, 1, 1.0, True]]},
    "no end": {"launches": 1e999, "seconds": 1e999},
    "no number": {"calls": float("nan")},
    "long": {"calls": "9" * 10_000},
    "another kind": {"outside": "x"},
    "deep": {"outside": [[[]] * 5]},
    "negative": {"launches": -1, "seconds": -1.0, "generated": 1 << 70, "generated_seen": -(1 << 70)},
}


@pytest.mark.parametrize("kind", AUDITS)
def test_an_audit(kind: str, scene: Scene) -> None:
    scene.sample()
    names = ("name", "launcher", "launches", "seconds", "in_compiled_code")
    form = dict.fromkeys(("calls", "launches", "generated", "generated_seen", "compiling"), 1)
    form |= {"device": "cpu", "seconds": 1.0, "incomplete": "", "outside": []} | AUDITS[kind]
    if kind == "texts":
        form["outside"] = [dict(zip(names, each, strict=True)) for each in form["outside"]]
    with scene.database() as db:
        db.execute("INSERT OR REPLACE INTO info VALUES ('audit', ?)", (json.dumps(form),))
    try:
        audit = kernelscope.load(scene.run).audit
    except RunError:
        return
    assert audit is not None
    check_text(kind, "\n".join(audit.lines()))
    json.dumps(audit.as_json())
