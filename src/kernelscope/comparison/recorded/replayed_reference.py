"""The reference, from its record: its operators run again, on the values of the other run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelscope.analysis.alignment.calls_by_position import Reader
from kernelscope.analysis.sharding.part import Part, outputs
from kernelscope.comparison.api import observed
from kernelscope.comparison.flow.calls_and_values import Call, Flow, Read
from kernelscope.comparison.matching import Matching
from kernelscope.comparison.reference import ReferenceRun
from kernelscope.model.call import KernelCall
from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch

from .recorded_digits import digits_of, rounding_of_dtypes
from .recorded_operators import NotRunnable, named_arguments, operator_of
from .recorded_program import float_specs
from .saved_memory import SavedMemory


class RecordedFlow(Flow):
    """A flow whose calls have the lines and the flags that were recorded."""

    def __init__(self, flags: Reader) -> None:
        super().__init__()
        self._flags = flags
        self.now: KernelCall | None = None  # what is being run again

    def append(self, call: Call) -> Call:
        if self.now is not None:
            specs = float_specs(self.now)
            call.phase, call.origin, call.number = self.now.phase, self.now.stack, self.now.index
            call.digits = digits_of(self.now.kernel_name, specs, self._flags.switches(self.now))
            call.eps = max(rounding_of_dtypes(specs), call.digits)
        return super().append(call)


class ReplayedReference(ReferenceRun):
    """Runs each operator of a recorded program once more."""

    def __init__(self, matching: Matching, part: Part, flags: Reader) -> None:
        super().__init__(matching)
        self.flow: RecordedFlow = RecordedFlow(flags)
        calls = [call for call in part.all_calls if not call.error]
        outer = {call.parent for call in calls}
        self._calls = calls
        self._outer = {call.index for call in calls if call.index in outer}
        self._memory = SavedMemory(part, calls)
        self.not_run: list[tuple[KernelCall, str]] = []

    @property
    def missing_devices(self) -> set[str]:
        return self._memory.devices

    def replay(self) -> None:
        done: set[int] = set()  # what these call inside is theirs
        with observed(self, compiled=False):
            for call in self._calls:
                if call.parent in done:
                    done.add(call.index)
                    continue
                why = self._run(call)
                if not why:
                    done.add(call.index)
                elif call.index not in self._outer:  # else what it calls inside is run
                    self.not_run.append((call, why))
                    self._take(call)
                self._memory.is_over(call)

    def _run(self, call: KernelCall) -> str:
        """Why it could not be run; "" if it was."""
        try:
            operator = operator_of(call)
            with BUS.mute(), torch.no_grad():
                given = named_arguments(
                    operator, call, lambda i: self._memory.tensor(call, i), self._memory.device
                )
            self.flow.now, count = call, len(self.draws_not_found)
            made = operator(**given)
        except NotRunnable as error:
            return str(error)
        except RuntimeError as error:
            return str(error).partition("\n")[0]
        finally:
            self.flow.now = None
        with BUS.mute(), torch.no_grad():
            returned = [i for i in outputs(call) if call.arguments[i].returned]
            tensors = [each for each in tree_leaves(made) if isinstance(each, torch.Tensor)]
            for i, tensor in zip(returned, tensors, strict=False):
                self._memory.adopt(call, i, _laid_out(tensor, call.arguments[i].tensor))
            if len(self.draws_not_found) > count:  # the other run does not have them: its own then
                self._take(call)
        return ""

    def _take(self, call: KernelCall) -> None:
        """What it left, as it was recorded."""
        with BUS.mute(), torch.no_grad():
            for i in outputs(call):
                if i in call.storages:
                    tensor = self._memory.write(call, i)
                    self.replicas.set(tensor, tensor, 0.0)

    def before(self, launch: Launch) -> Any:
        if self.flow.now is None:
            return None
        launch.phase = self.flow.now.phase  # type: ignore[assignment]
        launch.uninitialised = self.flow.now.uninitialised
        return super().before(launch)

    def after(self, launch: Launch, reads: list[Read]) -> None:
        if self.flow.now is not None:
            super().after(launch, reads)


def _laid_out(tensor: torch.Tensor, spec: Any) -> torch.Tensor:
    """The library of another machine may lay a result out in another way."""
    if (tuple(tensor.shape), tensor.stride()) == (spec.shape, spec.stride):
        return tensor
    raise NotRunnable(f"its result has strides {tensor.stride()}, and had {spec.stride} in the recorded run")


def compiled_calls(calls: Iterable[KernelCall]) -> list[KernelCall]:
    return [call for call in calls if call.kind != "op" and call.parent is None]
