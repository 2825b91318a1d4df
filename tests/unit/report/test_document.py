"""What a page may ask of a run, against the run's own answers."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.long_runs import copy_with_a_fault, copy_without_a_call, write_long_run
from tests.support.sample_runs import write_sample

from kernelscope.errors import RunError
from kernelscope.report.answers import Answers, UnknownRequest
from kernelscope.report.content.comparison import Comparison
from kernelscope.report.content.facts import missing
from kernelscope.report.content.rows import Wanted, indices
from kernelscope.report.content.sources import Sources
from kernelscope.report.content.values import picture_of
from kernelscope.report.document import RunDocument
from kernelscope.report.file import data, write
from kernelscope.stages.records import Stage
from kernelscope.store.stored_run import load


@pytest.fixture
def document(tmp_path: Path) -> RunDocument:
    write_sample(tmp_path / "run.kscope")
    return RunDocument(load(tmp_path / "run.kscope"))


def test_everything_is_json(document: RunDocument) -> None:
    whole = data(document.run, None, first=0, limit=100)
    assert json.loads(json.dumps(whole, allow_nan=False))["runs"]["a"]["rows"]["index"] == list(range(40))


@pytest.mark.parametrize("asked", [{}, {"phase": "forward"}, {"phase": "other"}, {"step": 1}, {"step": 0}])
def test_filters_choose_what_select_does(document: RunDocument, asked: dict[str, object]) -> None:
    expected = [call.index for call in document.run.select(**asked)]  # type: ignore[arg-type]
    assert indices(document.run, Wanted(**asked)) == expected  # type: ignore[arg-type]


def test_sites_and_pages(document: RunDocument) -> None:
    expected = [c.index for c in document.run.calls if c.kernel_name == "extern_kernels.mm"]
    [site] = {c.site.id for c in document.run.calls if c.index in expected}
    page = document.calls(Wanted(sites=(site,)), 3, 4)
    assert page["total"] == len(expected)
    assert page["rows"]["index"] == expected[3:7]
    assert document.place(Wanted(sites=(site,)), expected[5])["place"] == 5
    assert document.calls(Wanted(sites=()), 0, 10)["total"] == 0


def test_a_call_tells_what_the_run_tells(document: RunDocument) -> None:
    call = document.run.calls[2]
    row = document.call(2)["row"]
    at = row["index"].index(2)
    prints = {i: row["prints"][slot][0] for i, slot in row["values"][at]["pre"].items()}
    assert prints == {i: f"{value:016x}" for i, value in call.pre_hashes.items()}
    assert (
        row["values"][at]["scalars"] == ["2.5"]
        or json.loads(row["values"][at]["scalars"][0]) == call.recorded.scalars[0]
    )


def test_findings_first_the_grave(document: RunDocument) -> None:
    found = document.findings()["found"]
    kinds = [f["kind"] for f in found]
    assert kinds.index("undeclared-write") < kinds.index("graph-break")
    assert [f["level"] for f in found] == sorted(
        (f["level"] for f in found), key=["grave", "odd", "note"].index
    )


def test_findings_of_a_kind_have_an_end(document: RunDocument, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = document.findings()
    assert everything["left_out"] == {}
    assert (everything["looked_at"], everything["of"]) == (40, 40)
    assert "nan" in {f["kind"] for f in everything["found"]}  # not only what was noted
    monkeypatch.setattr("kernelscope.report.content.findings.MOST_SHOWN", 0)
    found = document.findings()
    assert found["found"] == []
    assert sum(found["left_out"].values()) == len(everything["found"])


def test_what_is_missing_is_not_what_is_there() -> None:
    nothing = dict.fromkeys(("stages", "hashes", "stats", "tensors", "times"), False)
    assert [m["what"] for m in missing(nothing, 4, "x.py")] == list(nothing)
    kept = [m["what"] for m in missing(nothing | {"hashes": True, "tensors": True}, 4, "x.py")]
    assert kept == ["stages", "times"]  # statistics are computed from what was kept
    assert [m["how"] for m in missing(nothing, 0, "x.py")] == ["kernelscope run --ops all x.py"]


def test_files_outside_of_the_run(document: RunDocument, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    for file in ("../outside", "../../outside", str(tmp_path / "outside"), ".hidden"):
        assert picture_of(document.run, file) == {"error": f"{file} is not a saved tensor of this run"}


def test_neighbours_are_searched_for_among_many(tmp_path: Path) -> None:
    document = RunDocument(load(write_long_run(tmp_path / "long.kscope", 5000)))
    assert document.call(2500)["searched"] == [1500, 3500]
    assert document.call(10)["searched"][0] == 0
    assert document.call(2500)["producers"] == {0: (2498, 2, False), 1: (2499, 2, False)}


def test_sites_know_their_graph(document: RunDocument) -> None:
    sites = document.sites()["sites"]
    assert {site["graph"] for site in sites.values()} == {0}


def test_the_launch_links_line_node_and_kernel(document: RunDocument) -> None:
    graph = document.graph(0)
    [launch] = graph["launches"]
    [atom] = launch["atoms"]
    assert launch["kernel"] == "cpp_fused_relu_0"
    assert graph["kernels"][0]["atoms"] == [atom]
    wrapper = next(pane for pane in graph["panes"] if pane["name"] == "output_code")
    lines = wrapper["text"].splitlines()
    ends = [n for first, last, atoms in wrapper["lines"] if atom in atoms for n in (first, last)]
    marked = [lines[number - 1].strip() for number in ends]
    assert "cpp_fused_relu_0(buf0)" in marked
    [source] = graph["sources"]
    assert (source["file"], source["lines"]) == ("/model.py", {11: [atom]})
    assert graph["fusion"]["groups"][0]["atoms"] == [atom]


@pytest.mark.parametrize("text", ["{", '{"nodes": [{}], "groups": [["a"]], "edges": []}'])
def test_a_damaged_stage_is_one_sentence(document: RunDocument, text: str) -> None:
    records = [
        replace(r, text=text) if isinstance(r, Stage) and r.name == "dag" else r
        for r in document.run.compiled
    ]
    document.run._compiled = records
    with pytest.raises(RunError, match="is damaged"):
        document.graph(0)


class TestSources:
    """A file is shown whole only if it is the one that was compiled."""

    def sources(self, document: RunDocument, file: Path, line: int, code: str) -> list[list[object]]:
        text = f"        # File: {file}:{line} in forward, code: {code}\n"
        document.run._compiled = [Stage(1, "post_grad", "python", text)]
        [pane] = Sources(document.run).panes({(str(file), line): {0}})
        return pane["text"]  # type: ignore[no-any-return]

    def test_the_file_that_was_compiled(self, document: RunDocument, tmp_path: Path) -> None:
        file = tmp_path / "model.py"
        file.write_text("import torch\ny = x.relu()\nsecret = 1\n")
        assert self.sources(document, file, 2, "y = x.relu()") == [
            [1, "import torch"], [2, "y = x.relu()"], [3, "secret = 1"],
        ]  # fmt: skip

    def test_another_file_of_that_name(self, document: RunDocument, tmp_path: Path) -> None:
        file = tmp_path / "model.py"
        file.write_text("import torch\ny = x.sigmoid()\nsecret = 1\n")
        assert self.sources(document, file, 2, "y = x.relu()") == [[2, "y = x.relu()"]]

    def test_no_other_kind_of_file(self, document: RunDocument, tmp_path: Path) -> None:
        file = tmp_path / "passwords"
        file.write_text("root\nsecret\n")
        assert self.sources(document, file, 1, "root") == [[1, "root"]]

    def test_an_empty_line_tells_nothing(self, document: RunDocument, tmp_path: Path) -> None:
        file = tmp_path / "model.py"
        file.write_text("secret = 1\n\n")
        assert self.sources(document, file, 2, "") == [[2, None]]

    def test_a_file_that_is_too_large(
        self, document: RunDocument, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("kernelscope.report.content.sources.LARGEST_FILE", 10)
        file = tmp_path / "model.py"
        file.write_text("y = x.relu()\n")
        assert self.sources(document, file, 1, "y = x.relu()") == [[1, "y = x.relu()"]]
        assert len(self.sources(document, file, 1, "y = x.relu()")) == 1

    def test_numbers_without_end(self, document: RunDocument, tmp_path: Path) -> None:
        text = f"        # File: {tmp_path}/model.py:{'9' * 5000} in forward, code: x\n"
        document.run._compiled = [Stage(1, "post_grad", "python", text)]
        assert Sources(document.run).panes({}) == []

    def test_a_file_that_the_run_quotes_nothing_of(self, document: RunDocument, tmp_path: Path) -> None:
        file = tmp_path / "model.py"
        file.write_text("secret = 1\n")
        document.run._compiled = []
        [pane] = Sources(document.run).panes({(str(file), 1): {0}})
        assert pane["text"] == [[1, None]]


def test_timeline_counts_every_call(tmp_path: Path) -> None:
    document = RunDocument(load(write_long_run(tmp_path / "long.kscope", 10_000)))
    binned = document.timeline(None, None, 100)
    assert sum(count for _, _, _, count, _, _ in binned["bins"]) == 10_000
    assert len(binned["bins"]) == 100
    lanes = {(stream, thread) for stream, thread, *_ in binned["bins"]}
    assert lanes == {(0, 7)}
    assert {busy for *_, busy, _ in binned["bins"]} == {None}  # nothing was measured
    part = document.timeline(1_000_000, 1_999_000, 100)
    assert [row[0] for row in part["calls"]] == list(range(1000, 2000))


def test_rows_of_a_comparison(tmp_path: Path) -> None:
    first = write_long_run(tmp_path / "a.kscope", 400)
    fault = copy_with_a_fault(first, tmp_path / "b.kscope", 120)
    told = Comparison(load(first), load(fault))
    rows = told.rows(0, 1000)
    assert rows["a"] == rows["b"] == list(range(400))
    assert [i for i, state in enumerate(rows["state"]) if state] == list(
        range(120, 152)
    )  # two calls read what it left
    about = told.about()
    assert (about["first"], about["total"]) == (120, 400)
    assert about["where"] == [0] * 60 + [1] * 16 + [0] * 164  # the first 160 parts are two rows each

    missing = copy_without_a_call(first, tmp_path / "c.kscope", 77)
    rows = Comparison(load(first), load(missing)).rows(70, 10)
    assert rows["a"] == list(range(70, 80))
    assert rows["b"] == [70, 71, 72, 73, 74, 75, 76, -1, 77, 78]
    assert np.flatnonzero(np.array(rows["state"]) == 2).tolist() == [7]


@pytest.mark.parametrize("limit", [0, 60, 1000])
def test_a_file_has_the_rows_of_its_calls(tmp_path: Path, limit: int) -> None:
    first = write_long_run(tmp_path / "a.kscope", 400)
    fault = copy_with_a_fault(first, tmp_path / "b.kscope", 320)
    held = data(load(first), load(fault), first=None, limit=limit)
    diff, of_a, of_b = held["diff"], *(held["runs"][key]["rows"]["index"] for key in "ab")
    assert diff["rows"]["a"] == of_a
    assert diff["rows"]["b"] == of_b
    assert diff["rows"]["a"][diff["first"]] == 320
    assert (diff["total"], diff["left_out"]) == (len(of_a), 400 - len(of_a))
    assert len(of_a) == (limit if limit == 60 else 400)


def test_written_as_the_users_other_files(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert write("text", tmp_path / "page.html") == 4
    finally:
        os.umask(before)
    assert (tmp_path / "page.html").stat().st_mode & 0o777 == 0o600
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunError, match="cannot write"):
        write("text", tmp_path / "folder")
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", "folder"}


def test_each_graph_knows_its_place_in_the_pipeline(document: RunDocument) -> None:
    [graph] = document.sites()["graphs"].values()
    launches = document.graph(graph["compiled"])["launches"]
    assert document.about()["compiled"][graph["compiled"]]["name"] == "0/0 forward"
    assert [launch["kernel"] for launch in launches] == ["cpp_fused_relu_0"]


def test_only_what_may_be_asked(document: RunDocument) -> None:
    answers = Answers(document.run)
    assert answers.answer("a/about", {})["facts"]["totals"]["calls"] == 40
    for path in ("b/about", "a/", "a/refresh", "a/whole", "diff/about", "", "a/_page", "a/run"):
        with pytest.raises(UnknownRequest):
            answers.answer(path, {})


def test_times_of_kernels_are_those_of_their_calls(document: RunDocument) -> None:
    took: dict[str, list[tuple[int, int]]] = {}
    for call in document.run.calls:
        if call.recorded.duration_ns >= 0:
            took.setdefault(str(call.site.kernel.id), []).append((call.recorded.duration_ns, call.index))
    told = document.times()
    assert set(told) == set(took)
    for kernel, (median, longest, slowest) in told.items():
        assert median == np.median([time for time, _ in took[kernel]])
        assert longest == max(took[kernel])[0]
        assert (longest, slowest) in took[kernel]


def test_steps_and_graph_calls_span_their_calls(tmp_path: Path) -> None:
    run = load(write_long_run(tmp_path / "run.kscope", 500))
    told = RunDocument(run).timeline(None, None, 100)
    begins, ends = {}, {}
    for call in run.calls:
        begins.setdefault(call.step, call.recorded.start_ns)
        ends[call.step] = call.recorded.start_ns
    assert told["steps"] == [[step, step, begins[step], ends[step]] for step in begins]
    graphs = [[call, step, begin, end, many] for call, _, step, begin, end, many in told["graphs"]]
    assert graphs == [[step, step, begins[step], ends[step], 1] for step in begins]  # one in each step
    middle = RunDocument(run).timeline(begins[3], ends[4], 100)
    assert [step for step, *_ in middle["steps"]] == [3, 4]


def test_very_many_steps_and_graph_calls_are_told_together(tmp_path: Path) -> None:
    told = RunDocument(load(write_long_run(tmp_path / "run.kscope", 100_000))).timeline(None, None, 800)
    assert len(told["steps"]) <= 300
    assert [first for first, *_ in told["steps"][1:]] == [last + 1 for _, last, *_ in told["steps"][:-1]]
    assert len(told["graphs"]) <= 800
    assert sum(many for *_, many in told["graphs"]) == 2000
