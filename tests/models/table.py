"""What became of the everyday models, as a table for the docs."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from importlib import metadata

import torch

from tests.models.check import MODES, Outcome
from tests.programs.models.everyday_models import ALL

LIBRARIES = ("torch", "transformers", "timm", "diffusers", "torchvision")


def table(outcomes: Sequence[Outcome], device: str) -> str:
    """One row for each family."""
    families: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        families.setdefault(ALL[outcome.model].family, []).append(outcome)
    rows = [_row(family, found) for family, found in families.items()]
    modes = len({outcome.mode for outcome in outcomes})
    total = (
        f"{len({outcome.model for outcome in outcomes})} models in {modes} of {len(MODES)} modes "
        f"(train and eval, float32 and bfloat16 autocast), {len(outcomes)} programs: "
        f"{sum(not outcome.broken_promises() for outcome in outcomes)} keep all promises."
    )
    return "\n".join(
        [
            f"- machine: {_machine(device)}",
            f"- versions: {_versions()}",
            f"- commits: {_commits(outcomes)}",
            "",
            "| family | models | launches | buffers checked | not judged | alarms | failures | changed |",
            "|---|---|---|---|---|---|---|---|",
            *rows,
            "",
            total,
        ]
    )


def _row(family: str, outcomes: Sequence[Outcome]) -> str:
    names = ", ".join(sorted({outcome.model for outcome in outcomes}))
    changed = sum(bool(o.changed_by_recording or o.changed_by_shadow) for o in outcomes)
    cells = [
        family,
        names,
        sum(o.launches for o in outcomes),
        sum(o.buffers for o in outcomes),
        f"at most {100 * max(o.unjudged_share for o in outcomes):.1f} %",
        sum(len(o.alarms) for o in outcomes),
        sum(len(o.failures) + bool(o.error) for o in outcomes),
        changed,
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def _commits(outcomes: Sequence[Outcome]) -> str:
    """Each commit with the number of its programs: outcomes of one journal may be of several."""
    counted = Counter(outcome.commit or "not noted" for outcome in outcomes)
    return ", ".join(f"{commit} ({count} programs)" for commit, count in counted.items())


def _machine(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()} CPU"


def _versions() -> str:
    found = []
    for name in LIBRARIES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"{name} is not installed")
    return ", ".join(found)
