"""CUDA graphs: launches seen during capture are templates, and each replay emits a call for every one."""

from __future__ import annotations

import importlib.util
import weakref
from contextlib import nullcontext
from typing import Any

import torch

from kernelscope.events import CAPTURE_BEGINS, CAPTURE_ENDS, READ_REPLAY, REPLAY_RANGE, UNSEEN_REPLAY, Finding
from kernelscope.probes.bus import BUS
from kernelscope.probes.eager.profilers import range_if_profiled
from kernelscope.probes.launch import Capture
from kernelscope.probes.listener import Listener
from kernelscope.probes.origins import caller_frames
from kernelscope.probes.own_work import own_fault
from kernelscope.probes.patching import Patch, PatchSet

from .garbage import GarbageWaits
from .graph_nodes import NodesUnread, captured_before
from .tree_graphs import drop_tree_graphs, tree_graphs

_GRAPHS = ["torch.cuda:CUDAGraph"]
if importlib.util.find_spec("torch.accelerator.graphs") is not None:  # which makes its graphs without that
    _GRAPHS.append("torch.accelerator.graphs:Graph")


class CudaGraphs(PatchSet):
    """The probe for capture and replay."""

    def __init__(self) -> None:
        around = {
            "capture_begin": self._around_begin,
            "capture_end": self._around_end,
            "replay": self._around_replay,
        }
        bodies = {
            "begin_capture_to_if_node": self._around_body,
            "begin_capture_to_while_node": self._around_body,
            "end_capture_to_conditional_node": self._around_end_of_body,
        }
        held = {name: make for name, make in bodies.items() if hasattr(torch.cuda.CUDAGraph, name)}
        super().__init__(
            *(Patch(f"{kind}.{name}", make) for kind in _GRAPHS for name, make in around.items()),
            *(Patch(f"{_GRAPHS[0]}.{name}", make) for name, make in held.items()),
        )
        self._captures: weakref.WeakKeyDictionary[Any, Capture] = weakref.WeakKeyDictionary()
        self._garbage = GarbageWaits()
        self._before: weakref.WeakKeyDictionary[Any, tuple[Capture | None, str]] = weakref.WeakKeyDictionary()

    def install(self) -> None:
        super().install()
        BUS.after_detach = self._drop_graphs_of

    def remove(self) -> None:
        BUS.after_detach = None
        super().remove()
        BUS.capturing(None)
        self._garbage.end_all()
        self._captures.clear()
        self._before.clear()

    def _around_begin(self, original: Any) -> Any:
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            capture = self._captures[graph] = Capture()
            with BUS.mute():
                BUS.capturing(capture)
            self._garbage.begin(graph)
            try:
                with range_if_profiled(f"{CAPTURE_BEGINS}{capture.number}"):
                    result = original(graph, *args, **kwargs)
            except BaseException:
                BUS.capturing(None)
                self._garbage.end(graph)
                raise
            for listener, kept in list(capture.kept.items()):
                try:
                    with BUS.mute():
                        kept.begin()
                except Exception:
                    del capture.kept[listener]
                    listener.finding(own_fault("preparing a CUDA graph, whose calls will have no hashes"))
            if capture.kept:
                # The captured kernels write there as long as the graph lives, also without a recording.
                weakref.finalize(graph, _free, capture.kept, capture.left).atexit = False
            return result

        return capture_begin

    def _around_end(self, original: Any) -> Any:
        def capture_end(graph: Any) -> Any:
            capture = self._captures.get(graph)
            for listener, kept in list(capture.kept.items()) if capture is not None else ():
                try:
                    with BUS.mute():
                        kept.end()
                except Exception:
                    listener.finding(own_fault("completing a CUDA graph, some of whose hashes are missing"))
            BUS.capturing(None)
            try:
                with range_if_profiled(f"{CAPTURE_ENDS}{capture.number if capture is not None else -1}"):
                    return original(graph)
            finally:
                self._garbage.end(graph)

        return capture_end

    def _around_body(self, original: Any) -> Any:
        def begin_capture_to_node(graph: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(graph, *args, **kwargs)
            if (capture := self._captures.get(graph)) is not None:
                capture.bodies += 1
            return result

        return begin_capture_to_node

    def _around_end_of_body(self, original: Any) -> Any:
        def end_capture_to_node(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if (capture := self._captures.get(graph)) is not None and capture.bodies:
                capture.bodies -= 1
            return original(graph, *args, **kwargs)

        return end_capture_to_node

    def _around_replay(self, original: Any) -> Any:
        here = BUS.here

        def replay(graph: Any) -> Any:
            with self._range_of_replay(graph) if BUS.profiler else nullcontext():
                result = original(graph)
            if not here.muted:
                here.muted += 1
                try:
                    self._emit(graph)
                except Exception:
                    BUS.finding(own_fault("recording the replay of a CUDA graph"))
                finally:
                    here.muted -= 1
            return result

        return replay

    def _range_of_replay(self, graph: Any) -> Any:
        capture = self._captures.get(graph)
        if capture is not None:
            return range_if_profiled(f"{REPLAY_RANGE}{capture.number}")
        with BUS.mute():  # now, so that this replay's kernels are told from those of an unread graph
            read = self._of_before(graph)[0]
        return range_if_profiled(UNSEEN_REPLAY if read is None else f"{READ_REPLAY}{read.nodes}")

    def _emit(self, graph: Any) -> None:
        capture = self._captures.get(graph)
        if capture is not None:
            BUS.replayed(capture)
            return
        capture, why = self._of_before(graph)
        name, advice = _in_words(graph)
        if capture is not None:
            seen = "its calls have names and grids, and no arguments"
            BUS.replayed(capture)
        else:
            seen = f"its kernels are not recorded ({why})"
        BUS.finding(
            Finding(
                "unseen-cuda-graph",
                f"a CUDA graph {name} was captured before the recording opened; {seen}. {advice}",
            )
        )

    def _of_before(self, graph: Any) -> tuple[Capture | None, str]:
        """The nodes of a graph that was captured before, or why they cannot be read."""
        if graph not in self._before:
            try:
                self._before[graph] = captured_before(graph), ""
            except NodesUnread as why:
                self._before[graph] = None, str(why)
            except Exception:
                BUS.finding(own_fault("reading the nodes of a CUDA graph"))
                self._before[graph] = None, "its nodes could not be read"
        return self._before[graph]

    def _drop_graphs_of(self, listener: Listener) -> None:
        """Drop torch.compile's graphs that a closing recording captured: they would go on fingerprinting."""
        marked = {graph for graph, capture in self._captures.items() if listener in capture.kept}
        try:
            if marked:
                self._drop(marked, listener)
        finally:
            for capture in self._captures.values():
                capture.leave(listener)
            for read, _ in self._before.values():
                if read is not None:
                    read.leave(listener)

    def _drop(self, marked: set[Any], listener: Listener) -> None:
        of_torch = tree_graphs()
        drop_tree_graphs(lambda graph: graph in marked)
        stay = [
            capture
            for graph in marked
            if (capture := self._captures[graph]).templates
            and graph not in of_torch
            and capture.kept[listener].nbytes
        ]
        if stay:
            size = sum(capture.kept[listener].nbytes for capture in stay)
            graphs = "a CUDA graph" if len(stay) == 1 else f"{len(stay)} CUDA graphs"
            listener.finding(
                Finding(
                    "fingerprints-stay",
                    f"{graphs} captured inside the recording will take fingerprints at every replay, and "
                    f"keep {size / 1e6:.1f} MB of GPU memory; to stop that, capture again after it",
                )
            )


def _in_words(graph: Any) -> tuple[str, str]:
    """Which graph it is, and what to do about it."""
    if (name := tree_graphs().get(graph)) is not None:
        return f"of torch.compile, {name},", "Use record(recapture=True) to record them."
    frames = caller_frames()
    place = f"replayed at {frames[0].file}:{frames[0].line}" if frames else "of the program's own"
    return place, "Capture it inside the recording, or list its kernels with audit=True (--audit)."


def capturing_device() -> torch.device:
    """The device on which a CUDA graph is captured now."""
    return torch.device("cuda", torch._C._cuda_getDevice())


# The handle of the current stream of a GPU, by its index. Called at each launch, so without a wrapper.
current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
current_device: Any = getattr(torch._C, "_cuda_getDevice", None)


def _free(kept: dict[Listener, Any], left: list[Any]) -> None:
    """The graph is gone."""
    kept.clear()
    left.clear()
