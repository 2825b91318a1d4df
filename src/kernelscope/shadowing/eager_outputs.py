"""Puts eager's result in the place of what a kernel wrote."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..fingerprint.hashes import quiet
from ..probes.launch import Launch
from ..values.kernel_filter import KernelFilter
from .launch_check import LaunchCheck, Pending, part_of
from .opening import listening
from .result import ShadowResult
from .session import Session
from .slices import shaped
from .units import Output


class EagerOutputs(LaunchCheck):
    """Judges nothing: what eager gives for the nodes of a kernel is written over the kernel's result."""

    def __init__(self, result: ShadowResult, wanted: KernelFilter) -> None:
        super().__init__(result, offload=False)
        self._wanted = wanted
        self.poisons = False
        self.replaced = 0
        self.failures: list[str] = []

    def wants(self, launch: Launch, pending: Pending) -> bool:
        return self._wanted.wants(launch.site.kernel, launch.site.device)

    def before(self, index: int, launch: Launch, *rest: Any) -> Pending:
        pending = super().before(index, launch, *rest)
        if self.wants(launch, pending) and pending.eager is None and not pending.unit.given:
            self._cannot(launch, "what its FX nodes give cannot be told for this launch")
        return pending

    def _judge_output(self, launch: Launch, pending: Pending, output: Output, made: Any) -> None:
        if not self.wants(launch, pending) or pending.eager is None:
            return
        eager = part_of(pending.eager, output)
        if not isinstance(made, torch.Tensor) or not isinstance(eager, torch.Tensor):
            self._cannot(launch, f"{output.argument} is not a tensor")
            return
        if made.numel() != eager.numel() or made.dtype != eager.dtype:
            self._cannot(launch, f"{output.argument} does not hold what its FX node gives")
            return
        target = shaped(made, output.held or output.node, pending.execution.symbols)
        with quiet():
            target.copy_(eager.reshape(target.shape))
        if target.untyped_storage()._cdata != made.untyped_storage()._cdata:
            self._cannot(launch, f"{output.argument} is laid out in another way than its FX node")
            return
        self.replaced += 1
        for storage in launch.storages:
            storage.epoch += 1  # so that whoever records values reads them again

    def _cannot(self, launch: Launch, why: str) -> None:
        message = f"{launch.site.kernel.name}: {why}"
        if message not in self.failures:
            self.failures.append(message)


@contextmanager
def eager_outputs(wanted: KernelFilter) -> Iterator[EagerOutputs]:
    """Inside the block; what was compiled before is compiled again, because only lowering knows the nodes."""
    result = ShadowResult()
    outputs = EagerOutputs(result, wanted)
    with listening(Session(result, launches=outputs)):
        yield outputs
    for message in [*wanted.complaints(), *result.unshadowed]:
        print(f"kernelscope: {message}", file=sys.stderr)
    if outputs.failures:
        raise RuntimeError(f"not replaced by eager's result: {outputs.failures[0]}")
