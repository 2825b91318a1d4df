"""A Choreo program that can be called."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from kernelscope.gcu import cache, toolchain, torch_mathematics
from kernelscope.gcu.choreo.cpp.function import FunctionCode
from kernelscope.gcu.choreo.cpp.to_cpp import Translation, translate
from kernelscope.gcu.lowering.dag import ELEMENT

VERSION = 1
_SCALARS: dict[str, Any] = {
    "int": ctypes.c_int, "bool": ctypes.c_bool, "float": ctypes.c_float, "double": ctypes.c_double,
    "f32": ctypes.c_float, "f64": ctypes.c_double, "s8": ctypes.c_int8, "u8": ctypes.c_uint8,
    "s16": ctypes.c_int16, "u16": ctypes.c_uint16, "s32": ctypes.c_int32, "u32": ctypes.c_uint32,
    "s64": ctypes.c_int64, "u64": ctypes.c_uint64,
}  # fmt: skip
_DTYPES = {element: dtype for dtype, element in ELEMENT.items() if dtype is not torch.bool}


class Program:
    """A loaded library, with the functions of one `.co` file.

    Example:
        program = load("debug_dir/kernel_6788ff95.co")
        program.call("kernel_6788ff95", x, y)
    """

    def __init__(self, translation: Translation, library: Path) -> None:
        self.translation = translation
        self.library = library
        self._lib = ctypes.CDLL(str(library))
        self._lib.choreo_failure.restype = ctypes.c_char_p
        self._entries: dict[str, Any] = {}

    @property
    def names(self) -> list[str]:
        return [f.name for f in self.translation.functions]

    def entry(self, name: str) -> Callable[..., int]:
        """The raw function: pointers, scalars, then symbolic dimensions; not 0 when it failed."""
        if name not in self._entries:
            code = self._function(name)
            entry = getattr(self._lib, f"choreo_{name}")
            kinds = [ctypes.c_void_p if a.dims is not None else _scalar(a.type, name) for a in code.arguments]
            entry.argtypes = [*kinds, *([ctypes.c_int64] * len(code.symbols))]
            entry.restype = ctypes.c_int
            self._entries[name] = entry
        found: Callable[..., int] = self._entries[name]
        return found

    def failure(self) -> str:
        """The message of the last failed call."""
        text = str(self._lib.choreo_failure().decode(errors="replace"))
        self._lib.choreo_clear()
        return text

    def call(self, name: str, *args: Any) -> torch.Tensor | None:
        """Run a function on tensors and numbers; what it returns is allocated here."""
        code = self._function(name)
        given = code.parameters
        if len(args) != len(given):
            raise TypeError(f"{name} takes {len(given)} arguments, not {len(args)}")
        bound, passed = _bind(code, given, args)
        result = None
        if len(given) < len(code.arguments):
            made = code.arguments[-1]
            for divisor, message in code.divisors:
                if _evaluate(divisor, bound) == 0:
                    raise RuntimeError(message)
            shape = [d if isinstance(d, int) else _evaluate(d, bound) for d in made.dims or ()]
            if min(shape, default=0) < 0:
                raise ValueError(f"{name}: a dimension of its result is below 0: {shape}")
            result = torch.empty(shape, dtype=_DTYPES[made.type], device="cpu")
            passed.append(result.data_ptr())
        if self.entry(name)(*passed, *(bound[s] for s in code.symbols)):
            raise RuntimeError(self.failure())
        return result

    def launch(self, name: str, *arguments: torch.Tensor | int) -> None:
        """Run a function on memory that is there already: tensors and numbers, in the order of `entry`."""
        if self.entry(name)(*(a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments)):
            raise RuntimeError(self.failure())

    def _function(self, name: str) -> FunctionCode:
        if name not in self.names:
            raise AttributeError(f"no function {name!r} in this program; it has {', '.join(self.names)}")
        return self.translation.function(name)


def _scalar(kind: str, name: str) -> Any:
    if kind not in _SCALARS:
        raise TypeError(f"{name}: a scalar {kind} cannot be passed from Python")
    return _SCALARS[kind]


def _bind(code: FunctionCode, given: Sequence[Any], args: Sequence[Any]) -> tuple[dict[str, int], list[Any]]:
    """Symbolic dimensions from the arguments' shapes, which must agree; and what is passed."""
    bound: dict[str, int] = {}
    passed: list[Any] = []
    for a, value in zip(given, args, strict=True):
        if a.dims is None:
            passed.append(value)
            if isinstance(value, int):  # what is returned may be as large as a number says
                bound.setdefault(a.name, value)
            continue
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{code.name}: {a.name} must be a tensor, not {type(value).__name__}")
        if value.dtype != _DTYPES[a.type] and not (value.dtype is torch.bool and a.type == "u8"):
            raise TypeError(f"{code.name}: {a.name} must be {_DTYPES[a.type]}, not {value.dtype}")
        if not value.is_contiguous() or value.device.type != "cpu":
            raise ValueError(f"{code.name}: {a.name} must be a contiguous CPU tensor")
        if len(value.shape) != len(a.dims):
            raise ValueError(f"{code.name}: {a.name} must have rank {len(a.dims)}, not {len(value.shape)}")
        for place, (dim, extent) in enumerate(zip(a.dims, value.shape, strict=True)):
            symbol = f"{a.name}_dim{place}" if dim == "?" else dim
            known = symbol if isinstance(symbol, int) else bound.setdefault(symbol, extent)
            if known != extent:
                raise ValueError(f"{code.name}: dimension {place} of {a.name} is {extent}, not {known}")
        passed.append(value.data_ptr())
    return bound, passed


def _evaluate(text: str, bound: dict[str, int]) -> int:
    """A dimension that is computed from others: numbers, names, + - * / % and quotients that round."""
    import ast

    rounded: dict[str, Callable[[int, int], int]] = {
        "cdiv_": lambda a, b: -(-a // b),
        "alignup_": lambda a, b: -(-a // b) * b,
        "aligndown_": lambda a, b: a // b * b,
    }

    def value(node: ast.AST) -> int:
        match node:
            case ast.Expression():
                return value(node.body)
            case ast.Constant() if isinstance(node.value, int):
                return node.value
            case ast.Name():
                return bound[node.id]
            case ast.BinOp():
                a, b = value(node.left), value(node.right)
                kinds: dict[type, Callable[[int, int], int]] = {
                    ast.Add: int.__add__,
                    ast.Sub: int.__sub__,
                    ast.Mult: int.__mul__,
                    ast.Div: lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
                    ast.Mod: lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1),  # towards 0, as in C++
                }
                return kinds[type(node.op)](a, b)
            case ast.Call(func=ast.Name(id=name), args=[first, second]) if name in rounded:
                return rounded[name](value(first), value(second))
        raise ValueError(f"cannot compute the dimension {text}")

    try:
        return value(ast.parse(text.replace("choreo::", ""), mode="eval"))
    except (SyntaxError, KeyError, ZeroDivisionError) as error:
        raise ValueError(f"cannot compute the dimension {text}: {error}") from None


def key_of(translation: Translation) -> str:
    """A hash of everything that decides what the library does."""
    text = f"{VERSION}\0{toolchain.identity()}\0{translation.cpp}"
    return hashlib.sha256(text.encode()).hexdigest()


def build_cached(translation: Translation) -> cache.Library:
    """The library of a program, from the cache or compiled."""

    def make(folder: Path) -> Path:
        source = folder / "kernel.cpp"
        source.write_text(translation.cpp, encoding="utf-8")
        return toolchain.build(source, folder / "kernel", beside_torch=True).library

    return cache.cached(key_of(translation), make)


def load(path: str | Path, *, checked: bool = True) -> Program:
    """Translate, compile and load a `.co` file; unless `checked`, its indices are trusted."""
    file = Path(path)
    text, in_blocks = file.read_text(encoding="utf-8"), torch_mathematics.has_blocks()
    translation = translate(text, str(file), checked=checked, located=True, in_blocks=in_blocks)
    return Program(translation, build_cached(translation).path)
