"""The settings that bisect tries: those that the installed torch has, each with a value that it accepts."""

from __future__ import annotations

import torch._inductor.config as inductor

from kernelscope.compiler_control.cautious_settings import CAUTIOUS, INDUCTOR, split, switchable

STRICT = ("emulate_precision_casts", "deterministic", "batch_invariant", "eager_numerics.division_rounding")


def _values() -> dict[str, object]:
    names = [split(name)[1] for name in CAUTIOUS if split(name)[0] == INDUCTOR]
    present = [name for name in names if name in inductor._config]
    return {f"{INDUCTOR}.{name}": inductor.get_config_copy()[name] for name in present}


def test_strict_settings_of_the_installed_torch_are_tried() -> None:
    tried = switchable(_values(), {})
    for name in STRICT:
        is_there = name in inductor._config
        assert (tried.get(f"{INDUCTOR}.{name}") is True) == is_there


def test_a_setting_that_torch_does_not_have_or_that_is_on_is_not_tried() -> None:
    assert switchable({f"{INDUCTOR}.deterministic": True}, {}) == {}
    assert switchable({f"{INDUCTOR}.deterministic": False}, {}) == {f"{INDUCTOR}.deterministic": True}


def test_torch_accepts_each_value() -> None:
    for name, value in switchable(_values(), {}).items():
        with inductor.patch({split(name)[1]: value}):
            assert inductor.get_config_copy()[split(name)[1]] == value
