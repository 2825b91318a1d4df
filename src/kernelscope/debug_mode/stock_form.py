"""What stock's form of a listing has: hashes taken at once by stock's functions, and its kernel lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from kernelscope.fingerprint.fingerprinter import Fingerprinter
from kernelscope.fingerprint.user_functions import HashFailure, call
from kernelscope.model.call import KernelCall
from kernelscope.model.labels import map_tree
from kernelscope.probes.bus import BUS

HashOne = Callable[[torch.Tensor], Any]

_LEFT_OUT = ("empty", "profiler")  # names of operators whose values stock does not look at


def stock_hash(given: Any, named: Mapping[str, Callable[..., Any]]) -> HashOne:
    """A function from a tensor to its hash; `named` are stock's own."""
    if isinstance(given, list | tuple):
        functions = [stock_hash(each, named) for each in given]
        return lambda tensor: tuple(function(tensor) for function in functions)
    if isinstance(given, str) and given in named:
        return partial(named[given], use_scalar=True)
    return _bits if given == "bits" else lambda tensor: _of_a_user(given, tensor)


def _bits(tensor: torch.Tensor) -> object:
    fingerprinter = Fingerprinter(["bits"])
    [slot] = fingerprinter.take([tensor])
    return fingerprinter.read(slot)


def _of_a_user(function: HashOne, tensor: torch.Tensor) -> object:
    value = call(function, tensor)
    return value.item() if isinstance(value, torch.Tensor) else value


def hashes_before(hash_one: HashOne, func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """ "input_hash", where a tensor was passed."""
    if _is_left_out(func):
        return {}
    found = _tree(hash_one, (tuple(args), dict(kwargs)))
    return {"input_hash": found} if any(True for _ in leaves(found)) else {}


def hashes_after(hash_one: HashOne, func: Any, result: Any) -> dict[str, Any]:
    return {} if _is_left_out(func) else {"hash": _tree(hash_one, result)}


def copies(result: Any) -> Any:
    """What was returned, with copies of its tensors."""
    with BUS.mute(), torch.no_grad():
        return map_tree(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, result)


def _is_left_out(func: Any) -> bool:
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return True  # reading a value would end the capture
    return any(word in str(func) for word in _LEFT_OUT)


def _tree(hash_one: HashOne, value: Any) -> Any:
    def leaf(each: Any) -> Any:
        if not isinstance(each, torch.Tensor):
            return None
        try:
            return hash_one(each)
        except Exception as error:
            return HashFailure("hash", f"{type(error).__name__}: {error}")

    with BUS.mute(), torch.no_grad():
        return map_tree(leaf, value)


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The hashes of a nest with their paths, as stock writes them."""
    if isinstance(tree, dict):
        for key, inner in tree.items():
            yield from leaves(inner, f"{path}[{key!r}]")
    elif type(tree) in (list, tuple):
        for i, inner in enumerate(tree):
            yield from leaves(inner, f"{path}[{i}]")
    elif tree is not None:
        yield path, tree


def kernel_line(kernel: KernelCall, text: str, *, show_inputs: bool) -> str:
    """A Triton kernel as stock prints it: values in lines of their own, and an empty line after them."""
    names, indent = kernel.arg_names, "\n  " + "  " * kernel.call_depth
    lines = [text]
    for moment, hashes in (("pre", kernel.pre_hashes if show_inputs else {}), ("post", kernel.post_hashes)):
        if hashes:
            shown = ", ".join(f"{names[i]}: {value}" for i, value in hashes.items())
            lines.append(f"{indent}# {moment}-kernel hashes: {{{shown}}}")
    return "".join(lines) + "\n"
