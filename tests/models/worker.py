"""python -m tests.models.worker DEVICE MODEL MODE…: check a model in modes, a line of JSON for each."""

from __future__ import annotations

import json
import sys
import traceback
import warnings

import torch

from tests.models.check import MODES, Outcome, check
from tests.programs.models.everyday_models import ALL


def main() -> None:
    device, name, *modes = sys.argv[1:]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # the command runs several of these
    for mode in modes:
        try:
            outcome = check(ALL[name].load(), MODES[mode], device)
        except Exception:
            outcome = Outcome(name, mode, device, error=traceback.format_exc())
        print(json.dumps(outcome.to_dict()), flush=True)


if __name__ == "__main__":
    main()
