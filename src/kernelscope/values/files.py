"""Saves what each launch finds and leaves: one file for each tensor, moment and call, never overwritten."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from kernelscope.errors import RunError
from kernelscope.events import Call, Finding, GraphCall
from kernelscope.fingerprint import why_not
from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.private_files import FOLDER, make_folder, open_private
from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch
from kernelscope.text.file_names import file_name

from .argument_snapshots import LaunchViewer, seen
from .graph_inputs import named_inputs
from .kernel_filter import KernelFilter


class ValueFiles:
    """A folder of tensors that `torch.load(…, weights_only=True)` reads; it must be new, or empty."""

    def __init__(self, folder: Path, budget: int, finding: Callable[[Finding], None]) -> None:
        self.folder = folder
        self._budget = budget
        self._finding = finding
        self._reported: set[str] = set()
        try:
            make_folder(folder, exist_ok=True)
            if any(folder.iterdir()):
                raise RunError(f"{folder} is not empty, and no file is overwritten; name a new folder")
            (folder / ".probe").touch()
            (folder / ".probe").unlink()
        except OSError as error:
            raise RunError(f"values cannot be saved to {folder}: {error.strerror}") from None

    def save(self, part: str, name: str, tensor: torch.Tensor) -> Path | None:
        """`part` is a folder below ours. What cannot be saved is reported once, and the program goes on."""
        with BUS.mute(), quiet():
            copy = tensor.detach().resolve_conj().resolve_neg().cpu().clone()
        self._budget -= copy.nbytes
        if self._budget < 0:
            self._report(f"{self.folder} has reached the limit (--max-tensors); nothing more is saved")
            return None
        path = self.folder / part / f"{file_name(name, keep=':+')}_{tensor.device}.pt"
        try:
            path.parent.mkdir(FOLDER, exist_ok=True)
            path = _unused(path)
            with open_private(path, "xb") as file, BUS.mute(), quiet():
                torch.save(copy, file)
        except OSError as error:
            self._report(f"values cannot be saved to {path}: {error.strerror}")
            return None
        return path

    def _report(self, message: str) -> None:
        if message not in self._reported:
            self._reported.add(message)
            print(f"kernelscope: {message}", file=sys.stderr)
            self._finding(Finding("values-not-saved", message))


class FileSaver(LaunchViewer):
    """The observer that saves everything it sees. Uninitialised contents are left out."""

    def __init__(self, files: ValueFiles, wanted: KernelFilter) -> None:
        super().__init__(wanted)
        self._files = files

    def graph_inputs(self, graph_call: GraphCall, inputs: Sequence[Any]) -> None:
        for name, value in named_inputs(graph_call, inputs):
            if isinstance(value, torch.Tensor) and why_not(value) is None:
                self._files.save(f"graph_{graph_call.index}", f"aoti_model_inputs_{name}", value)

    def _show(self, call: Call, launch: Launch, moment: str) -> None:
        for one in seen(call, launch, moment):
            if one.tensor is not None:
                name = f"{moment}_{call.site.kernel.name}_{one.name}"
                self._files.save(str(call.index), name, one.tensor)


def _unused(path: Path) -> Path:
    """A launch may be given two views of one buffer, which have one name."""
    number, chosen = 2, path
    while chosen.exists():
        chosen = path.with_name(f"{path.stem}.{number}{path.suffix}")
        number += 1
    return chosen
