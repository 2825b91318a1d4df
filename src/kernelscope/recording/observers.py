"""What observers of a recording implement: they see more of a launch than the recording keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from kernelscope.events import Call, GraphCall
from kernelscope.probes.launch import Launch
from kernelscope.probes.listener import GraphPlan, GraphReadings, Kept
from kernelscope.probes.python_wrappers.planned_source import When


class Observer(Protocol):
    """Wants more of each launch than a recording keeps: the live arguments, before and after."""

    def before(self, call: Call, launch: Launch) -> None: ...
    def after(self, call: Call, launch: Launch) -> None: ...


class InputObserver(Protocol):
    """Wants to see what each compiled graph is called with."""

    def graph_inputs(self, graph_call: GraphCall, inputs: Sequence[Any]) -> None: ...


class Late(Kept, Protocol):
    """Looks at what launches leave in place of a fingerprinter, and never waits for a device."""

    plans: When

    def before(self, call: Call, launch: Launch) -> None: ...
    def prepare(self, device: torch.device) -> None: ...
    def after(self, call: Call, launch: Launch) -> None: ...
    def captured(self, launch: Launch) -> None: ...
    def readings(self, calls: list[Call]) -> GraphReadings | None: ...
    def plan(self, readings: GraphReadings, flushes: Sequence[Sequence[int]]) -> GraphPlan | None: ...
    def poll(self) -> None: ...
