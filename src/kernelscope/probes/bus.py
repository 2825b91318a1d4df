"""The path of every launch: from a probe to the recordings, and to the program's own code."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Any

import torch

from kernelscope.events import Arg, Finding, Graph, GraphCall, Phase, Site, SteadySite

from .describe import describe, returned_tensors
from .launch import Capture, Launch, LaunchPoint, Template
from .listener import Listener
from .notifier import Notifier, report
from .own_work import own_fault, torch_function_modes, unseen

NOT_WRITTEN = "not written"
_UNSEEN_CAPTURE = Capture()  # began before the first recording opened, or not by a class of torch
_INTO_UNSEEN = Finding(
    "unseen-cuda-graph",
    "kernels were captured into a CUDA graph whose capture began before the recording, or without "
    "torch.cuda.CUDAGraph; what its replays execute is not recorded",
)
_IN_A_BODY = Finding(
    "unseen-cuda-graph",
    "kernels in conditional nodes of a CUDA graph (torch.cond, torch.while_loop) are not recorded: only the "
    "GPU knows whether and how often they run",
)


def _is_in_backward() -> bool:
    return torch._C._current_autograd_node() is not None


class Bus(Notifier):
    """The one way from probes to recordings: probes emit here, and each open recording listens."""

    def phase(self) -> Phase:
        here = self.here
        # An optimizer may call a closure with forward and backward: LBFGS does, and so does Lightning.
        if here.optimizer and (here.in_graph or not (torch.is_grad_enabled() or _is_in_backward())):
            return "optimizer"
        if here.in_graph:
            return "backward" if here.backward else "forward"
        if here.callback_of is not None:
            return here.callback_of.phase
        if _is_in_backward():
            return "backward"
        return "forward" if torch.is_grad_enabled() else "other"

    def run(
        self,
        point: LaunchPoint,
        flat: Any,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Launch; every recording sees it before and after."""
        here = self.here
        try:
            if torch_function_modes():
                launch = unseen(self._begin, point, flat, func, args, kwargs)
            else:
                launch = self._begin(point, flat, func, args, kwargs)
        except Exception:
            self.finding(own_fault(f"reading the arguments of {point.site.kernel.name}"))
            return func(*args, **kwargs)
        here.launch = launch
        here.muted += point.is_leaf
        here.leaves += point.is_leaf
        try:
            launch.result = launch.func(*args, **kwargs)  # a listener may have replaced it
        except BaseException as error:
            launch.error = error
            raise
        finally:
            here.muted -= point.is_leaf
            here.leaves -= point.is_leaf
            here.launch = launch.outer
            try:
                if point.is_over is not None and launch.error is None:
                    self._goes_on(launch)
                elif torch_function_modes():
                    unseen(self._end, launch)
                else:
                    self._end(launch)
            except Exception:
                self.finding(own_fault(f"recording {point.site.kernel.name}"))
            launch.error = None  # with its traceback it would be a cycle that keeps the arguments alive
        return launch.result

    def _goes_on(self, launch: Launch) -> None:
        """A collective in place has begun; what it writes is there when its work is done."""
        for listener, call in launch.calls.items():
            if call is not None:
                listener.begun(call)
        self.under_way.append(launch)

    def settle(self, flat: Sequence[Any] = (), read: Sequence[Any] | None = None) -> None:
        """End the collectives whose work is done, and those whose results are about to be used."""
        used = flat if read is None else read
        self.end(lambda launch: launch not in self.awaited and _is_over(launch, flat, used))

    def end(self, is_one: Callable[[Launch], bool]) -> None:
        """End these of the collectives that are under way."""
        for launch in list(self.under_way):
            try:
                is_over = is_one(launch)
            except Exception:
                self.finding(own_fault(f"asking whether {launch.site.kernel.name} has ended"))
                is_over = True
            if is_over and self._takes(launch):
                self._end(launch)

    def give_up(self, listener: Listener) -> None:
        """A recording is about to close: of collectives that still go on it keeps what they read."""
        self.settle()
        for launch in self.under_way:
            call = launch.calls.pop(listener, None)
            if call is not None:
                launch.error = RuntimeError("it had not ended when the recording closed")
                listener.after(launch, call)
                launch.error = None

    def _takes(self, launch: Launch) -> bool:
        try:
            self.under_way.remove(launch)
        except ValueError:  # another thread was faster
            return False
        return True

    def graph_call(self, graph: Graph, phase: Phase, stream: int, inputs: Sequence[Any] = ()) -> int:
        """A compiled graph starts to execute, with these inputs."""
        if self.under_way:
            self.settle(inputs)
        call = GraphCall(next(self._graph_calls), graph, threading.get_ident(), stream, phase)
        for listener in self.listeners:
            try:
                listener.graph_call(call, inputs)
            except Exception:
                report(listener, own_fault("recording a graph call"))
        return call.index

    def _begin(self, point: LaunchPoint, flat: Any, func: Any, args: Any, kwargs: Any) -> Launch:
        if self.under_way:
            self.settle(flat, self._read_by(point, flat))
        here, launch = self.here, Launch()
        launch.point, launch.flat, launch.func, launch.args, launch.kwargs = point, flat, func, args, kwargs
        launch.site = point.site
        launch.result, launch.error, launch.returned = None, None, []
        launch.outer = here.launch
        launch.graph_call = here.graph_call
        launch.phase = self.phase()
        launch.start_ns = kwargs["started_ns"] if point.is_past else monotonic_ns()
        launch.stream, captured = _stream(point, kwargs) if point.cuda_index >= 0 else (0, False)
        launch.captured = (self.capture or _UNSEEN_CAPTURE) if captured else None
        listeners = self.listeners  # read before `accepts_compact`, see `attach`
        if self.accepts_compact and point.steady is not None:
            launch.is_tracked, launch.storages, launch.uninitialised = False, [], point.steady.uninitialised
            launch.storage_ids = launch.epochs = launch.offsets = ()
        else:
            launch.is_tracked = True
            self._look_at_tensors(launch, point, flat)
        launch.calls = {}
        for listener in listeners:
            try:
                launch.calls[listener] = listener.before(launch)
            except Exception:
                report(listener, own_fault(f"recording {point.site.kernel.name}"))
        return launch

    def _read_by(self, point: LaunchPoint, flat: Any) -> list[Any]:
        """What a launch reads; waiting for a work of gloo's may copy its result into place by an operator."""
        tensors = ((i, flat[i]) for i in point.tensors)
        return [
            t for i, t in tensors if i not in point.written or self.storages.is_live(t, self.storages.of(t))
        ]

    def _look_at_tensors(self, launch: Launch, point: LaunchPoint, flat: Any) -> None:
        """A recorded launch spends most of its time here, so one loop does all there is to do."""
        found, ids, epochs, offsets, uninitialised = [], [], [], [], []
        known, storages = self.storages.known, self.storages
        for i in point.tensors:
            tensor = flat[i]
            storage = known(tensor.untyped_storage()._cdata) or storages.of(tensor)
            found.append(storage)
            ids.append(storage.id)
            epochs.append(storage.epoch)
            offsets.append(tensor.storage_offset())
            if storage.uninitialised and not storages.is_live(
                tensor, storage, reading=i not in point.written
            ):
                uninitialised.append(i)
        launch.storages = found
        launch.storage_ids, launch.epochs, launch.offsets = tuple(ids), tuple(epochs), tuple(offsets)
        launch.uninitialised = tuple(uninitialised)

    def _end(self, launch: Launch) -> None:
        try:
            self._complete(launch)
        except Exception:
            self.finding(own_fault(f"completing {launch.site.kernel.name}"))
        for listener, call in launch.calls.items():
            if call is None:
                continue
            try:
                listener.after(launch, call)
            except Exception:
                report(listener, own_fault(f"recording {launch.site.kernel.name}"))
        if launch.captured is not None and launch.error is None:
            self._captured(launch, launch.captured)

    def _captured(self, launch: Launch, capture: Capture) -> None:
        if capture is _UNSEEN_CAPTURE:
            self.finding(_INTO_UNSEEN)
        elif capture.bodies:
            self.finding(_IN_A_BODY)
        elif capture is self.capture:
            capture.templates.append(Template(launch))

    def _complete(self, launch: Launch) -> None:
        point = launch.point
        self.here.opaque += point.is_opaque  # whether or not a recording wants the launch
        if launch.is_tracked:
            for i, position in point.outputs:
                self.storages.wrote(launch.flat[i], launch.storages[position])
                if point.is_pending:
                    self.storages.born(launch.flat[i], under_way=True)
        if launch.error is not None:
            return
        seal, point.seal = point.seal, None
        if seal is not None:
            point.site = seal(point.site, launch)
        launch.site = self._with_returns(launch) if point.returns else point.site
        if point.is_wrappers and point.is_static and point.steady is None and launch.is_tracked:
            point.steady = SteadySite(launch.site, launch.uninitialised)

    def _with_returns(self, launch: Launch) -> Site:
        point = launch.point
        if id(launch.result) in map(id, launch.flat):  # out=, or in place
            return point.site
        given = {id(value) for value in launch.flat}
        named = [(n, t) for n, t in returned_tensors(launch.result, point.return_names) if id(t) not in given]
        launch.returned = [tensor for _, tensor in named]
        site = self._site_returning(launch, named)
        if not launch.is_tracked:
            return site
        for arg, tensor in zip(site.args[len(point.site.args) :], launch.returned, strict=True):
            if arg.tensor is None or not arg.tensor.unread:
                storage = self.storages.of(tensor)
                self.storages.wrote(tensor, storage)  # it may be a part of memory that was given
                launch.storages.append(storage)
            elif arg.tensor.unread == NOT_WRITTEN:
                pending = point.is_pending
                self.storages.born(tensor, under_way=pending, left_uninitialised=not pending)
        return site

    def _site_returning(self, launch: Launch, named: list[tuple[str, torch.Tensor]]) -> Site:
        point = launch.point
        if point.is_static and point.sealed:
            return next(iter(point.sealed.values()))
        uninitialised = point.uninitialised_returns(launch) if point.uninitialised_returns else ()
        returns = tuple(
            Arg(name, "out", describe(t, unread=NOT_WRITTEN if name in uninitialised else ""), returned=True)
            for name, t in named
        )
        if returns not in point.sealed:
            point.sealed[returns] = point.site.with_returns(next(self.site_ids), returns)
        return point.sealed[returns]


def _is_over(launch: Launch, flat: Sequence[Any], read: Sequence[Any]) -> bool:
    assert launch.point.is_over is not None
    if launch.point.is_over(launch):
        return True
    # The program has waited for the work before it uses what that wrote; some of gloo's never says that it
    # is over. On a GPU its stream waits, so that what we enqueue comes after the work too.
    on_gpu = launch.point.cuda_index >= 0
    used = {t.untyped_storage()._cdata for t in (flat if on_gpu else read) if isinstance(t, torch.Tensor)}
    held = launch.point.tensors if on_gpu else launch.point.written
    return any(launch.flat[i].untyped_storage()._cdata in used for i in held)


def _stream(point: LaunchPoint, kwargs: dict[str, Any]) -> tuple[int, bool]:
    stream = kwargs.get("stream")
    if not isinstance(stream, int):
        stream = torch._C._cuda_getCurrentRawStream(point.cuda_index)
    return stream, torch._C._cuda_isCurrentStreamCapturing()


BUS = Bus()
