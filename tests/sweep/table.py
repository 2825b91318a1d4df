"""The table of a sweep, the list of what is wrong, and the place in the docs."""

from __future__ import annotations

import fnmatch
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from .databases import DTYPES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/sweep.md"
_KNOWN = json.loads((Path(__file__).parent / "known_bugs.json").read_text(encoding="utf-8"))


def known_bug(row: dict[str, Any]) -> str:
    """The public issue of a true bug of torch that explains all alarms of a sample."""
    wrong = row.get("culprits") or []
    for bug in _KNOWN:
        fits = any(fnmatch.fnmatch(row["job"], pattern) for pattern in bug["jobs"])
        if fits and wrong and all(re.search(bug["culprit"], _named(culprit)) for culprit in wrong):
            return str(bug["issue"])
    return ""


def _named(culprit: dict[str, Any]) -> str:
    return " ".join(str(culprit.get(name, "")) for name in ("verdict", "kernel_name", "node", "reason"))


def kind_of(row: dict[str, Any]) -> str:
    """ok | false alarm | true bug | failure | perturbed | fails-bare."""
    if row["status"] == "alarm":
        return "true bug" if known_bug(row) else "false alarm"
    if row["status"] in ("timeout", "crash"):
        return row["status"]
    if row["status"] == "ok" and row.get("findings"):
        return "false alarm"
    return str(row["status"])


def broken(rows: list[dict[str, Any]]) -> bool:
    return any(kind_of(row) in ("false alarm", "failure", "perturbed", "crash") for row in rows)


def table(rows: list[dict[str, Any]], about: list[dict[str, Any]]) -> str:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=_place):
        kind, _, dtype = _parts(row["job"])
        groups.setdefault(f"{'operators' if kind == 'op' else 'modules'}, {dtype}", []).append(row)
    head = [
        "", "jobs", "samples", "launches", "unjudged", "false alarms", "failures", "perturbed", "true bugs",
        "fail without kernelscope", "over the time limit",
    ]  # fmt: skip
    lines = [head, ["---"] * len(head)]
    lines += [_cells(name, group) for name, group in groups.items()]
    lines.append(_cells("**all**", rows))
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    machines = "\n".join(f"- {a['machine']}; {a['versions']}" for a in about)
    return f"{machines}\n{_commits(rows)}\n{text}"


def _commits(rows: list[dict[str, Any]]) -> str:
    """How many samples ran at which commit."""
    counts = Counter(row.get("commit") or "not noted" for row in rows)
    named = ", ".join(f"{commit} ({count})" for commit, count in counts.most_common())
    return f"- commits, with the number of samples: {named}\n"


def _cells(name: str, rows: list[dict[str, Any]]) -> list[str]:
    kinds = Counter(kind_of(row) for row in rows)
    right = [row for row in rows if kind_of(row) != "fails-bare"]  # what eager refuses cannot be judged
    launches = sum(row.get("launches", 0) for row in right)
    unjudged = sum(row.get("unjudged", 0) for row in right)
    share = f"{100 * unjudged / launches:.1f} %" if launches else "—"
    numbers = [
        len({row["job"] for row in rows}), len(rows), launches, share, kinds["false alarm"],
        kinds["failure"] + kinds["crash"], kinds["perturbed"], kinds["true bug"], kinds["fails-bare"],
        kinds["timeout"],
    ]  # fmt: skip
    return [name, *(str(number) for number in numbers)]


def details(rows: list[dict[str, Any]]) -> str:
    """What is wrong, one line each, and why launches were not judged, most frequent first."""
    lines = []
    for row in rows:
        if (kind := kind_of(row)) not in ("ok", "fails-bare"):
            why = row.get("error") or "; ".join(_named(c) for c in row.get("culprits", [])[:2])
            why = why or "; ".join(
                [*row.get("findings", []), *row.get("notes", []), *row.get("unshadowed", [])]
            )
            lines.append(f"{kind:12} {row['job']}#{row['sample']}: {why[:300]}")
    reasons: Counter[str] = Counter()
    for row in rows:
        for reason in {each.partition(": ")[2] for each in row.get("unchecked", [])}:
            reasons[re.sub(r"\d+", "N", reason)[:120]] += 1
    lines += [f"not checked in {count} samples: {reason}" for reason, count in reasons.most_common(30)]
    problems = Counter(re.sub(r"\d+", "N", row["inconclusive"]) for row in rows if row.get("inconclusive"))
    lines += [f"inconclusive in {count} samples: {problem}" for problem, count in problems.most_common(30)]
    return "\n".join(lines)


def _place(row: dict[str, Any]) -> tuple[int, bool]:
    kind, _, dtype = _parts(row["job"])
    return DTYPES.index(dtype), kind != "op"


def _parts(job: str) -> tuple[str, str, str]:
    kind, _, rest = job.partition(":")
    name, _, dtype = rest.rpartition(":")
    return kind, name, dtype


def write_docs(place: str, shown: str) -> None:
    mark = f"sweep:{place}"
    between = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- end -->)", re.DOTALL)
    text, replaced = between.subn(
        lambda found: f"{found[1]}{shown}\n{found[2]}", PAGE.read_text(encoding="utf-8")
    )
    if replaced != 1:
        raise SystemExit(f"{PAGE} has no place marked {mark}")
    PAGE.write_text(text, encoding="utf-8")
