"""What functions that generated C++ wrappers call do with their arguments: shims, C++ and Triton kernels."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast

import torch
from torch._ops import OpOverload, OpOverloadPacket

from kernelscope.probes.triton.kernel_signatures import cpp_arguments

from .cpp_text import arguments
from .instrumented_code import OPERATOR, VIEW, Described, Roles

_HEADERS = Path(torch.__file__).parent / "include" / "torch" / "csrc" / "inductor" / "aoti_torch"
_DECLARED = re.compile(r"\b(aoti_torch_\w+)\(([^()]*)\)\s*;")
_KERNEL = re.compile(r'extern\s+"C"\s+(?:__\w+\(\w*\)\s+)?void\s+(\w+)\s*\([^)]*\)\s*\{', re.DOTALL)
# The function that launches it; AOTInductor keeps the kernel's own text as a comment in it.
_TRITON = re.compile(r"\bvoid (call_\w+)\(([^{;]*?)\)\s*\{(?:\s*/\*(.*?)\*/)?", re.DOTALL)
# Shims whose operator cannot be told from their name.
_WRITTEN = {
    "aoti_torch_copy_": ("self",),
    "aoti_torch_zero_": ("self",),
    "aoti_torch_tensor_copy_": ("dst",),
    "aoti_torch_scatter_out": ("out",),
    "aoti_torch_scatter_reduce_out": ("out",),
    "aoti_torch_index_put_out": ("out",),
    "aoti_torch__mm_plus_mm_out": ("out",),
}


class Descriptions:
    """Of all that one wrapper may launch."""

    def __init__(self, code: str, kernel_code: str, extern_nodes: str | None) -> None:
        self._sources = kernel_sources(kernel_code or code)
        self._triton = {
            found[1]: (_parameter_names(found[2]), (found[3] or "").strip())
            for found in _TRITON.finditer(code + kernel_code)
        }
        self._nodes = _extern_nodes(extern_nodes)

    def __call__(self, name: str, given: Sequence[str]) -> Described | None:
        if name in self._sources:
            source = self._sources[name]
            return Described("cpp", [(n, role, "value") for n, role in cpp_arguments(source)], source=source)
        if name.startswith(OPERATOR):
            return described_operator(name.removeprefix(OPERATOR), len(given))
        if name.startswith("call_"):
            return self._triton_kernel(name)
        if name == "aoti_torch_proxy_executor_call_function":
            return self._by_proxy(given)
        return described_shim(name)

    def _triton_kernel(self, name: str) -> Described | None:
        if name not in self._triton:
            return None
        names, source = self._triton[name]
        args = [(n, _triton_role(n), "value") for n in names]
        return Described("triton", args, name=name.removeprefix("call_"), source=source)

    def _by_proxy(self, given: Sequence[str]) -> Described:
        index = int(given[1]) if len(given) > 1 and given[1].isdigit() else -1
        name = self._nodes[index] if 0 <= index < len(self._nodes) else "custom.operator.default"
        operator = _operator(name)
        if operator is not None and operator.is_view:
            return Described(VIEW, [])
        # The last of its arguments is a list of all tensors; those before are no arguments of the operator.
        args = [("", "scalar", "value")] * 5 + [("tensors", "inout", "list")]
        return Described("extern", args, (name.split(".")[-2] if "." in name else name,), name=name)


@lru_cache(maxsize=4096)
def described_shim(name: str) -> Described | None:
    parameters = _declarations().get(name)
    if parameters is None:
        return None
    operator = operator_of_shim(name)
    written = set(_WRITTEN.get(name, ()))
    if operator is not None:
        if operator.is_view:
            return Described(VIEW, [])
        infos = [(a.name, a.alias_info) for a in operator._schema.arguments]
        written |= {n for n, info in infos if info is not None and info.is_write}
    args = [(n, _shim_role(n, kind, written, operator), _form(n, kind)) for n, kind in parameters]
    aliases: tuple[str, ...] = ()
    if operator is not None:
        opname = operator._schema.name.split("::")[-1]
        aliases = (opname, f"extern_kernels.{opname}", str(operator))
    return Described("extern", args, aliases)


def described_operator(name: str, tensors: int) -> Described:
    """One that is called by its name, with this many tensors."""
    operator = _operator(name)
    if operator is not None and operator.is_view:
        return Described(VIEW, [])
    args = _tensor_arguments(operator, tensors) if operator is not None else None
    if args is None:
        role = "in" if operator is not None and not operator._schema.is_mutable else "inout"  # in doubt
        args = [(f"arg{i}", role, "value") for i in range(tensors)]
    return Described("extern", args)


def _tensor_arguments(operator: OpOverload, tensors: int) -> Roles | None:
    """Names and roles of the tensors that it is given, in their order; None where that cannot be told."""
    found: list[tuple[str, str, str]] = []
    takes = [(a, str(a.type)) for a in operator._schema.arguments if "Tensor" in str(a.type)]
    single = [a for a, kind in takes if kind == "Tensor"]
    others = len(takes) - len(single)
    if others > 1 or (others == 0 and len(single) != tensors):
        return None
    for argument, kind in takes:
        role = "inout" if argument.alias_info is not None and argument.alias_info.is_write else "in"
        if kind == "Tensor":
            found.append((argument.name, role, "value"))
            continue
        count = tensors - len(single)  # of a list; or one, or none
        if kind.startswith("List"):
            found += [(f"{argument.name}[{i}]", role, "value") for i in range(count)]
        elif count == 1:
            found.append((argument.name, role, "value"))
        elif count:
            return None
    return found if len(found) == tensors else None


def operator_of_shim(name: str) -> OpOverload | None:
    """`aoti_torch_cpu_addmm_out` is `aten.addmm.out`: the longest operator's name that fits."""
    rest = re.sub(r"^aoti_torch_(cpu_|cuda_|xpu_|mps_|aten_)?", "", name)
    words = rest.split("_")
    for cut in range(len(words), 0, -1):
        packet = getattr(torch.ops.aten, "_".join(words[:cut]), None) if "_".join(words[:cut]) else None
        overload = "_".join(words[cut:]) or "default"
        names: list[str] = cast(Any, packet).overloads() if isinstance(packet, OpOverloadPacket) else []
        if overload in names:
            found = getattr(packet, overload)
            return found if isinstance(found, OpOverload) else None
    return None


def kernel_sources(code: str) -> dict[str, str]:
    """The C++ kernels that a file defines, by name."""
    found = list(_KERNEL.finditer(code))
    ends = [each.start() for each in found[1:]] + [len(code)]
    sources = {}
    for each, end in zip(found, ends, strict=False):
        text = code[each.start() : end].rstrip()
        sources[each[1]] = text.rsplit("#include", 1)[0].rstrip() if "#include" in text else text
    return sources


@cache
def _declarations() -> dict[str, list[tuple[str, str]]]:
    """Names and types of the parameters of every C shim that this torch declares."""
    found = {}
    files = sorted(_HEADERS.glob("c/*.h")) + sorted(_HEADERS.glob("generated/*.h"))
    for file in files:
        for name, parameters in _DECLARED.findall(file.read_text(encoding="utf-8", errors="replace")):
            found[name] = [_parameter(each) for each in parameters.split(",") if each.strip()]
    return found


def _parameter(text: str) -> tuple[str, str]:
    words = " ".join(text.split())
    kind, name = re.fullmatch(r"(.*?[\s*])(\w+)(?:\[\])?", words).groups()  # type: ignore[union-attr]
    return name, kind.replace(" ", "")


def _form(name: str, kind: str) -> str:
    if kind == "AtenTensorHandle*":
        return "returns" if re.fullmatch(r"ret\w*", name) else "optional"
    if kind == "constAtenTensorHandle*":
        return "list"
    return "pointer" if kind.endswith("*") else "value"


def _shim_role(name: str, kind: str, written: set[str], operator: OpOverload | None) -> str:
    if "AtenTensorHandle" not in kind:
        return "scalar"
    if re.fullmatch(r"ret\w*", name):
        return "out"
    if name in written:
        is_out = operator is not None and any(a.name == name and a.is_out for a in operator._schema.arguments)
        return "out" if is_out or name.startswith("out") else "inout"
    return "out" if re.fullmatch(r"out\d*", name) else "in"


def _triton_role(name: str) -> str:
    if name.startswith(("in_out_ptr", "ws_ptr")):
        return "inout"
    if name.startswith("out_ptr"):
        return "out"
    return "in" if name.startswith("in_ptr") else "inout" if name.endswith("_ptr") else "scalar"


def _parameter_names(parameters: str) -> list[str]:
    declared = [each.partition("=")[0].strip() for each in arguments(f"{parameters})", 0)[0]]  # no default
    return [re.split(r"[\s*&]+", each)[-1] for each in declared if each]


def _extern_nodes(text: str | None) -> list[str]:
    """Names of the operators that AOTInductor's proxy executor runs, by their index."""
    if not text:
        return []
    nodes: list[dict[str, Any]] = json.loads(text).get("nodes", [])
    return [_operator_name(str(node.get("node", {}).get("target", ""))) for node in nodes]


def _operator_name(target: str) -> str:
    """`mylib::scale` or `torch.ops.mylib.scale.default` as `mylib.scale.default`."""
    words = target.removeprefix("torch.ops.").replace("::", ".").split(".")
    return ".".join(words if len(words) > 2 else [*words, "default"])


def _operator(name: str) -> OpOverload | None:
    found: Any = torch.ops
    for word in name.split("."):
        found = getattr(found, word, None)
    return found if isinstance(found, OpOverload) else None
