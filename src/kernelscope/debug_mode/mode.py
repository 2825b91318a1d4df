"""The class itself: flags, the listing, and the static context managers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any

import torch

from kernelscope.config import Config, Ops, stock_form_from_environment, strict_from_environment
from kernelscope.model.call import KernelCall
from kernelscope.model.kinds import CodeKernelCall
from kernelscope.model.run import Run
from kernelscope.probes.bus import BUS
from kernelscope.probes.eager.annotations import (
    FunctionCalls,
    ModuleCalls,
    Redistributions,
    annotate_in_graph,
    keep_annotations_in_graphs,
)
from kernelscope.probes.eager.aot_eager_regions import InterpretedRegions

from .entries import Entry
from .flags import Flags
from .listing import Listing
from .live_arguments import LaunchNotes
from .mismatches import hash_mismatches, refuse_other_structure
from .saved_logs import Place, load_logs, save_logs
from .settings import SETTINGS, HashFunction, Hook, Request, checked_hook, fingerprinter_for
from .stacks import innermost_user_line
from .stock_form import kernel_line, stock_hash
from .stock_names import hash_tensor_fn, norm_hash_fn

_STOCKS = {"norm": norm_hash_fn, "hash_tensor": hash_tensor_fn}


@dataclass(kw_only=True, eq=False, repr=False)
class DebugMode(Flags):
    """Lists everything that runs inside the block: kernels, operators, modules, ranges.

    record_torchfunction     functions of torch's Python API, above the operators they call
    record_faketensor        operators on fake tensors
    record_realtensor        eager operators; without it only compiled code and Triton kernels are listed
    record_tensor_attributes names of tensor attributes to show, such as ["requires_grad"]
    record_nn_module         `[nn.Mod]` where a module outside compiled code is entered
    store_original_args      keep the live arguments in `call.args`, and so their memory; those that a CUDA
                             graph owns are described instead
    record_stack_trace       the Python stack of each operator, and that of its forward in the backward pass
    record_output            what each operator returned
    record_ids               a number for each tensor: `t$0`
    record_profiler_context  `[record function]` where a profiler range is entered
    record_localtensor       operators on LocalTensors
    record_triton_kernels    generated and Triton kernels; without it only operators are listed
    stock_form               the form of torch's own listings, also of compiled code: see docs/debug_mode.md;
                             KERNELSCOPE_STOCK_FORM=1 in the environment makes it the default
    run_compile_with_interpreter  runs regions of the backend "aot_eager" node by node: each operator has its
                             line and, with record_nn_module, its module; kernels have their lines anyway

    Example:
        with DebugMode() as debug_mode, DebugMode.log_tensor_hashes():
            compiled(x)
        print(debug_mode.debug_string())
    """

    def __post_init__(self) -> None:
        self.record_tensor_attributes = _names(self.record_tensor_attributes)
        keep_annotations_in_graphs()
        self._open: ExitStack | None = None
        self._start_over()

    # -- opening and closing ---------------------------------------------------------------------------

    def __enter__(self) -> DebugMode:
        if self._open is not None:
            raise RuntimeError("this DebugMode is already open; use another one for the inner block")
        with ExitStack() as stack:
            if self.record_stack_trace:
                stack.enter_context(torch.autograd.set_detect_anomaly(True, check_nan=False))
            self._begin()
            stack.callback(self._end)
            # These outlive a reset(), which changes the listing.
            stack.enter_context(Redistributions(lambda: self._listing))
            if self.record_nn_module:
                stack.enter_context(
                    ModuleCalls(
                        lambda name: self._listing.enter_module(name), lambda: self._listing.leave_module()
                    )
                )
            if self.run_compile_with_interpreter:
                stack.enter_context(InterpretedRegions(lambda: self._listing))
            if self.record_torchfunction:
                stack.enter_context(FunctionCalls(lambda *call: self._listing.watch_function(*call)))
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened, self._open = self._open, None
        if opened is None:
            raise RuntimeError("this DebugMode is not open")
        opened.close()

    def _begin(self) -> None:
        self._listing.recording.open()
        BUS.bystanders = (*BUS.bystanders, self._listing)
        _OPEN.append(self)
        SETTINGS.listeners.append(self._follow_settings)
        self._follow_settings()

    def _end(self) -> None:
        SETTINGS.listeners.remove(self._follow_settings)
        _OPEN.remove(self)
        BUS.bystanders = tuple(b for b in BUS.bystanders if b is not self._listing)
        self._listing.close()
        self._listing.recording.close()

    def reset(self) -> None:
        """Forget everything listed so far; an open block goes on into an empty listing."""
        earlier, is_open = self._listing, self._open is not None
        self._start_over()
        if is_open:
            self._listing.recording.open()  # before the other closes, so that the probes stay where they are
            BUS.bystanders = tuple(self._listing if b is earlier else b for b in BUS.bystanders)
            earlier.recording.close()
            self._follow_settings()

    def _start_over(self) -> None:
        flags = Flags(**{each.name: getattr(self, each.name) for each in fields(Flags)})
        self._listing = Listing(flags, self._config())
        self._launch_notes = LaunchNotes(self._listing)
        self._listing.recording.observers.append(self._launch_notes)

    def _config(self) -> Config:
        kinds: tuple[str, ...] = () if self.record_triton_kernels else ("op", "extern")
        if self.stock_form:
            kinds = ("op", "triton") if self.record_triton_kernels else ("op",)
        if not self.record_realtensor:
            kinds = tuple(k for k in kinds or ("triton", "cpp", "extern", "gcu") if k != "op")
        ops: Ops = "all" if self.record_realtensor or self.record_faketensor else "graph"
        return Config(ops=ops, kind=kinds, verify="reread", strict=strict_from_environment())

    def _follow_settings(self) -> None:
        hashing = SETTINGS.hashing
        fingerprinter = hashing.fingerprinter if hashing is not None else None
        self._listing.recording.take_values_with(fingerprinter)

    # -- the listing -----------------------------------------------------------------------------------

    @property
    def run(self) -> Run:
        """What was recorded: calls, kernels, graphs, findings."""
        return self._listing.recording.run

    @property
    def operators(self) -> list[KernelCall | Entry]:
        """Calls in order, and between them modules, ranges and operators that launch nothing."""
        return list(self._listing.lines())

    @property
    def call_depth(self) -> int:
        """How many modules, ranges and functions are being executed now."""
        return self._listing.depth

    @property
    def logs(self) -> list[KernelCall | Entry]:
        return self.operators

    def debug_string(self, show_stack_trace: bool | None = None) -> str:
        """One line a call, indented by depth; with the user's lines above them, if shown."""
        show = self.record_stack_trace if show_stack_trace is None else show_stack_trace
        lines: list[str] = []
        previous = ""
        with torch._C.DisableTorchFunction():
            for entry in self.operators:
                indent = "  " * (entry.call_depth + 1)
                where = innermost_user_line(entry.fwd_stack_trace or entry.stack_trace) if show else ""
                if where and where != previous:
                    lines += [*([""] if lines else []), f"{indent}# {where}"]
                    previous = where
                lines.append(indent + self._line(entry))
        return "\n".join(lines)

    def _line(self, entry: KernelCall | Entry) -> str:
        attributes = self.record_tensor_attributes or ()
        if isinstance(entry, KernelCall):
            shows = entry.recorded.key in self._launch_notes.inputs_shown
            if self.stock_form and isinstance(entry, CodeKernelCall):
                text = f"[{entry.kind}] {entry.kernel_name}({entry.kwargs_str})"
                return kernel_line(entry, text, show_inputs=shows)
            return entry.line(attributes, show_inputs=shows)
        return entry.render(attributes)

    def __repr__(self) -> str:
        state = "open" if self._open is not None else "closed"
        return f"<DebugMode {state}, {len(self.run)} calls>"

    @staticmethod
    def _annotate(tag: Any) -> None:
        """Put an `[annotate]` line into every open listing, also where compiled code of aot_eager runs."""
        if torch.compiler.is_compiling():
            annotate_in_graph(str(tag))
            return
        for mode in list(_OPEN):
            mode._listing.annotate("annotate", tag)

    # -- for every DebugMode that is open, and those opened inside -------------------------------------

    @staticmethod
    def record_outputs() -> AbstractContextManager[None]:
        """Keep copies of what each call wrote in `call.record["output"]`: a list, or an operator's result."""
        return SETTINGS.requesting(Request(keep_outputs=True))

    @staticmethod
    def log_tensor_hashes(
        hash_fn: HashFunction | Sequence[HashFunction] = "norm", hash_inputs: bool = False
    ) -> AbstractContextManager[None]:
        """Hash every argument before and after each call; no device is waited for until a hash is read.

        hash_fn      "norm" (L1 in float64), "bits" (64 bits over the bytes), "hash_tensor" (stock's name,
                     "bits" here), a function of a tensor, or a list of these
        hash_inputs  also show the inputs' hashes in `debug_string()`
        """
        fingerprinter = fingerprinter_for(hash_fn)
        return SETTINGS.requesting(
            Request(
                fingerprinter=fingerprinter, stock_hash=stock_hash(hash_fn, _STOCKS), hash_inputs=hash_inputs
            )
        )

    @staticmethod
    def dispatch_hooks(
        record_hook: Hook | None = None, log_hook: Hook | None = None, pre_log_hook: Hook | None = None
    ) -> AbstractContextManager[None]:
        """Functions to call at every operator, eager or called by compiled code; each returns a dict or None.

        record_hook   (func, types, args, kwargs, result), its dict goes into `call.record`
        log_hook      the same, its dict goes into `call.log` and is shown in `debug_string()`
        pre_log_hook  (func, types, args, kwargs, call), called before the operator runs
        """
        return SETTINGS.requesting(
            Request(
                record_hook=checked_hook("record_hook", record_hook),
                log_hook=checked_hook("log_hook", log_hook),
                pre_log_hook=checked_hook("pre_log_hook", pre_log_hook),
            )
        )

    @staticmethod
    def save_logs(logs: Sequence[KernelCall | Entry], destination: Place) -> None:
        """Write a listing to a JSON file, to be compared in another process: texts and hashes, no tensors."""
        save_logs(logs, destination)

    @staticmethod
    def load_logs(source: Place) -> list[Entry]:
        """What `save_logs` wrote, for `check_hash_mismatches` and for reading."""
        return load_logs(source)

    @staticmethod
    def check_hash_mismatches(
        logs1: Sequence[KernelCall | Entry],
        logs2: Sequence[KernelCall | Entry],
        compare_inputs: bool = False,
        align: bool | None = None,
    ) -> list[dict[str, Any]]:
        """Where the hashes of two listings differ, in order; NaN equals NaN.

        Each dict has stock's keys (call_type, call, arg_name, pytree_path, hash1, hash2, rel_diff,
        is_input_hash) and `difference`, a sentence. A call that only one listing has is an
        entry too; with align=False it is a ValueError, as in stock's. That is the default with
        KERNELSCOPE_STOCK_FORM=1.
        """
        if align is None:
            align = not stock_form_from_environment()
        if not align:
            refuse_other_structure(logs1, logs2)
        return hash_mismatches(logs1, logs2, compare_inputs)


_OPEN: list[DebugMode] = []


def get_active_debug_mode() -> DebugMode | None:
    """The innermost open DebugMode."""
    return _OPEN[-1] if _OPEN else None


def _names(given: Sequence[str] | None) -> list[str]:
    names = list(given or ())
    if isinstance(given, str) or not all(isinstance(n, str) for n in names):
        raise TypeError(f"record_tensor_attributes takes a list of attribute names, not {given!r}")
    return names
