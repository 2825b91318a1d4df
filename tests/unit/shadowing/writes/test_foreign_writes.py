"""Which buffers changed without a declared write, also where many of them lie in one memory."""

from __future__ import annotations

import torch

from kernelscope.shadowing.writes.foreign_writes import Watch


def halves() -> dict[str, torch.Tensor]:
    memory = torch.zeros(16)
    return {"whole": memory, "left": memory[:8], "right": memory[8:]}


def test_a_write_beside_the_declared_one_in_the_same_memory() -> None:
    alive, watch = halves(), Watch()
    watch.before(alive, (), 0)
    alive["right"].fill_(1)
    assert not watch.after(alive, [alive["right"]], 0)
    alive["right"].fill_(2)
    alive["left"][3] = 5  # not declared
    assert [(c.name, c.suspects) for c in watch.after(alive, [alive["right"]], 1)] == [("left", range(1, 2))]


def test_what_a_declared_write_covers_in_part_may_change() -> None:
    alive, watch = halves(), Watch()
    watch.before(alive, (), 0)
    alive["whole"].fill_(1)
    assert not watch.after(alive, [alive["whole"]], 0)
    assert not watch.before(alive, alive, 1)


def test_interleaved_columns_are_apart() -> None:
    memory = torch.zeros(4, 6)
    alive, watch = {"even": memory[:, ::2], "odd": memory[:, 1::2]}, Watch()
    watch.before(alive, (), 0)
    alive["odd"].fill_(3)
    assert not watch.after(alive, [alive["odd"]], 0)
    alive["odd"].fill_(4)
    alive["even"].fill_(4)
    assert [c.name for c in watch.after(alive, [alive["odd"]], 1)] == ["even"]
