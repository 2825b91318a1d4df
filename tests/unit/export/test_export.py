"""Every form of export, on hand-made runs: read back by a reader of that form and compared with the run."""

from __future__ import annotations

import json
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.hostile_texts import ARGUMENT, EVIL, KERNEL, SOURCE, write_hostile
from tests.support.long_runs import write_long_run
from tests.support.sample_runs import GRAPH, full_call, info, site, write_sample
from tests.support.trace_format import edges, read_trace

import kernelscope
from kernelscope.cli import main
from kernelscope.errors import RunError
from kernelscope.events import Call, GraphCall
from kernelscope.export import FORMS, export
from kernelscope.model.run import Run
from kernelscope.store.memory_run import MemoryRun
from kernelscope.store.run_db.codec import storable
from kernelscope.store.stored_run import StoredRun
from kernelscope.store.writer_thread import Writer
from kernelscope.views.call_filter import CallFilter


@pytest.fixture
def sample(tmp_path: Path) -> StoredRun:
    write_sample(tmp_path / "sample.kscope")
    return kernelscope.load(tmp_path / "sample.kscope")


@pytest.fixture
def hostile(tmp_path: Path) -> StoredRun:
    return kernelscope.load(write_hostile(tmp_path / "hostile.kscope"))


# -- Perfetto --------------------------------------------------------------------------------------------


def test_a_trace_has_a_slice_for_each_call(sample: StoredRun, tmp_path: Path) -> None:
    assert export(sample, "perfetto", tmp_path / "t.json") == 40
    trace = read_trace(tmp_path / "t.json")
    calls = [s for s in trace.slices if "call" in s.args]
    assert [s.args["call"] for s in calls] == list(range(40))
    for call, slice in zip(sample.calls, calls, strict=True):
        assert slice.name == call.kernel_name
        assert slice.start - calls[0].start == call.recorded.start_ns - sample.calls[0].recorded.start_ns
        assert slice.start >= 0  # Perfetto drops what happened before zero
        if call.time is None:
            assert slice.args["time"] == "not measured"
        else:
            assert slice.end - slice.start == call.recorded.duration_ns
    assert trace.about["uuid"] == sample.info.uuid
    assert [s.name for s in trace.of("graph")] == ["graph 0_forward (forward)"]
    [failed] = [s for s in calls if "error" in s.args]
    assert failed.args["error"] == "RuntimeError: no"
    [mark] = trace.instants
    assert (mark["name"], mark["args"]) == ("undeclared-write: something", {"call": 3})
    assert trace.tracks[mark["pid"], mark["tid"]] == "findings"  # where it takes no arrow from its call


def test_a_trace_has_the_compiler(tmp_path: Path) -> None:
    trace = exported(kernelscope.load(write_hostile(tmp_path / "x.kscope")), tmp_path)
    frame, graph = trace.of("compilation")
    stages = trace.of("stage")
    assert (frame.end - frame.start, graph.end - graph.start) == (100, 50)
    assert [(s.end - s.start, s.depth) for s in stages] == [(10, 1), (30, 1)]  # until the next, until the end
    assert trace.track(stages[0]) == trace.track(graph) != trace.track(frame)


def exported(run: Run, tmp_path: Path, **options: Any) -> Any:
    export(run, "perfetto", tmp_path / "trace.json", **options)
    return read_trace(tmp_path / "trace.json")


def test_arrows_lead_from_the_writer_to_the_readers(tmp_path: Path) -> None:
    run = kernelscope.load(write_long_run(tmp_path / "long.kscope", 120))
    found = set(edges(exported(run, tmp_path)))
    # Each kernel reads the two results before it.
    assert found == {(i, i + d) for i in range(120) for d in (1, 2) if i + d < 120}
    (tmp_path / "trace.json").unlink()
    assert not set(edges(exported(run, tmp_path, flows=False)))


def test_kernels_of_a_stream_do_not_overlap(tmp_path: Path) -> None:
    """What a device took is measured, when it began is not; launches come faster."""
    writer = Writer(tmp_path, info())
    on_gpu = replace(site(1), device="cuda:0")
    for number in range(6):
        call = full_call(next(writer.flight), on_gpu)
        call.stream, call.start_ns, call.duration_ns = number % 2, 1000 + 10 * number, 500
        writer.enter(call)
        writer.leave(call)
    writer.close()
    trace = exported(kernelscope.load(tmp_path), tmp_path)  # its reader refuses overlaps
    assert sorted(set(map(trace.track, trace.called("cpp_fused_relu_0")))) == [
        "cuda:0 stream 0x0",
        "cuda:0 stream 0x1",
    ]
    assert all(s.end - s.start == 500 for s in trace.called("cpp_fused_relu_0"))


@pytest.mark.parametrize("seed", range(20))
def test_any_run_is_a_well_formed_trace(seed: int, tmp_path: Path) -> None:
    """Threads that overlap, streams that lag behind, calls inside of calls, graphs inside of graphs."""
    random = Random(seed)
    run = MemoryRun(info())
    sites = [site(1), replace(site(2, "on_gpu"), device="cuda:0")]
    clocks, execution = [0, 5, 9], [0, 1, 2]  # by thread
    for number in range(12):
        run.graph_calls[number] = GraphCall(number, GRAPH, 7, 0, "forward", 0)
    while len(run.entries) < 80:
        thread = random.randrange(3)
        if random.random() < 0.2:
            execution[thread] = random.randrange(-1, 12)
        clocks[thread] += random.randrange(20)
        length = random.randrange(3, 60)
        outer = Call(
            len(run.entries), random.choice(sites), execution[thread], len(run.entries) // 10, -1, thread,
            random.randrange(2), "forward", clocks[thread], duration_ns=random.choice([length, length, -1]),
            key=len(run.entries), storages=(random.randrange(4), random.randrange(4)), epochs=(0, 0),
            offsets=(0, 0),
        )  # fmt: skip
        run.entries.append(outer)
        at = clocks[thread]
        for _ in range(random.choice([0, 0, 1, 2])):  # what it does itself
            inner = replace(
                outer, index=len(run.entries), key=len(run.entries), parent=outer.key, site=sites[0],
                start_ns=at + 1, duration_ns=length // 4, graph_call=random.choice([outer.graph_call, 11]),
            )  # fmt: skip
            run.entries.append(inner)
            at += length // 3 + 1
        clocks[thread] += length + 2
    trace = exported(run, tmp_path)  # its reader refuses what is not well-formed
    assert sum("call" in s.args for s in trace.slices) == len(run)
    assert len(list(edges(trace))) > 20
    for number, target in edges(trace):  # what a device reads was written before
        ends = {s.args["call"]: (s.start, s.end) for s in trace.slices if "call" in s.args}
        if run.calls[target].device == "cuda:0":
            assert ends[number][1] <= ends[target][0]


# -- Parquet, JSON, DOT ----------------------------------------------------------------------------------


def test_parquet_has_what_the_run_has(sample: StoredRun, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export(sample, "parquet", tmp_path / "tables")
    tables = {p.stem: parquet.read_table(p).to_pylist() for p in (tmp_path / "tables").iterdir()}
    assert set(tables) == {"calls", "arguments", "kernels", "graphs", "findings"}
    for row, call in zip(tables["calls"], sample.calls, strict=True):
        assert (row["index"], row["kernel_name"], row["step"]) == (call.index, call.kernel_name, call.step)
        assert row["duration_ns"] == (None if call.time is None else call.recorded.duration_ns)
        assert (row["file"], row["line"]) == (call.origin.file, call.origin.line)  # type: ignore[union-attr]
        assert (row["grid"], row["phase"], row["error"]) == ([1, 2, 3], call.phase, call.error or None)
        assert (row["thread"], row["start_ns"], row["device"]) == (7, call.recorded.start_ns, "cpu")
        arguments = [each for each in tables["arguments"] if each["call"] == call.index]
        for i, each in enumerate(arguments[:2]):
            known = call.pre_hashes.get(i), call.post_hashes.get(i)
            assert (each["before"], each["after"]) == tuple(h if h is None else f"{h:016x}" for h in known)
            assert (each["dtype"], each["shape"], each["stride"]) == ("float32", [8, 64], [64, 1])
            assert (each["storage"], each["epoch"], each["offset"]) == call.storages.get(i, (None,) * 3)
            assert (each["stats_before"] is None) == (i not in call.pre_stats)
    first = [row for row in tables["arguments"] if row["call"] == 0]
    assert [row["role"] for row in first] == ["in", "out", "scalar", "scalar"]
    assert [row["value"] for row in first] == [None, None, "512", "0.5"]
    assert first[1]["after"] == f"{sample.calls[0].post_hashes[1]:016x}"
    assert first[1]["stats_after"]["nan"] == sample.calls[0].post_stats[1].nan
    assert tables["findings"][0]["kind"] == "undeclared-write"


def test_parquet_says_what_it_needs(
    sample: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # what Python does with a module that is not there
    with pytest.raises(RunError, match=r"pip install 'kernelscope\[parquet\]'"):
        export(sample, "parquet", tmp_path / "tables")
    assert not list(tmp_path.glob("tables*"))


def test_json_is_what_show_prints(
    sample: StoredRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(sample, "json", tmp_path / "run.json")
    document = json.loads((tmp_path / "run.json").read_text())
    assert (document["format"], document["version"]) == ("kernelscope.run", 1)
    assert main(["show", str(sample.path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    for exported_call, call in zip(document["calls"], shown["calls"], strict=True):
        assert exported_call.items() >= call.items()
    assert {k["id"] for k in document["kernels"]} == {c["kernel"] for c in document["calls"]}
    assert [call["start_ns"] for call in document["calls"]] == [c.recorded.start_ns for c in sample.calls]
    assert document["findings"][0]["message"] == "something"
    told = [(f["kind"], f["message"], f["call"]) for f in document["findings"]]
    assert told == [(f.kind, f.message, f.call if f.call >= 0 else None) for f in sample.findings]
    assert "nan" in {kind for kind, _, _ in told}  # not only what was noted
    assert document["stages"][0]["name"] == "0/0 forward"
    assert document["incidents"][0]["kind"] == "graph-break"


def test_dot_is_a_graph_of_sites(tmp_path: Path) -> None:
    pydot = pytest.importorskip("pydot")
    run = kernelscope.load(write_long_run(tmp_path / "long.kscope", 100))
    export(run, "dot", tmp_path / "g.dot")
    [graph] = pydot.graph_from_dot_file(str(tmp_path / "g.dot"))
    [cluster] = graph.get_subgraphs()
    assert len(cluster.get_nodes()) == 50
    found = {(e.get_source(), e.get_destination()) for e in graph.get_edges()}
    assert found == {(f"site_{i}", f"site_{(i + d) % 50}") for i in range(50) for d in (1, 2)}


def test_graphviz_draws_it(tmp_path: Path, hostile: StoredRun) -> None:
    """Graphviz itself: its reader, its layout, its pictures."""
    graphviz = pytest.importorskip("pygraphviz")
    run = kernelscope.load(write_long_run(tmp_path / "long.kscope", 100))
    export(run, "dot", tmp_path / "g.dot")
    graph = graphviz.AGraph(str(tmp_path / "g.dot"))
    assert len(graph.nodes()) == 50
    [cluster] = graph.subgraphs()
    assert cluster.graph_attr["label"] == "graph 0 0_forward (forward)"
    assert graph.get_node("site_3").attr["label"] == "cpp_fused_relu_3\\ncpp  model.py:3  2 calls"
    assert graph.get_node("site_3").attr["fillcolor"] == "#cfe2f3"
    assert graph.get_edge("site_3", "site_4").attr["label"] == "b ×2"
    assert graph.draw(format="svg", prog="dot").count(b'class="node"') == 50
    export(hostile, "dot", tmp_path / "h.dot")
    drawn = graphviz.AGraph(str(tmp_path / "h.dot")).draw(format="svg", prog="dot").decode()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in drawn
    assert "<script" not in drawn


# -- what all have in common -----------------------------------------------------------------------------


def test_hostile_names_stay_names(hostile: StoredRun, tmp_path: Path) -> None:
    trace = exported(hostile, tmp_path)
    assert [s.name for s in trace.slices if "call" in s.args] == [storable(KERNEL)] * 3
    assert set(edges(trace)) == {(0, 1), (1, 2)}
    export(hostile, "json", tmp_path / "h.json")
    document = json.loads((tmp_path / "h.json").read_text())
    assert document["calls"][0]["kernel_name"] == KERNEL
    assert document["kernels"][0]["source"] == SOURCE
    pydot = pytest.importorskip("pydot")
    export(hostile, "dot", tmp_path / "h.dot")
    text = (tmp_path / "h.dot").read_text()
    assert not set(text) & {"\x1b", "\x00", "\x07", "\u202e", "\u2028"}
    [graph] = pydot.graph_from_dot_data(text)
    [cluster] = graph.get_subgraphs()
    [node] = [n for n in cluster.get_nodes() if n.get_name() != '"\\n"']
    assert "<script>" in node.get_label()  # text in quotes, and no label of markup
    assert node.get_label().startswith('"')
    parquet = pytest.importorskip("pyarrow.parquet")
    export(hostile, "parquet", tmp_path / "h")
    rows = parquet.read_table(tmp_path / "h" / "arguments.parquet").to_pylist()
    assert (rows[0]["name"], json.loads(rows[2]["value"])) == (ARGUMENT, EVIL)


@pytest.mark.parametrize("form", FORMS)
def test_an_empty_run_and_no_matching_call(form: str, sample: StoredRun, tmp_path: Path) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    assert export(sample, form, tmp_path / "none", wanted=CallFilter(kernel=("no_such*",))) == 0
    assert (
        export(sample, form, tmp_path / "some", wanted=CallFilter(kernel=("extern*",), first=3, limit=4)) == 4
    )
    assert export(sample, form, tmp_path / "backward", wanted=CallFilter(phase="backward")) == 0
    assert export(sample, form, tmp_path / "step", wanted=CallFilter(step=5)) == 0
    assert export(sample, form, tmp_path / "kind", wanted=CallFilter(kind=("triton",))) == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_run_without_a_call(form: str, tmp_path: Path) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    (tmp_path / "empty.kscope").mkdir()
    Writer(tmp_path / "empty.kscope", info()).close()
    for number, run in enumerate((kernelscope.load(tmp_path / "empty.kscope"), MemoryRun(info()))):
        assert export(run, form, tmp_path / f"{number}") == 0
        assert (tmp_path / f"{number}").exists()


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_overwritten(form: str, sample: StoredRun, tmp_path: Path) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(RunError, match="taken already exists"):
        export(sample, form, tmp_path / "taken")
    with pytest.raises(RunError, match="there is no folder"):
        export(sample, form, tmp_path / "no" / "such")
    assert (tmp_path / "taken").read_text() == "mine"
    assert not list(tmp_path.rglob("*.unfinished"))


def test_a_damaged_run_leaves_no_half_file(sample: StoredRun, tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(sample.path / "run.db") as db:
        db.execute("UPDATE details SET pre = 'not json' WHERE call = 6")
    db.close()
    for form in FORMS:
        with pytest.raises(RunError, match="damaged"):
            export(kernelscope.load(sample.path), form, tmp_path / f"out-{form}")
    assert not list(tmp_path.glob("out-*"))


def test_memory_does_not_grow_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pages need no more than two, the one that is written and the one that is being read."""
    run = write_long_run(tmp_path / "long.kscope", 4_000)
    monkeypatch.setattr("kernelscope.views.call_filter.PAGE", 500)

    def peak(limit: int, name: str) -> int:
        tracemalloc.start()
        export(
            kernelscope.load(run), "perfetto", tmp_path / name, wanted=CallFilter(limit=limit), flows=False
        )
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(10, "warm")
    assert peak(4_000, "long") < 1.25 * peak(1_000, "short")


def test_the_command(sample: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", "sample.kscope", "--perfetto"]) == 0
    assert "40 calls in sample.perfetto.json" in capsys.readouterr().out
    assert len(read_trace(tmp_path / "sample.perfetto.json").slices) > 40
    assert main(["export", "sample.kscope", "--json", "-o", "-", "--limit", "2"]) == 0
    assert len(json.loads(capsys.readouterr().out)["calls"]) == 2
    assert main(["export", "sample.kscope", "--parquet", "-o", "-"]) == 2
    assert "give it a name" in capsys.readouterr().err
    assert main(["export", "sample.kscope", "--dot", "--no-flows"]) == 2
