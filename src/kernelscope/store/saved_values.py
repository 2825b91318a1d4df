"""One saved tensor of a call, by the name of its argument. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from kernelscope.errors import RunError
from kernelscope.model.call_facts import CallFacts

from .tensors import SavedTensor, read_tensor

MOMENTS = ("before", "after")


def value_of(
    call: CallFacts, name: str, moment: str, tensors: Path, files: Mapping[tuple[int, str], str]
) -> SavedTensor:
    """After the launch if that was saved, else before; `name` is the kernel's, or the generated code's."""
    position = _position(call, name)
    for each in (moment,) if moment else reversed(MOMENTS):
        if (position, each) in files:
            return read_tensor(tensors / files[position, each])
    when = f" {moment} its launch" if moment else ""
    why = (
        "it was uninitialised" if position in call.uninitialised and moment == "before" else
        "record with --values save" if not files else "it was not saved"
    )  # fmt: skip
    raise RunError(f"call {call.index}, {call.kernel_name}, has no saved {name}{when}: {why}")


def _position(call: CallFacts, name: str) -> int:
    for i, arg in enumerate(call.arguments):
        if arg.tensor is not None and name == arg.name:
            return i
    for i, arg in enumerate(call.arguments):
        if arg.tensor is not None and name == arg.wrapper_name:
            return i
    tensors = [arg.name for arg in call.arguments if arg.tensor is not None]
    near = get_close_matches(name, tensors, 1)
    hint = f"did you mean {near[0]}? It" if near else "it"
    raise RunError(
        f"call {call.index}, {call.kernel_name}, has no tensor {name}: {hint} has {', '.join(tensors)}"
    )
