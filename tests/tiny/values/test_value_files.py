"""Saving values of eager operators to files, and computing results again. Nothing is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import kernelscope
from kernelscope.errors import RunError
from kernelscope.values import IntermediateValueDebuggingLevel as Level
from kernelscope.values import observe
from kernelscope.values.session import folder_for_values


def test_files(tmp_path: Path) -> None:
    x = torch.arange(12.0).view(3, 4)
    with observe(Level.SAVE_ONLY, folder=tmp_path / "v", ops="all") as run:
        y = x.t().exp()
        x.add_(1)
    exp, add = (call.index for call in run)
    load = lambda path: torch.load(tmp_path / "v" / path, weights_only=True)  # noqa: E731
    assert torch.equal(load(f"{exp}/after_launch_aten.exp.default_result_cpu.pt"), y)
    assert torch.equal(load(f"{add}/after_launch_aten.add_.Tensor_self_cpu.pt"), x)
    assert torch.equal(load(f"{add}/before_launch_aten.add_.Tensor_self_cpu.pt"), x - 1)
    assert load(f"{exp}/before_launch_aten.exp.default_self_cpu.pt").untyped_storage().nbytes() == 48


def test_files_are_never_overwritten(tmp_path: Path) -> None:
    x = torch.ones(2, 2)
    with observe("1", folder=tmp_path / "v", ops="all"):
        x.mm(x)
    saved = {path: path.read_bytes() for path in (tmp_path / "v").rglob("*.pt")}
    assert len(saved) == 5  # two arguments twice, and what is returned
    with pytest.raises(RunError, match="is not empty"), observe("1", folder=tmp_path / "v", ops="all"):
        pass
    assert {path: path.read_bytes() for path in (tmp_path / "v").rglob("*.pt")} == saved


def test_the_default_folder_is_new_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        with observe("1", ops="all"):
            torch.ones(2).neg()
    assert sorted(path.name for path in (tmp_path / "kscope-values").iterdir()) == ["1", "2"]
    # Two processes that look for one at the same time do not get the same.
    assert folder_for_values() != folder_for_values()
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    Path("kscope-values").touch()
    with pytest.raises(RunError, match="values cannot be saved to kscope-values/1"), observe("1", ops="all"):
        pass


def test_replace_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.ones(3)
    replace = kernelscope.replace
    with replace("aten.neg*", lambda args: args["self"] * 5, ops="all") as replacer:
        assert torch.equal(x.neg(), torch.full((3,), 5.0))
    assert replacer.replaced == 1
    for wrong, said in [
        (lambda args: torch.ones(4), r"has shape \(3,\), not \(4,\)"),
        (lambda args: {"out": x}, "does not write out; it writes result"),
        (lambda args: 3, "returned int, not a tensor"),
        (lambda args: args["nothing"], "nothing"),
    ]:
        with pytest.raises(RuntimeError, match=said), replace("aten.neg*", wrong, ops="all"):
            assert torch.equal(x.neg(), -x)  # the kernel's own
    with replace("aten.neg*", torch.full((3,), 7.0), ops="all"):
        assert torch.equal(x.neg(), torch.full((3,), 7.0))
    with replace("aten.neg*", {"result": x.double() * 8}, ops="all"):
        assert torch.equal(x.neg(), torch.full((3,), 8.0))
    with pytest.raises(ValueError, match="not int"), replace("aten.neg*", 3):  # type: ignore[arg-type]
        pass
    with (
        pytest.raises(RuntimeError, match="float32 cannot replace it"),
        replace("aten.neg*", x * 0.5, ops="all"),
    ):
        torch.ones(3, dtype=torch.int64).neg()
    with replace("aten.nge*", lambda args: x, ops="all"):
        x.neg()
    assert "no kernel matched 'aten.nge*'" in capsys.readouterr().err
