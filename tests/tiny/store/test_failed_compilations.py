"""A compilation that failed without a line of its own has that of its function."""

from __future__ import annotations

from kernelscope.events import Frame
from kernelscope.stages.graphs import Stages
from kernelscope.stages.records import FRAME, Compilation, Incident

FORWARD, CALLER = Frame("/home/me/train.py", 5, "forward"), Frame("/home/me/train.py", 10, "<module>")
OTHER = Frame("/home/me/train.py", 30, "loss")


def test_it_has_the_line_of_its_function() -> None:
    records = [
        Compilation(0, "0/0", FRAME, origin=(FORWARD, CALLER)),
        Compilation(1, "1/0", FRAME, origin=(OTHER, CALLER)),
        Compilation(2, "0/8", FRAME),
        Incident("failure", 0, "0/0", "ValueError: not comparable", stage="post_grad"),
        Incident("failure", 2, "0/8", "Unsupported: recompile limit exceeded", stage="dynamo"),
        Incident("failure", 1, "1/0", "RuntimeError: no", (CALLER,), stage="lowering"),
        Incident("failure", 7, "7/0", "RuntimeError: no", stage="dynamo"),
    ]

    found = {incident.compile_id: incident.origin for incident in Stages(records).failures}

    assert found == {"0/0": (FORWARD,), "0/8": (FORWARD,), "1/0": (CALLER,), "7/0": ()}
