"""Runs and calls as JSON. docs/cli.md documents the keys; they are stable."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from kernelscope.model.call import KernelCall
from kernelscope.model.run import Run
from kernelscope.stages.export import provenance_form
from kernelscope.store.run_db.codec import to_json
from kernelscope.text.frames import frame_form
from kernelscope.text.hashes import full_hash

_gathering: list[list[Any]] = []


@contextmanager
def gathered() -> Iterator[list[Any]]:
    """What is dumped meanwhile comes here instead of being printed."""
    found: list[Any] = []
    _gathering.append(found)
    try:
        yield found
    finally:
        _gathering.remove(found)


def dump(value: Any) -> None:
    if _gathering:
        _gathering[-1].append(value)
        return
    is_utf8 = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"
    json.dump(json.loads(to_json(value)), sys.stdout, ensure_ascii=not is_utf8, indent=1)
    sys.stdout.write("\n")


def run_form(run: Run, path: Any = None) -> dict[str, Any]:
    info = run.info
    form: dict[str, Any] = {"path": None if path is None else str(path)}
    form |= {name: getattr(info, name) for name in ("uuid", "rank", "world_size", "host", "pid")}
    return form | {
        "started": info.realtime_ns / 1e9, "versions": info.versions, "settings": info.settings
    }  # fmt: skip


_OF_CALL = (
    "index", "kind", "producer", "kernel_name", "grid", "config", "time", "graph_call", "step", "phase",
    "device", "stream", "thread", "replay", "parent",
)  # fmt: skip


def call_form(call: KernelCall, saved: dict[tuple[int, str], str] | None = None) -> dict[str, Any]:
    graph, provenance = call.graph, call.provenance
    return {name: getattr(call, name) for name in _OF_CALL} | {
        "args": _args(call, saved or {}),
        "collective": None if call.collective is None else asdict(call.collective),
        "origin": frame_form(call.origin),
        "provenance": None if provenance is None else provenance_form(provenance),
        "graph": graph and {"id": graph.id, "name": graph.name, "direction": graph.direction},
        "error": call.error or None,
        "flight_recorder_only": call.is_unwritten,
    }


def _args(call: KernelCall, saved: dict[tuple[int, str], str]) -> list[dict[str, Any]]:
    roles, pre, post, values = call.roles, call.pre_hashes, call.post_hashes, call.args
    stats = {"before": call.pre_stats, "after": call.post_stats}
    found = []
    for i, arg in enumerate(call.arguments):
        spec = arg.tensor
        form: dict[str, Any] = {"name": arg.name, "role": roles[i], "wrapper_name": arg.wrapper_name}
        if spec is None:
            form["value"] = values[i]
        else:
            form |= {"dtype": spec.dtype, "shape": spec.shape, "stride": spec.stride, "device": spec.device}
            form |= {"before": full_hash(pre.get(i)), "after": full_hash(post.get(i))}
            form |= {f"stats_{moment}": asdict(told[i]) for moment, told in stats.items() if i in told}
            form |= {
                f"saved_{moment}": saved[i, moment] for moment in ("before", "after") if (i, moment) in saved
            }
        found.append(form)
    return found
