"""A wrapper module and its three codes: all launches hooked, or noted, or noted and fingerprinted."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import CodeType, FunctionType
from typing import Any, TypeAlias

import torch

from kernelscope.events import COMPACT_CALL
from kernelscope.generated_code.kernels import GeneratedKernel
from kernelscope.generated_code.syntax import uncollected
from kernelscope.generated_code.wrapper import Wrapper
from kernelscope.probes.bus import BUS
from kernelscope.probes.listener import Planner
from kernelscope.probes.own_work import own_fault

from . import hooked_source
from .graph_plans import PreparedPlan, prepare
from .hooked_source import Codes, Hook, bind, hooked
from .multi_kernels import unhook_kernel
from .wrapper_calls import is_birth, is_launch, lookup
from .wrapper_launches import WrapperLaunches

# A block that does more than choose a device.
_SWITCHES = re.compile(r"^\s+(async )?with (?!torch\.\w+\.(_DeviceGuard|device)\()", re.MULTILINE)
_Aliases: TypeAlias = tuple[tuple[int, int], ...]


class HookedWrapper:
    """One wrapper module while its launches are watched."""

    def __init__(
        self,
        namespace: dict[str, Any],
        text: Wrapper,
        codes: Codes,
        launches: WrapperLaunches,
        *,
        optimizes: bool,
        is_cuda: bool,
    ) -> None:
        self.namespace = namespace
        self.aot_name = text.aot_name
        self.optimizes = optimizes  # it is the step of a torch optimizer, compiled
        self.is_cuda = is_cuda
        self._text = text
        self._codes = codes
        self._launches = launches
        self._originals: list[tuple[FunctionType, CodeType]] = []
        self._hooks: dict[str, Any] = {}
        self._in_full: Codes = {}
        self._in_use: Codes = {}
        self._notes: dict[bool, Codes] = {}  # by whether the ends of launches are reported
        self._plan: PreparedPlan | None = None
        self._as_planned: Codes = {}
        self._planner: Planner | None = None  # that made the plan, or could not make one
        self._aliases: _Aliases | None = None  # which inputs shared memory when it was planned
        self.settled: object = None  # what was wanted when it got its code, if that stays as it is until then
        self.sub_kernels: list[Any] = []
        self.owner: Any = self  # that stands for the module
        self.apart: dict[tuple[str, int], FunctionType] = {}  # instead of the module's own functions

    @cached_property
    def is_on_one_stream(self) -> bool:
        """Whether it enqueues everything on the stream that it was called on."""
        return not _SWITCHES.search(self._text.source)

    def hook(self) -> None:
        self._originals = [(function, function.__code__) for function in functions_in(self.namespace)]
        self._make_hooks()

    def hook_apart(self, originals: list[tuple[FunctionType, CodeType]]) -> None:
        """For one set of sizes: with copies of the functions, so that the module's own can choose one."""
        for function, code in originals:
            copy = FunctionType(
                code, self.namespace, function.__name__, function.__defaults__, function.__closure__
            )
            copy.__kwdefaults__ = function.__kwdefaults__
            self.apart[code.co_qualname, code.co_firstlineno] = copy
            self._originals.append((copy, code))
        self._make_hooks()

    def _make_hooks(self) -> None:
        self._hooks = {c.hook: Hook(self._launches.hook(c)) for c in self._text.callsites}
        self._in_full = bind(self._codes, self._hooks)
        self.sub_kernels = self._launches.sub_kernels
        self._use(self._in_full)

    def follow(self, ended: int = -1) -> None:
        """Use the code that the recordings need now; `ended` is the graph call that has just ended."""
        wanted, self.settled = BUS.wanted, None
        planner, is_known = BUS.planner, self._launches.is_static and self._launches.is_complete
        if planner is not self._planner:
            self._plan, self._planner = None, None
        if is_known and BUS.accepts_compact:
            ends = BUS.notes_have_ends
            if ends not in self._notes:
                self._notes[ends] = self._with_notes(ends)
            self._use(self._notes[ends])
            self.settled = wanted
            return
        if is_known and planner is not None and self._planner is None and ended >= 0:
            self._planner = planner
            self._plan = self._planned(planner, ended)
        self._use(self._as_planned if self._plan is not None else self._in_full)
        if planner is self._planner is not None and not (
            self._plan and self._depends_on_aliasing(self._plan)
        ):
            self.settled = wanted

    def look_at(self, inputs: Any) -> None:
        """A plan holds for as long as the inputs share memory in the way they did when it was made."""
        planner, plan = BUS.planner, self._plan
        if planner is None or (
            planner is self._planner and (plan is None or not self._depends_on_aliasing(plan))
        ):
            return
        memories, aliases = self._memories_now(inputs)
        if plan is None:
            self._aliases = aliases
        elif aliases is None or aliases != self._aliases:
            self._plan = None
            self._use(self._in_full)
        elif plan.writes_inputs:
            BUS.storages.touch(memories)

    @staticmethod
    def _memories_now(inputs: Any) -> tuple[list[int], _Aliases | None]:
        try:
            memories = _memories(inputs)
            return memories, _aliases(memories, inputs)
        except (NotImplementedError, RuntimeError):  # a sparse tensor has no storage
            return [], None
        except Exception:
            BUS.finding(own_fault("looking at the inputs of a graph"))
            return [], None

    def _depends_on_aliasing(self, plan: PreparedPlan) -> bool:
        """Whether a plan would be wrong if inputs shared memory in another way."""
        return plan.writes_inputs or (
            self._aliases is not None and any(first != i for i, (first, _) in enumerate(self._aliases))
        )

    def _with_notes(self, ends: bool) -> Codes:
        notable = self._launches.notable()
        numbers = {seen.note: BUS.number(seen.steady) for seen in notable.values()}
        how = frozenset(notable), ends
        _, codes = _read(self._text.source, self.namespace, births=False, notes=how)
        return bind(codes, self._hooks | _noted_with() | numbers)

    def _planned(self, planner: Planner, graph_call: int) -> PreparedPlan | None:
        notable = self._launches.notable()
        if len(notable) != self._launches.count or self._aliases is None:
            return None
        path = str(self.namespace.get("__file__", "<wrapper>"))
        plan = prepare(planner, graph_call, notable, self._text.source, path)
        if plan is not None:
            self._as_planned = bind(plan.codes, _noted_with() | plan.constants)
        return plan

    def _use(self, codes: Codes) -> None:
        if codes is not self._in_use:
            self._in_use = codes
            for function, original in self._originals:
                function.__code__ = codes.get((original.co_qualname, original.co_firstlineno), original)

    def line_in(self, error: BaseException) -> int:
        """The line of this wrapper that an exception came from."""
        frames = traceback.walk_tb(error.__traceback__)
        lines = [line for frame, line in frames if frame.f_globals is self.namespace]
        return lines[-1] if lines else 0

    def restore(self) -> None:
        for function, code in self._originals:
            function.__code__ = code
        for kernel in self.sub_kernels:
            unhook_kernel(kernel)


def _noted_with() -> dict[str, Any]:
    return {
        hooked_source.BUS: BUS,
        hooked_source.HERE: BUS.here,
        hooked_source.TIME: time,
        hooked_source.COMPACT_CALL: COMPACT_CALL,
    }


def _memories(inputs: Any) -> list[int]:
    """The address of each input's storage; of what has none, a number that no other input has."""
    return [
        value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else ~i
        for i, value in enumerate(inputs)
    ]


def _aliases(memories: list[int], inputs: Any) -> _Aliases | None:
    """For each input the first one in the same memory, and the distance; None where that may change.

    Nothing where each has memory of its own. It is asked for at each call of a graph.
    """
    if BUS.storages.any_uninitialised(memories):
        return None
    if len(set(memories)) == len(memories):
        return ()
    firsts: dict[int, int] = {}
    found = []
    for i, memory in enumerate(memories):
        first = firsts.setdefault(memory, i)
        distance = 0 if first == i else inputs[i].storage_offset() - inputs[first].storage_offset()
        found.append((first, int(distance)))
    return tuple(found)


_Notes: TypeAlias = tuple[frozenset[str], bool]  # hooks that are noted, and whether their ends are reported
_NONE: _Notes = frozenset(), False
KNOWN_WRAPPERS: dict[
    tuple[str, bool, _Notes], tuple[Wrapper, Codes]
] = {}  # a long one takes a second to read
_WRAPPERS_AT_MOST = 256


def read_with_births(source: str, namespace: dict[str, Any]) -> tuple[Wrapper, Codes]:
    """A wrapper, and its code with launches and allocations hooked."""
    return _read(source, namespace, births=True)


def _read(
    source: str, namespace: dict[str, Any], *, births: bool, notes: _Notes = _NONE
) -> tuple[Wrapper, Codes]:
    path = str(namespace.get("__file__", "<wrapper>"))
    key = path, births, notes
    known = KNOWN_WRAPPERS.get(key)
    if known is not None and known[0].source == source:
        return known

    def choose(called: str, kernels: Mapping[str, GeneratedKernel]) -> bool:
        return is_launch(called, namespace, kernels) and (
            births or not is_birth(called, lookup(called, namespace))
        )

    noted, ends = notes
    with uncollected():
        wrapper = Wrapper(source, path, choose)
        codes = hooked(wrapper, path, noted, ends=ends)
    while len(KNOWN_WRAPPERS) >= _WRAPPERS_AT_MOST:
        del KNOWN_WRAPPERS[next(iter(KNOWN_WRAPPERS))]
    KNOWN_WRAPPERS[key] = wrapper, codes
    return wrapper, codes


def functions_in(namespace: dict[str, Any]) -> Iterator[FunctionType]:
    for value in list(namespace.values()):
        if isinstance(value, FunctionType) and value.__globals__ is namespace:
            yield value
        elif isinstance(value, type) and value.__module__ == namespace.get("__name__"):
            yield from (m for m in vars(value).values() if isinstance(m, FunctionType))
