"""`kernelscope mcp` with the official client: its tools, hostile arguments, and planted failures."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.sample_runs import write_sample

pytest.importorskip("mcp", reason="needs the mcp package: pip install 'kernelscope[mcp]'")

from tests.integration.integrations.mcp_client import SRC, Client, Failed, with_server

from kernelscope.integrations.mcp.tools import READING, RUNNING
from kernelscope.store import folder

SCRIPTS = Path(__file__).parents[2] / "programs" / "failing_scripts"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with two runs and a script, and beside it a folder that may not be read."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for place in (inside, outside):
        place.mkdir()
        (place / "program.py").write_text("open('was-run', 'w').close()\n")
    write_sample(inside / folder.HOME / "old-1.kscope")
    write_sample(inside / folder.HOME / "new-1.kscope")
    write_sample(outside / "secret.kscope")
    (inside / "way-out.kscope").symlink_to(outside / "secret.kscope")
    (inside / "link.py").symlink_to(outside / "program.py")
    hidden = inside / folder.HOME / "newest-1.kscope"  # a link that `newest` must not follow
    hidden.symlink_to(outside / "secret.kscope")
    os.utime(outside / "secret.kscope", (4e9, 4e9))
    return inside


def test_tools_read_runs(here: Path) -> None:
    async def work(client: Client) -> None:
        tools = await client.tools()
        assert set(tools) == set(READING)  # nothing that runs a program, unless the user allows it
        assert all(tool.description for tool in tools.values())
        listed = await client("list_runs")
        names = {run["run"] for run in listed["runs"]}
        assert names == {"kscope-runs/old-1.kscope", "kscope-runs/new-1.kscope"}
        newest = await client("show")
        assert "newest-1" not in newest["answer"]
        shown = await client("show", run="old-1", kernel="*mm")
        assert {call["kernel"] for call in shown["calls"]} == {"extern_kernels.mm"}
        assert len(json.dumps(shown)) < 10_000
        assert shown["findings"]
        one = await client.follow(shown, "show")
        assert one["answer"].startswith("call 3 of run kscope-runs/old-1.kscope launches ")
        assert one["arguments"]
        ended = await client("show", run="old-1", crash=True)
        assert ended["kind"]
        with pytest.raises(Failed, match="is compared with itself"):  # both samples are one run
            await client("diff", a="old-1", b="new-1")
        rows = await client("query", sql="-- a comment\nSELECT count(*) AS n FROM call", run="old-1")
        assert rows["rows"] == [{"n": 40}]
        rows = await client("query", sql="SELECT 1 AS a, 2 AS a, 3 AS a_2, 4 AS a", run="old-1")
        assert list(rows["rows"][0].values()) == [1, 2, 3, 4]
        graph = (await client("stages", run="old-1"))["graphs"][0]["graph"]
        assert [each["graph"] for each in (await client("stages", run="old-1", graph=graph))["graphs"]] == [
            graph
        ]

    with_server(here, [], work)


HOSTILE: list[tuple[str, dict[str, Any], str]] = [
    ("show", {"run": "../outside/secret.kscope"}, "outside of the folders"),
    ("show", {"run": "{outside}/secret.kscope"}, "outside of the folders"),
    ("show", {"run": "way-out"}, "outside of the folders"),
    ("show", {"run": "/etc"}, "outside of the folders"),
    ("show", {"call": True}, "not true or false"),
    ("query", {"sql": "SELECT 1", "limit": True}, "not true or false"),
    ("show", {"run": "--help"}, "options cannot be given"),
    ("show", {"run": "-o/x"}, "options cannot be given"),
    ("show", {"run": "old-1\0"}, "NUL"),
    ("show", {"run": "x" * 5000}, "NUL character or more than"),
    ("show", {"run": "x" * 300}, "there is no run"),  # longer than a name may be
    ("show", {"run": "old-1", "crash": True, "call": 5}, "leave out the arguments"),
    ("show", {"run": "old-1", "output": "/x"}, "output"),
    ("show", {"run": "old-1", "call": -1}, "at least 0"),
    ("show", {"run": "old-1", "call": "0 --source"}, "valid integer"),
    ("stages", {"run": "old-1", "graph": "7/0 forward"}, "has no graph"),
    ("stages", {"run": "old-1", "graph": "0/0 forward", "kernel": "*"}, "not both"),
    ("stages", {"run": "old-1", "export": "/x"}, "export"),
    ("stages", {"run": "old-1", "graph": "--export=x", "stage": "--export=x"}, "graph"),
    ("diff", {"a": "old-1", "b": "--save"}, "options cannot be given"),
    ("diff", {"a": "old-1", "b": "../outside/secret.kscope"}, "outside of the folders"),
    ("query", {"sql": "DELETE FROM calls"}, "SQLite rejected"),
    ("query", {"sql": "DROP TABLE calls"}, "SQLite rejected"),
    ("query", {"sql": "CREATE TABLE x (y)"}, "SQLite rejected"),
    ("query", {"sql": "ATTACH '{outside}/x.db' AS x"}, "SQLite rejected"),
    ("query", {"sql": "PRAGMA writable_schema = 1"}, "SQLite rejected"),
    ("query", {"sql": "SELECT load_extension('/x')"}, "SQLite rejected"),
    ("query", {"sql": "SELECT 1; DELETE FROM calls"}, "SQLite rejected"),
    ("query", {"sql": "VACUUM INTO '{outside}/x.db'"}, "SQLite rejected"),
    ("query", {"sql": "--limit=0"}, "only queries that read"),
]
HOSTILE_RUNS: list[tuple[str, dict[str, Any], str]] = [
    ("record", {"script": "../outside/program.py"}, "may not be run"),
    ("shadow", {"script": "{outside}/program.py"}, "may not be run"),
    ("why", {"script": "link.py"}, "may not be run"),
    ("bisect", {"script": "program.py", "check": "touch was-run"}, "check"),
    ("bisect", {"script": "program.py", "fails_on": "--check=touch was-run"}, "fails_on"),
    ("record", {"script": "-c"}, "options cannot be given"),
    ("record", {"script": "-mos"}, "options cannot be given"),
    ("reduce", {"script": "--resume"}, "options cannot be given"),
    ("record", {"script": "."}, "no script"),
    ("record", {"script": "x" * 300}, "no script"),
    ("record", {"script": "program.py", "values": "hash --ops all"}, "values"),
    ("record", {"script": "program.py", "arguments": ["x"] * 101}, "more than 100 words"),
]


def texts_of(here: Path, given: dict[str, Any]) -> dict[str, Any]:
    outside = str(here.parent / "outside")
    return {
        name: value.replace("{outside}", outside) if isinstance(value, str) else value
        for name, value in given.items()
    }


def files_below(path: Path) -> dict[str, int]:
    return {str(each): each.stat().st_size for each in path.rglob("*") if each.is_file()}


def test_hostile_arguments_are_refused(here: Path) -> None:
    async def work(client: Client) -> None:
        for tool, given, reason in HOSTILE:
            with pytest.raises(Failed, match=reason):
                await client(tool, **texts_of(here, given))
        for tool in RUNNING:
            with pytest.raises(Failed):
                await client(tool, script="program.py")

    before = files_below(here.parent)
    with_server(here, [], work)
    assert files_below(here.parent) == before


def test_programs_that_were_not_allowed_are_refused(here: Path) -> None:
    async def work(client: Client) -> None:
        assert set(await client.tools()) == {*READING, *RUNNING}
        for tool, given, reason in HOSTILE_RUNS:
            with pytest.raises(Failed, match=reason):
                await client(tool, **texts_of(here, given))

    before = files_below(here.parent)
    with_server(here, ["--allow-run"], work)
    assert files_below(here.parent) == before

    async def one(client: Client) -> None:
        with pytest.raises(Failed, match="may not be run"):
            await client("record", script="program.py")

    (here / "other.py").write_text("")
    with_server(here, ["--allow-run", "other.py"], one)
    assert not (here / "was-run").exists()


def test_query_that_never_ends_is_ended(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import anyio

    from kernelscope.integrations.mcp.command import TooLong, run_command

    endless = " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    monkeypatch.setenv("PYTHONPATH", str(SRC))
    with pytest.raises(TooLong, match="query did not end within 2 s"):
        anyio.run(run_command, ["query", str(here / folder.HOME / "old-1.kscope"), endless], here, 2.0)


def scripts_in(path: Path) -> Path:
    for script in SCRIPTS.glob("*.py"):
        shutil.copy(script, path)
    return path


async def compiler_that_fails(client: Client) -> None:
    """The symptom is an exception: record, see how it ended, and what the compiler says."""
    made = await client("record", script="crash_in_compile.py")
    assert made["status"] != 0
    ended = await client.follow(made, "show")
    assert ended["kind"] == "exception"
    assert "digamma has no loop body" in ended["exception"]
    stages = await client("stages", run=made["run"])
    assert "digamma" in json.dumps(stages["failures"])


async def wrong_lowering(client: Client) -> None:
    """The symptom is wrong numbers: shadow names the kernel, bisect the part, reduce the operator."""
    wrong = await client("shadow", script="wrong_lowering.py")
    assert wrong["kernel"] == "cpp_fused_exp_mul_tanh_0"
    assert wrong["line"].endswith("wrong_lowering.py:11 in gate")
    cause = await client.follow(wrong, "bisect")
    assert cause["cause"]["switches"]
    smallest = await client.follow(cause, "reduce")
    assert "tanh" in smallest["code"]
    assert "exp" not in smallest["code"]


async def wrong_pass(client: Client) -> None:
    """The step of the compiler is known without a search."""
    wrong = await client("shadow", script="wrong_pass.py")
    assert wrong["verdict"] == "wrong-stage"
    assert "post_grad_custom_post_pass" in json.dumps(wrong)


async def program_that_makes_nan(client: Client) -> None:
    """The kernel that makes the NaN is named, and eager does the same: the program is at fault."""
    made = await client("record", script="makes_nan.py", stop_on_nan=True)
    assert made["status"] == 3
    shown = await client("show", run=made["run"])
    assert "cpp_fused_div_sum_0" in json.dumps([shown["findings"], shown["calls"]])
    right = await client.follow(shown, "shadow")
    assert right["answer"] == "no compiled kernel differs from eager by more than rounding"


async def operator_that_varies(client: Client) -> None:
    """The symptom is a result that varies: determinism names the operator and the line."""
    varies = await client("determinism", script="varies.py")
    assert [kernel["kernel_name"] for kernel in varies["kernels"]] == ["varies.total.default"]
    assert varies["line"].endswith("varies.py:27 in pooled")


async def unknown_cause(client: Client) -> None:
    """Where nothing is known, `why` answers whose fault it is."""
    found = await client("why", script="own_mistake.py", quick=True)
    assert found["kind"] == "exception"
    assert found["fault"] == "program"
    assert found["line"].endswith("own_mistake.py:8 in layer")


def test_planted_failure_is_found_with_tools_alone(tmp_path: Path) -> None:
    with_server(scripts_in(tmp_path), ["--allow-run"], compiler_that_fails)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "solve", [wrong_lowering, wrong_pass, program_that_makes_nan, operator_that_varies, unknown_cause]
)
def test_five_more_planted_failures(solve: Any, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    with_server(scripts_in(tmp_path), ["--allow-run"], solve, TORCHINDUCTOR_CACHE_DIR=cache)


def test_server_without_its_package_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kernelscope.cli import main
    from kernelscope.integrations import packages

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    assert main(["mcp"]) == 2
    assert "pip install 'kernelscope[mcp]'" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
