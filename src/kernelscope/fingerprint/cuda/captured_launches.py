"""Hashes of several tensors in one launch, inside a CUDA graph that is being captured."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelscope.fingerprint.torch_bits import address, quiet

from .engine import Layout
from .plans import is_known, parts_of_flush

TABLE_WORDS = 1 << 14  # of all tables of a graph: some 960 tensors that are not contiguous


class CapturedLaunches:
    """The kernels of planned hashes, with their tables at addresses that never change."""

    def __init__(self, tables: torch.Tensor) -> None:
        self.tables = tables
        self.writes = 0  # as a piece of the log counts them
        self._used = 0
        # A copy on a stream that is captured would be part of the graph.
        self._beside = torch.cuda.Stream(tables.device)  # type: ignore[no-untyped-call]
        self._beside.wait_stream(torch.cuda.current_stream(tables.device))

    def enqueue(self, tensors: Sequence[torch.Tensor], log: int) -> list[bool]:
        """Sums into consecutive entries from the address `log` on; which of them could be done."""
        layouts = [Layout(t.shape, t.stride(), t.element_size()) for t in tensors]
        known = [
            is_known(layout) and not (t.is_conj() or t.is_neg())
            for t, layout in zip(tensors, layouts, strict=True)
        ]
        wanted = [(i, i) for i, can in enumerate(known) if can]
        parts = list(parts_of_flush(wanted, layouts, {}))
        table = [number for part in parts for number in part.table]
        if self._used + len(table) > TABLE_WORDS:
            return [False] * len(tensors)
        at = self._copied(table)
        device = self.tables.device
        execution = log, torch.cuda.current_stream(device).cuda_stream, self
        addresses = [address(tensor) for tensor in tensors]
        with torch.cuda.device(device):
            for part in parts:
                part.bind(at, device.index)(execution, *addresses)
                at += 8 * len(part.table)
        return known

    def _copied(self, numbers: list[int]) -> int:
        """The address on the device where these are now."""
        place = self.tables.narrow(0, self._used, len(numbers))
        self._used += len(numbers)
        with quiet(), torch.cuda.stream(self._beside):
            place.copy_(torch.tensor(numbers, dtype=torch.int64, device="cpu"))  # waits
        return place.data_ptr()
