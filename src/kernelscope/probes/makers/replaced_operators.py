"""ATen operators that this torch computes with a DSL kernel instead (`torch._native`): the call names it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from kernelscope.events import Site
from kernelscope.probes.launch import Launch

REPLACED_BY = "replaced by"
_REGISTRY = "torch._native.registry"


def sealed_with_replacement(func: Any) -> Callable[[Site, Launch], Site] | None:
    """For an operator that may be replaced: completes the site of its first launch with what computed it."""
    nodes = list(_overrides(func))
    if not nodes:
        return None

    def seal(site: Site, launch: Launch) -> Site:
        device = (site.device or "cpu").partition(":")[0].upper()
        given = "out" if "out" in launch.kwargs else "default"  # of a function, which has no overload's name
        overload = str(getattr(func, "_overloadname", "") or given)
        for symbol, key, node in nodes:
            is_meant = key == device and (symbol.partition(".")[2] or "default") == overload
            if is_meant and _applies(node, launch):
                module = getattr(node.impl_fn, "__module__", "")
                return replace(site, config={**site.config, REPLACED_BY: f"{node.dsl_name} ({module})"})
        return site

    return seal


def _overrides(func: Any) -> Iterator[tuple[str, str, Any]]:
    """Symbol, dispatch key and entry of each override of an operator."""
    registry = sys.modules.get(_REGISTRY)
    name = str(getattr(func, "_opname", "") or getattr(func, "__name__", "")).partition(".")[0]
    for key, nodes in dict(getattr(registry, "_graphs", {})).items():
        symbol, dispatch_key = key[-2:]
        if symbol.partition(".")[0] == name:
            yield from ((symbol, dispatch_key, node) for node in nodes)


def _applies(node: Any, launch: Launch) -> bool:
    """By the same question that torch asks before each call."""
    try:
        return bool(node.active and node.cond_fn(*launch.args, **launch.kwargs))
    except Exception:  # of the predicate, for a form of arguments that torch brings into another first
        return False
