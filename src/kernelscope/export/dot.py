"""What feeds what, for Graphviz: a node for each site, an edge where one wrote what another read.

Sites and not calls: the picture of a thousand steps is that of one, with numbers on its edges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kernelscope.analysis.producers import Flows
from kernelscope.events import Site
from kernelscope.model.html import visible
from kernelscope.model.run import Run
from kernelscope.text.amounts import counted
from kernelscope.text.frames import innermost
from kernelscope.views.call_filter import CallFilter

from .output import new_file

_COLORS = {"cpp": "#cfe2f3", "triton": "#d9ead3", "extern": "#fff2cc", "gcu": "#ead1dc", "op": "#eeeeee"}


def write(run: Run, path: Path, wanted: CallFilter) -> int:
    picture = _Picture(run, wanted)
    with new_file(path) as file:
        file.writelines(f"{line}\n" for line in picture.lines())
    return picture.count


class _Picture:
    def __init__(self, run: Run, wanted: CallFilter) -> None:
        self.count = 0
        self._sites: dict[int, Site] = {}
        self._calls: Counter[int] = Counter()
        self._graphs: dict[str, set[int]] = {}  # sites, by the title of their graph
        self._edges: Counter[tuple[int, int, str]] = Counter()
        flows = Flows()
        for call in wanted.calls(run):
            site = call.site
            self.count += 1
            self._sites[site.id] = site
            self._calls[site.id] += 1
            graph = call.graph
            title = "" if graph is None else f"graph {graph.id} {graph.name} ({graph.direction})"
            self._graphs.setdefault(title, set()).add(site.id)
            for flow in flows.follow(call, site.id):
                self._edges[flow.tag, site.id, _name(site, flow.read)] += 1

    def lines(self) -> Iterator[str]:
        yield "digraph kernelscope {"
        yield '  rankdir="TB"; node [shape="box", style="filled", fontname="monospace"];'
        shown: set[int] = set()
        for number, (title, sites) in enumerate(self._graphs.items()):
            if title:
                yield f"  subgraph cluster_{number} {{"
                yield f"    label={quoted(title)};"
            yield from (f"    {self._node(id)}" for id in sorted(sites - shown))
            shown |= sites
            if title:
                yield "  }"
        for (producer, consumer, name), times in self._edges.items():
            label = quoted(f"{name} ×{times}" if times > 1 else name)
            yield f"  site_{producer} -> site_{consumer} [label={label}];"
        yield "}"

    def _node(self, id: int) -> str:
        site, times = self._sites[id], self._calls[id]
        where = innermost(site.origin)
        calls = counted(times, "call")
        label = quoted(f"{site.kernel.name}", f"{site.kernel.kind}  {where}  {calls}")
        color = _COLORS.get(site.kernel.kind, "#ffffff")
        return f'site_{id} [label={label}, fillcolor="{color}"];'


def _name(site: Site, argument: int) -> str:
    arg = site.args[argument]
    return arg.wrapper_name or arg.name


def quoted(*lines: str) -> str:
    """A quoted string of DOT, one line below the other."""
    flat = (visible(" ".join(line.split("\n"))) for line in lines)
    clean = (line.replace("\\", "\\\\").replace('"', '\\"') for line in flat)
    return '"' + "\\n".join(clean) + '"'
