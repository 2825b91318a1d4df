"""What to say when no call of a run is one that the user wants: which part of the wish, and what there is."""

from __future__ import annotations

from collections.abc import Sequence

from kernelscope.events import ABOUT_NOTHING
from kernelscope.store.stored_run import StoredRun
from kernelscope.text.suggestions import did_you_mean
from kernelscope.text.widths import shortened

from .call_filter import CallFilter

_MOST = 8
_WIDEST = 60


def nothing_matches(run: StoredRun, wanted: CallFilter) -> str:
    """One line for each option that alone lets nothing through, or one for their combination."""
    if not len(run):
        is_told = any(f.kind in ABOUT_NOTHING for f in run.noted_findings())
        return "the run has no calls" + ("" if is_told else ": no kernel of compiled code ran")
    names = [kernel.name for kernel in run.kernels]
    graphs = [graph.name or graph.compile_id or str(graph.id) for graph in run.graphs]
    wishes: list[tuple[str, CallFilter, Sequence[object], Sequence[str]]] = []
    if wanted.kernel:
        wishes.append(("--kernel", CallFilter(kernel=wanted.kernel), wanted.kernel, names))
    if wanted.kind:
        kinds = list(dict.fromkeys(kernel.kind for kernel in run.kernels))
        wishes.append(("--kind", CallFilter(kind=wanted.kind), wanted.kind, kinds))
    if wanted.graph is not None:
        wishes.append(("--graph", CallFilter(graph=wanted.graph), [wanted.graph], graphs))
    if wanted.step is not None:
        steps = [str(step) for (step,) in run.rows("SELECT DISTINCT step FROM call ORDER BY 1")]
        known = [f"{steps[0]} to {steps[-1]}"] if len(steps) > 2 else steps
        wishes.append(("--step", CallFilter(step=wanted.step), [wanted.step], known))
    if wanted.phase is not None:
        phases = [str(phase) for (phase,) in run.rows("SELECT DISTINCT phase FROM call ORDER BY 1")]
        wishes.append(("--phase", CallFilter(phase=wanted.phase), [wanted.phase], phases))
    lines = []
    for option, alone, given, there in wishes:
        if next(alone.calls(run), None) is None:
            words = " ".join(map(str, given))
            near = _near(option, words, there)
            rest = f"{near} The run has: " if near else "; the run has: "
            lines.append(f"no call matches {option} {words}{rest}{_list(there)}")
    if wanted.first >= len(run):
        lines.append(f"no call matches --first {wanted.first}; the run has calls 0 to {len(run) - 1}")
    if not lines and wanted.changed:
        return "no call matches: no argument was changed in place" + (
            "" if run.has_hashes() else "; the run has no hashes (kernelscope run --values hash)"
        )
    return "\n".join(lines) or "no call matches all of the given options together"


def _near(option: str, words: str, known: Sequence[str]) -> str:
    if "*" in words:
        return ""
    if option == "--kernel" and any(words in name for name in known):
        return f"; did you mean '*{words}*'?"
    return did_you_mean(words, known)


def _list(known: Sequence[str]) -> str:
    shown = [shortened(name, _WIDEST) for name in known[:_MOST]]
    more = f", … and {len(known) - _MOST} more" if len(known) > _MOST else ""
    return ", ".join(shown) + more or "none"
