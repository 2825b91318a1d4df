"""The list of everyday models, which are themselves run only by `make test-all`."""

from __future__ import annotations

import pytest
from tests.models.check import MODES, Outcome
from tests.models.table import table
from tests.programs.models.everyday_models import ALL


def test_every_kind_of_model_is_there() -> None:
    assert len(ALL) >= 25
    assert {each.family for each in ALL.values()} >= {
        "encoder", "decoder", "encoder-decoder", "mixture of experts", "state space", "convolution", "U-Net",
        "audio", "vision-language", "vision transformer", "recurrent",
    }  # fmt: skip
    assert {each.library for each in ALL.values()} == {
        "torch", "transformers", "timm", "diffusers", "torchvision"
    }  # fmt: skip
    assert list(MODES) == ["train-float32", "train-bfloat16", "eval-float32", "eval-bfloat16"]


@pytest.mark.parametrize(
    "broken",
    [
        {"alarms": ["wrong-kernel"]},
        {"failures": ["KeyError"]},
        {"judged": {"launches": 0.96, "bytes": 1.0}},
        {"judged": {"launches": 1.0, "bytes": 0.96}},
        {"changed_by_recording": ["step 0: output 0"]},
        {"changed_by_shadow": ["step 0: output 0"]},
        {"problem": "no compiled kernel was launched"},
        {"error": "Traceback"},
    ],
)
def test_what_breaks_a_promise(broken: dict[str, object]) -> None:
    assert Outcome("llama", "train-float32", **broken).broken_promises()  # type: ignore[arg-type]


def test_the_table_has_a_row_for_each_family() -> None:
    clean = Outcome("llama", "train-float32", launches=7, buffers=9, judged={"launches": 1.0, "bytes": 0.99})
    assert not clean.broken_promises()
    wrong = Outcome("bert", "eval-float32", launches=2, buffers=3, alarms=["wrong-kernel"])
    lines = table([clean, wrong], "cpu").splitlines()
    assert "| decoder | llama | 7 | 9 | at most 1.0 % | 0 | 0 | 0 |" in lines
    assert "| encoder | bert | 2 | 3 | at most 0.0 % | 1 | 0 | 0 |" in lines
    assert lines[-1].endswith("2 programs: 1 keep all promises.")
