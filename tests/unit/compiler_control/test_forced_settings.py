"""Settings that are forced by several at once, who may end in any order."""

from __future__ import annotations

import torch._inductor.config as inductor

from kernelscope.compiler_control.forced_settings import INDUCTOR, ForcedSettings, without_caches
from kernelscope.probes.compilation.compile_settings import FORCED


def test_blocks_that_overlap() -> None:
    before = inductor.fx_graph_cache
    first, second = without_caches(), without_caches()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert inductor.fx_graph_cache is False
    assert (INDUCTOR, "fx_graph_cache") in FORCED
    second.__exit__(None, None, None)
    assert inductor.fx_graph_cache is before
    assert (INDUCTOR, "fx_graph_cache") not in FORCED


def test_the_newest_value_holds_until_it_is_removed() -> None:
    before = inductor.max_fusion_size
    first = ForcedSettings([(INDUCTOR, "max_fusion_size", 3)])
    second = ForcedSettings([(INDUCTOR, "max_fusion_size", 5)])
    assert first.install() + second.install() == []
    assert inductor.max_fusion_size == 5
    second.remove()
    assert inductor.max_fusion_size == 3
    first.remove()
    assert inductor.max_fusion_size == before


def test_a_setting_that_this_torch_does_not_have() -> None:
    forced = ForcedSettings([(INDUCTOR, "no_such_setting", 1)])
    assert forced.install() == [f"{INDUCTOR}.no_such_setting cannot be set in this torch"]
    forced.remove()
