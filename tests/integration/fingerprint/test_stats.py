"""Level "stats" in a recording: statistics beside every hash; the first producer of NaN and infinities."""

from __future__ import annotations

import pytest
import torch

import kernelscope
from kernelscope.fingerprint import fingerprint
from kernelscope.model.run import Run


def run_of(function: object, *args: torch.Tensor, **how: object) -> Run:
    compiled = torch.compile(function)  # type: ignore[call-overload]
    with torch.no_grad(), kernelscope.record(values="stats", **how) as run:  # type: ignore[arg-type]
        compiled(*args)
    return run


def test_every_call_has_statistics_before_and_after() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x.sin() @ w) - 2

    x, w = torch.randn(8, 16), torch.randn(16, 4)
    run = run_of(program, x, w)
    assert len(run) >= 2
    for call in run:
        assert call.pre_stats.keys() == call.pre_hashes.keys()
        assert call.post_stats.keys() == call.post_hashes.keys()
        assert all(isinstance(hashed, int) for hashed in call.post_hashes.values())
    first, last = run.calls[0], run.calls[-1]
    seen = fingerprint(x)
    assert first.pre_stats[0] == seen.stats
    assert first.pre_hashes[0] == seen.bits
    made = last.post_stats[next(i for i in last.modified_args if i in last.post_stats)]
    result = program(x, w)
    assert (made.numel, made.min) == (32, -2.0)
    assert made.mean == pytest.approx(result.double().mean().item(), rel=1e-5, abs=1e-5)
    assert made.std == pytest.approx(result.double().std(correction=0).item(), rel=1e-4)
    assert f"({seen.stats})" in str(run)
    assert run.findings == []
    assert run.info.settings["values"] == "stats"


def test_hashes_are_those_of_level_hash() -> None:
    program = torch.compile(lambda x: (x * 2).softmax(-1))
    x = torch.randn(5, 7)
    with torch.no_grad():
        program(x)
        with kernelscope.record(values="hash") as hashed:
            program(x)
        with kernelscope.record(values="stats") as measured:
            program(x)
    assert [c.post_hashes for c in hashed] == [c.post_hashes for c in measured]
    assert [c.post_stats for c in hashed] == [{} for _ in hashed]


def test_the_first_producers_of_nan_and_infinity() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.sqrt()

    def divide(x: torch.Tensor) -> torch.Tensor:
        return 1 / x

    def pass_on(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    good = torch.tensor([1.0, 4.0, 0.0])
    bad = torch.tensor([1.0, -4.0, 0.0])
    with torch.no_grad(), kernelscope.record(values="stats", ops="all", kind="op") as run:
        pass_on(program(good))
        pass_on(divide(good))
        pass_on(program(bad))
        program(bad)
    kinds = [(finding.kind, run.calls[finding.call].kernel_name) for finding in run.findings]
    assert [kind for kind, _ in kinds] == ["inf", "nan"]
    infinite, nan = run.findings
    assert "made 1 +inf of 3 elements" in infinite.message
    assert "1 NaN of 3 elements" in nan.message
    assert "sqrt" in nan.message
    assert "reciprocal" in infinite.message or "div" in infinite.message
    assert "[nan]" in str(run)


def test_a_compiled_producer_of_nan_is_named() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x - 3).log().sum(0)

    run = run_of(program, torch.arange(8.0).reshape(2, 4).cos())
    [finding] = [f for f in run.findings if f.kind == "nan"]
    call = run.calls[finding.call]
    assert call.origin is not None
    assert finding.kernel == call.kernel_name


def test_unknown_levels_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'off', 'hash', 'stats'"), kernelscope.record(values="all"):
        pass
