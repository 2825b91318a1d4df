"""Calls of kinds that users ask for by class: Triton kernels and operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kernelscope.events import Call

from .call import KernelCall
from .call_facts import RunOfCall
from .collectives import is_wait
from .debug_notes import OperatorNotes
from .labels import arguments_text, call_text, map_tree, output_text, settings_text


class CodeKernelCall(KernelCall):
    """A launch of a kernel with source code of its own: Triton, C++ or gcu, generated or user-written."""

    __slots__ = ()

    @property
    def kwargs_str(self) -> str:
        """The arguments as stock's DebugMode writes those of a Triton kernel."""
        return ", ".join(f"{n}={self._shown(i, ())}" for i, n in enumerate(self.arg_names))


class TritonKernelCall(CodeKernelCall):
    """A launch of a Triton kernel."""

    __slots__ = ()


class OperatorCall(KernelCall):
    """One eager operator. With DebugMode's notes `args` and `kwargs` are what was passed, as in stock's.

    `arg_names`, roles and hashes stay those of the flat list, in which a list of tensors is opened.
    """

    __slots__ = ()

    @property
    def notes(self) -> OperatorNotes | None:
        return self._notes.operator

    @property
    def is_stock_form(self) -> bool:
        """Whether it is as in torch's own DebugMode: `log` is all that there is of its values."""
        return self._notes.is_stock_form

    @property
    def args(self) -> tuple[Any, ...]:
        notes = self.notes
        if notes is None:
            return super().args
        self._refuse_described("args", notes)
        return notes.args if notes.original_args is None else notes.original_args

    @property
    def kwargs(self) -> dict[str, Any]:
        notes = self.notes
        if notes is None:
            return super().kwargs
        self._refuse_described("kwargs", notes)
        return notes.kwargs if notes.original_args is None else notes.original_kwargs

    @property
    def args_str(self) -> str:
        return "" if self.notes is None else arguments_text(self.notes.args)

    @property
    def kwargs_str(self) -> str:
        return "" if self.notes is None else settings_text(self.notes.kwargs)

    @property
    def output_str(self) -> str | None:
        """What it returned, None where nothing was kept."""
        return None if self.notes is None else output_text(self.notes.output) or None

    @property
    def log(self) -> Any:
        """Hashes nested as what was passed and what was returned. In stock's form None where nothing is."""
        if self._notes.is_stock_form:
            return self._notes.log or None
        logged, notes = super().log, self.notes
        if notes is None or self.recorded.post is None:
            return logged
        before, after = self.pre_hashes, self.post_hashes
        passed = _at(notes.input_places, before)
        if notes.output_places is not None:
            found = {"hash": _at(notes.output_places, after | self._awaited(after))}
        else:
            found = {"hash": logged["hash"]}  # it returns nothing: of what it wrote
        if _holds_places(notes.input_places):
            found = {"input_hash": passed} | found
        return {k: v for k, v in logged.items() if k != "input_hash" and k not in found} | found

    @property
    def record(self) -> Any:
        return self._notes.record or None if self._notes.is_stock_form else self._notes.record

    def _awaited(self, known: dict[int, Any]) -> dict[int, Any]:
        """Hashes of what an asynchronous collective returned, once the program has waited for it."""
        begun = {place: i for i, place in self.begun_storages.items() if i not in known}
        if not begun:
            return {}
        found: dict[int, Any] = {}
        for call in self.run.calls[self.index + 1 :]:
            if is_wait(call.kernel_name) and call.storages:
                storage, _, offset = call.storages[0]
                i = begun.pop((storage, offset), None)
                if i is not None and 0 in call.post_hashes:
                    found[i] = call.post_hashes[0]
            if not begun:
                break
        return found

    def _refuse_described(self, what: str, notes: OperatorNotes) -> None:
        if self._notes.is_stock_form and notes.original_args is None:
            raise AttributeError(
                f"in stock's form a call has {what}_str instead of {what}; use store_original_args=True"
            )

    def render(self, attributes: Sequence[str] = ()) -> str:
        return self.line(attributes)

    def _call_text(self, attributes: Sequence[str]) -> str:
        notes = self.notes
        if notes is None:
            return super()._call_text(attributes)
        return call_text(notes.name, notes.args, notes.kwargs, attributes) + output_text(
            notes.output, attributes
        )

    def __iter__(self) -> Iterator[Any]:
        """As stock's entries: operator, args, kwargs, depth."""
        if self._notes.is_stock_form and self.notes is not None and self.notes.original_args is None:
            yield from (self.op, self.args_str, self.kwargs_str, self.call_depth)
        else:
            yield from (self.op, self.args, self.kwargs, self.call_depth)


def _at(places: Any, hashes: dict[int, Any]) -> Any:
    return map_tree(lambda i: None if i is None else hashes.get(i), places)


def _holds_places(tree: Any) -> bool:
    if isinstance(tree, dict):
        return any(map(_holds_places, tree.values()))
    return any(map(_holds_places, tree)) if isinstance(tree, list | tuple) else tree is not None


_CLASSES: dict[str, type[KernelCall]] = {
    "triton": TritonKernelCall,
    "cpp": CodeKernelCall,
    "gcu": CodeKernelCall,
    "op": OperatorCall,
}


def view_of(run: RunOfCall, call: Call) -> KernelCall:
    return _CLASSES.get(call.site.kernel.kind, KernelCall)(run, call)
