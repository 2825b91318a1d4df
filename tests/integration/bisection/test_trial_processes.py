"""Trials of a script in processes: when they are forked, and how they end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.bisection.bisected_scripts import script

from kernelscope.processes.quick_start import torch_is_for_gpus
from kernelscope.trials.outcome import KILLED, PASSED, RAISED, TIMED_OUT
from kernelscope.trials.settings import Settings, Switch
from kernelscope.trials.trial_processes import Workers

MODES = """
import ctypes, os, time
from pathlib import Path
mode = Path("mode").read_text()
if mode == "crash":
    ctypes.string_at(0)
if mode == "hang":
    time.sleep(1000)
if mode == "raise":
    raise KeyError("no such key")
if mode == "exit":
    raise SystemExit(3)
"""


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("modes")
    before = os.getcwd()
    os.chdir(folder)
    try:
        job = {"words": [str(script(folder, MODES))], "check": "exception", "what": ""}
        with Workers(job, folder, timeout=20) as made:
            yield made
    finally:
        os.chdir(before)


def test_trials_are_forked_where_they_can_be(workers: Workers) -> None:
    workers.get_ready()
    if torch_is_for_gpus():
        assert not workers.forks
        assert "this torch is built for GPUs" in workers.notes[0]
    else:
        assert workers.notes == []
        assert workers.forks


@pytest.mark.parametrize(
    ("mode", "kind", "what"),
    [
        ("crash", KILLED, "killed by SIGSEGV"),
        ("raise", RAISED, "KeyError: 'no such key'"),
        ("exit", RAISED, "ScriptFailed: it exited with 3"),
        ("hang", TIMED_OUT, "after 3 s"),
    ],
)
def test_how_a_trial_ends_is_an_outcome(workers: Workers, mode: str, kind: str, what: str) -> None:
    Path("mode").write_text(mode)
    workers.timeout = 3 if mode == "hang" else 60
    outcome = workers.run(Settings())
    assert (outcome.kind, outcome.what) == (kind, what)
    Path("mode").write_text("pass")  # and the next one is not harmed
    workers.timeout = 60
    assert workers.run(Settings()).kind == PASSED


def test_only_what_changes_the_code_gets_a_process_of_its_own(workers: Workers) -> None:
    Path("mode").write_text("pass")
    workers.timeout = 60
    workers.run(Settings())
    first = workers.children
    workers.run(Settings(frozenset([Switch("kernel", "k")])))
    assert workers.children == first
    workers.run(Settings(frozenset([Switch("config", "torch._inductor.config.epilogue_fusion", False)])))
    assert workers.children == first + 1
