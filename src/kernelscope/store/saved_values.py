"""One saved tensor of a call, by the name of its argument. Needs no torch."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from kernelscope.errors import RunError

from .folder import TENSORS
from .tensors import SavedTensor, read_tensor

if TYPE_CHECKING:
    from kernelscope.model.call import KernelCall

MOMENTS = ("before", "after")


def value_of(call: KernelCall, name: str, moment: str = "") -> SavedTensor:
    """After the launch if that was saved, else before; `name` is the kernel's, or the generated code's."""
    if moment not in ("", *MOMENTS):
        raise ValueError(f"value({name!r}, {moment!r}): the moment is 'before' or 'after'")
    run: Any = call._run
    if not hasattr(run, "saved_tensors"):
        raise RunError(
            "tensors are kept in runs on disk: record(values='save', path=…) or kernelscope run --values save"
        )
    position = _position(call, name)
    files = run.saved_tensors(call.index)
    for each in (moment,) if moment else reversed(MOMENTS):
        if (position, each) in files:
            return read_tensor(run.path / TENSORS / files[position, each])
    when = f" {moment} its launch" if moment else ""
    why = (
        "it was uninitialised" if position in call._call.uninitialised and moment == "before" else
        "record with --values save" if not files else "it was not saved"
    )  # fmt: skip
    raise RunError(f"call {call.index}, {call.kernel_name}, has no saved {name}{when}: {why}")


def _position(call: KernelCall, name: str) -> int:
    for i, arg in enumerate(call.arguments):
        if arg.tensor is not None and name == arg.name:
            return i
    for i, arg in enumerate(call.arguments):
        if arg.tensor is not None and name == arg.wrapper_name:
            return i
    tensors = [arg.name for arg in call.arguments if arg.tensor is not None]
    near = get_close_matches(name, tensors, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise RunError(
        f"call {call.index}, {call.kernel_name}, has no tensor {name}: {hint}It has {', '.join(tensors)}"
    )
