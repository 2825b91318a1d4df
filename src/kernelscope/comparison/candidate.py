"""The program that is compared with the reference: what each of its calls left, kept."""

from __future__ import annotations

from typing import Any

import torch

from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch
from kernelscope.probes.listener import Listener

from .flow import Flow, read_tensors, written_tensors
from .kept_values import KeptValues


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
        reads: list[int] = []
        with BUS.mute(), torch.no_grad():
            for tensor in read_tensors(launch):
                if not self.flow.is_known(tensor):
                    value, whole = self.flow.add_leaf(tensor)
                    self.kept.add(value.number, whole)
                reads += self.flow.held(tensor)
        return reads

    def after(self, launch: Launch, reads: list[int]) -> None:
        if launch.error is not None:
            return
        with BUS.mute(), torch.no_grad():
            call = self.flow.add_call(launch, reads)
            for name, tensor in written_tensors(launch):
                value = self.flow.add_value(call, name, tensor)
                self.kept.add(value.number, tensor)

    def finding(self, finding: Any) -> None:
        self.failures.append(str(finding.message))
