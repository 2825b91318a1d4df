"""A run in which every text tries to be markup, script, style or an address, or to look like another."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

from tests.support.sample_runs import SPEC, Hashes, full_call, info

from kernelscope.events import Arg, Finding, Frame, Graph, GraphCall, Kernel, Site
from kernelscope.stages.records import FRAME, Compilation, FxOrigin, Incident, Provenance, Stage
from kernelscope.store.writer_thread import Writer

ATTACKS = (
    "<script>window.hacked=1</script>",
    "</script><script>window.hacked=2</script>",
    "</style><style>body{display:none}</style>",
    "\"><img src=x onerror='window.hacked=3'>",
    "'-window.hacked=4-'",
    "javascript:window.hacked=5",
    "<!--<script>",
    "]]>&lt;b&gt;&amp;\\u003c/script\\u003e",
    "$data$script${window.hacked=6}",
    "\u202egnp.exe\u2066\u200b\u0007\u2028\ud800"[:-1] + "\ufffd",
)
NOTHING = "data:text/html,<script>window.hacked=7</script>"


def attack(number: int) -> str:
    return ATTACKS[number % len(ATTACKS)]


class HostileHashes(Hashes):
    """Hashes of a kind of the user's own, which are text."""

    def read(self, slot: int) -> object:
        return attack(slot)


def write_hostile(folder: Path) -> Path:
    folder.mkdir()
    told = {"torch": attack(0), attack(1): attack(2)}
    about = info(host=attack(3), versions=told, settings={attack(4): attack(5)}, devices=(attack(0), NOTHING))
    writer, fingerprinter = Writer(folder, about), HostileHashes()
    graph = Graph(0, "forward", attack(1), "0/0", "key", "\n".join(ATTACKS), attack(5))
    writer.graph_call(GraphCall(0, graph, 7, 0, "forward", 1))
    for number in range(2 * len(ATTACKS)):
        args = (
            Arg(attack(number), "in", SPEC, attack(number + 1)),
            Arg(attack(number + 2), "out", SPEC, attack(number + 3)),
            Arg(attack(number + 4), "scalar", None, attack(number), attack(number + 5)),
            Arg(attack(number + 6), "scalar", None, "", varies=True),
        )
        kernel = Kernel(number, attack(number), attack(number + 7), attack(number), "\n".join(ATTACKS), "h")
        frames = (Frame(attack(number), number + 1, attack(number + 1)), Frame(NOTHING, 1, NOTHING))
        config = {attack(number): attack(number + 1)}
        site = Site(number, kernel, args, attack(5), number + 1, (1,), config, frames, attack(number))
        call = full_call(next(writer.flight), site, fingerprinter)
        call.scalars = (attack(number),)
        call.error = attack(number) if number % 3 == 0 else ""
        writer.enter(call)
        writer.leave(call)
        writer.finding(
            Finding(attack(number), attack(number + 1), call.index, attack(number), attack(number))
        )
    frames = (Frame(attack(1), 3, attack(2)),)
    writer.compiled += [
        Compilation(0, "0/0", FRAME, name=attack(0), made="compiled", origin=frames),
        Compilation(1, "0/0", "forward", 0, attack(3), "key", "compiled", 1, 20),
        *(Stage(1, f"pass {text}", "diff", "\n".join(f"+{t}" for t in ATTACKS)) for text in ATTACKS),
        Stage(1, "post_grad", "python", "\n".join(f'{t} # File: {t}:3 in {t}, code: {t}' for t in ATTACKS)),
        Stage(1, "output_code", "python", "\n".join(ATTACKS)),
        Stage(1, "dag", "json", _dag()),
        Provenance(1, attack(0), 1, ("buf0",), tuple(
            FxOrigin(text, text, (text,), (Frame(text, 3, text),)) for text in ATTACKS
        )),
        Incident("graph-break", 0, attack(0), attack(1), frames, "\n".join(ATTACKS)),
        Incident("failure", 0, attack(2), attack(3), (), attack(4), attack(0), attack(1)),
    ]  # fmt: skip
    writer.mark("step", attack(0))
    writer.flush()
    writer.close()
    return folder


def _dag() -> str:
    nodes = [
        {"name": text, "inputs": [], "outputs": ["buf0"], "metadata": {"fx": [text]}, "type": text}
        for text in ATTACKS
    ]
    groups = [[text] for text in ATTACKS]
    edges = [[a, b] for a, b in pairwise(ATTACKS)]
    return json.dumps(
        {"inputs": [], "outputs": [], "buffers": [], "edges": edges, "groups": groups, "nodes": nodes}
    )
