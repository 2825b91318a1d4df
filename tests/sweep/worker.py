"""A process that tries one job after the other: a JSON line in, JSON lines out."""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from typing import Any


def main(device: str, wanted: int, first: bool) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a program prints goes to the log

    def answer(**facts: Any) -> None:
        answers.write(json.dumps(facts) + "\n")

    import logging

    import torch

    from .databases import Job, Program, programs
    from .one_sample import tried

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    # What is built once (precompiled headers, our own libraries) must not count as time of the first sample
    # that needs it: on a GPU that is a later one, such as `arange`, which runs on the CPU.
    tried(Program(lambda x: x.sin() + 1, (torch.ones(3),), lambda result: result, backward=False))
    answer(event="ready")
    for line in sys.stdin:
        asked = json.loads(line)
        job, skip = Job(*asked["job"]), set(asked["skip"])
        try:
            answer(event="making")
            for index, program in programs(job, device, wanted, first):
                if index in skip:
                    continue
                answer(event="begin", sample=index)
                try:
                    facts = tried(program)
                except Exception:  # of the sweep itself: a lost sample must show in the table
                    facts = {"status": "failure", "error": f"the sweep: {traceback.format_exc()[-600:]}"}
                answer(event="done", sample=index, facts=facts)
        except Exception:
            answer(event="end", problem=traceback.format_exc()[-600:])
        else:
            answer(event="end")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "first")
