"""Watching values of eager operators: conditions, hits, the debugger. Nothing is compiled."""

from __future__ import annotations

import contextlib
import io
import math
import re
from pathlib import Path

import pytest
import torch

from kernelscope.fingerprint.stats import Stats
from kernelscope.values import WatchHit, parse_watch, watch


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nun", "did you mean nan"),
        ("max>", "max>1e4"),
        ("max>high", "'high' is not a number"),
        ("max>nan", "write nan alone"),
        ("mix>3", "did you mean m"),
        ("nan@", "CONDITION@KERNEL"),
        ("nan@a@b@c", "CONDITION@KERNEL"),
        ("", "CONDITION"),
    ],
)
def test_watches_that_do_not_parse(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"cannot watch {text!r}")) as error:
        parse_watch(text)
    assert said in str(error.value)


def test_conditions() -> None:
    stats = Stats(10, -3.0, 5.0, 1.0, 2.0, 9.0, 1, 0, 2, 4)
    held = ["nan", "-inf", "max>4.5", "max >= 5", "min<0", "absmax==5", "zeros>3", "nan<2", "std!=1", "l1<=9"]
    assert [text for text in held if not parse_watch(text).holds(stats)] == []
    missed = ["inf", "+inf", "max>5", "nan>1", "changed", "mean<1"]
    assert [text for text in missed if parse_watch(text).holds(stats)] == []


def test_watch_stops_at_the_producer_with_its_inputs(tmp_path: Path) -> None:
    x = torch.tensor([1.0, -1.0])
    ran = []

    def program() -> None:
        x.add(0).log_()
        ran.append("after")

    with pytest.raises(WatchHit) as stopped, watch("nan", ops="all", folder=tmp_path / "v"):
        program()
    hit = stopped.value.hit
    assert not ran
    assert (hit.kernel, hit.arg, hit.is_producer) == ("aten.log_.default", "self", True)
    assert "1 NaN of 2 elements" in str(hit)
    assert torch.equal(hit.inputs["self"], x)
    [before] = [path for path in hit.files if path.name.startswith("before_launch")]
    assert torch.equal(torch.load(before, weights_only=True), x)
    assert f"{Path(__file__).name}:" in hit.origin


def test_watch_tells_what_came_in() -> None:
    x = torch.tensor([math.nan])
    with pytest.raises(WatchHit) as stopped, watch("nan", ops="all"):
        x.relu()
    assert not stopped.value.hit.is_producer
    assert "already in input self" in str(stopped.value)


def test_watch_tells_of_uninitialised_memory() -> None:
    torch.use_deterministic_algorithms(True)  # which fills new memory with NaN
    try:
        with pytest.raises(WatchHit) as stopped, watch("nan", ops="all"):
            torch.empty(4).relu()
    finally:
        torch.use_deterministic_algorithms(False)
    assert stopped.value.hit.kernel == "aten.relu.default"
    assert "uninitialised memory" in str(stopped.value)


def test_watch_tells_who_made_the_infinity() -> None:
    x = torch.tensor([3e38])
    with pytest.raises(WatchHit) as stopped, watch("nan", ops="all"):
        x.mul(10).sub(torch.tensor([math.inf]))
    assert stopped.value.hit.kernel == "aten.sub.Tensor"
    assert "produced by call 0, aten.mul.Tensor" in str(stopped.value)


def test_masks_are_no_hits() -> None:
    scores = torch.randn(3, 3)
    with watch("nan", "inf", ops="all") as hits:
        masked = scores.masked_fill(torch.ones(3, 3).triu(1).bool(), -math.inf)
        torch.softmax(masked, -1)
    assert not hits
    with pytest.raises(WatchHit), watch("-inf", ops="all"):
        scores.masked_fill(torch.ones(3, 3).triu(1).bool(), -math.inf)


def test_watch_bounds_patterns_and_functions() -> None:
    x = torch.ones(4)
    with watch(
        "max>2@aten.exp*", "changed@*@self", lambda t: t.sum() > 100, on_hit="note", ops="all"
    ) as hits:
        x.mul(30)
        x.mul(30)  # told already
        x.exp()
        x.add_(1)
    assert [(hit.kernel, hit.condition) for hit in hits] == [
        ("aten.mul.Tensor", "<lambda>"),
        ("aten.exp.default", "max>2@aten.exp*"),
        ("aten.add_.Tensor", "changed@*@self"),
    ]
    assert "this call produced it" in str(hits[1])
    assert "this call produced it" not in str(hits[2])  # of a change there is nothing to be said


def test_what_changed_is_what_was_written_to() -> None:
    """Also where another argument, before it, is the same memory."""
    x = torch.ones(4)
    with watch("changed", on_hit="note", ops="all") as hits:
        torch.add(x, 1, out=x)
    assert [(hit.kernel, hit.arg) for hit in hits] == [("aten.add.out", "out")]


@pytest.mark.parametrize("typed", ["quit", ""])
def test_the_debugger(
    typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`continue` goes on; `quit`, or the end of what is typed, ends the block."""
    x = torch.tensor([1.0, -1.0])
    monkeypatch.setattr("sys.stdin", io.StringIO("p hit.kernel, hit.inputs\ncontinue\n"))
    with watch("nan@*log*", on_hit="pdb", ops="all") as hits:
        x.log().add(1)
    assert [hit.kernel for hit in hits] == ["aten.log.default"]
    assert f"('aten.log.default', {{'self': {x}}})" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO(typed and f"{typed}\n"))
    with pytest.raises(WatchHit, match=r"aten\.log\.default"), watch("nan", on_hit="pdb", ops="all"):
        x.log()


def test_a_function_that_fails() -> None:
    asked: list[int] = []

    def fails(tensor: torch.Tensor) -> bool:
        asked.append(1)
        raise KeyError("it")

    def program() -> None:
        torch.ones(3).neg().neg()
        asked.append(2)  # it goes on

    with (
        pytest.raises(RuntimeError, match=r"your predicate raised an exception.*KeyError: 'it'"),
        watch(fails, ops="all"),
    ):
        program()
    assert asked == [1, 2]
    with pytest.raises(RuntimeError, match="ambiguous"), watch(lambda t: t > 0, ops="all"):
        torch.ones(3).neg()


def test_a_program_that_catches_everything_is_stopped() -> None:
    def program() -> None:
        with contextlib.suppress(Exception):
            torch.tensor(-1.0).log()

    with pytest.raises(WatchHit), watch("nan", ops="all"):
        program()
