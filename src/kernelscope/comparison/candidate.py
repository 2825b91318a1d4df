"""The program that is compared with the reference: what each of its calls left, kept."""

from __future__ import annotations

from typing import Any

import torch

from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch
from kernelscope.probes.listener import Listener

from .flow.calls_and_values import Flow, Read, read_tensors
from .flow.kept_values import KeptValues


class CandidateRun(Listener):
    """Keeps every value of a run: launches of compiled code, and eager operators."""

    def __init__(self) -> None:
        self.flow = Flow()
        self.kept = KeptValues()
        self.failures: list[str] = []

    @property
    def wants_values(self) -> bool:
        return True

    def before(self, launch: Launch) -> Any:
        if launch.outer is not None:
            return None
        reads: list[Read] = []
        with BUS.mute(), torch.no_grad():
            for name, tensor in read_tensors(launch):
                if not self.flow.held.is_known(tensor):
                    value, whole = self.flow.add_leaf(tensor)
                    self.kept.add(value.number, whole)
                reads.append((name, self.flow.held.of(tensor)))
        return reads

    def after(self, launch: Launch, reads: list[Read]) -> None:
        if launch.error is not None:
            return
        with BUS.mute(), torch.no_grad():
            for call, written in self.flow.add_launch(launch, reads):
                for name, tensor in written:
                    value = self.flow.add_value(call, name, tensor)
                    self.kept.add(value.number, tensor)

    def finding(self, finding: Any) -> None:
        self.failures.append(str(finding.message))
