"""Kernels that get addresses of tensors (CUTLASS): the tensors are variables of the wrapper."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernelscope.generated_code.calls import ArgText, Callsite

_AS_WRITTEN = "kernelscope_as_written"
Launch = Callable[..., Any]


def tensor_behind(text: ArgText) -> str:
    """The variable in `c_void_p(buf0.data_ptr())`; empty for anything else."""
    match text.node:
        case ast.Call(args=[ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="data_ptr"))]):
            return name
    return ""


def with_tensors(callsite: Callsite) -> Callsite:
    """The same call as if it were given the tensors."""
    return replace(callsite, args=tuple(map(_without_address, callsite.args)))


def _without_address(text: ArgText) -> ArgText:
    name = tensor_behind(text)
    return ArgText(name, False, node=ast.Name(name)) if name else text


def given_tensors(callsite: Callsite, launch: Launch) -> Launch:
    """Called by the wrapper with addresses; calls `launch` with the tensors, and with what was written."""
    variables = [tensor_behind(text) for text in callsite.args]

    def hook(*args: Any, **kwargs: Any) -> Any:
        held = sys._getframe(1).f_locals  # of the wrapper's function
        tensors = [held.get(name, arg) for name, arg in zip(variables, args, strict=False)]
        return launch(*tensors, *args[len(tensors) :], **kwargs, **{_AS_WRITTEN: args})

    return hook


def launched_as_written(target: Launch) -> Launch:
    """What `launch` launches in the end."""

    def launch(*_: Any, **kwargs: Any) -> Any:
        args = kwargs.pop(_AS_WRITTEN)
        return target(*args, **kwargs)

    return launch
