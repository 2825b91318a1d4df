"""Names and roles of a generated kernel's arguments, from what its maker is given."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from kernelscope.events import Finding, Role
from kernelscope.generated_code.kernels import GeneratedKernel, parsed
from kernelscope.probes.bus import BUS
from kernelscope.probes.triton.kernel_signatures import cpp_arguments, cpp_parameters

Signature = tuple[tuple[str, Role], ...]
_NOT_ARGUMENTS = {"stream"}  # what the launcher gets by name
# Parameters of the libraries that templates call, which those write to: a template's names do not tell.
_WRITTEN_BY = {"out", "output", "lse", "dq", "dk", "dv", "workspace"}
_SCALARS = re.compile(r"ks\d+|[xyzr]\d*_?numel|\w+_offset")
_METAL = re.compile(r"kernel\s+void\s+(?P<name>\w+)\s*\((?P<params>.*?)\)\s*\{", re.DOTALL)


def arguments_of(kernel: GeneratedKernel) -> Signature | None:
    """None for a maker that is not known; empty where its text has no signature of the known form."""
    read = READERS.get(kernel.maker)
    return None if read is None else read(kernel)


def known_arguments(kernel: GeneratedKernel) -> Signature:
    """The same, where a finding reports a maker that is not known."""
    names = arguments_of(kernel)
    if names is None:
        BUS.finding(
            Finding(
                "unknown-maker",
                f"kernels of {kernel.maker} are recorded without the names of their arguments, and each "
                "tensor counts as read and written: kernelscope does not know this kind of kernel",
            )
        )
    return names or ()


def takes_addresses(maker: str) -> bool:
    """Whether the wrapper passes addresses of tensors instead of tensors."""
    return maker in ("cutlass", "cuda", "xpu", "rocm")


def _python_main(kernel: GeneratedKernel) -> Signature:
    """The entry point `{name}_main(…)` of a kernel that is itself a Python module."""
    found = [
        node
        for node in parsed(kernel.source).body
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_main")
    ]
    exact = [node for node in found if node.name == f"{kernel.name}_main"]
    entry = next(iter(exact or found), None)
    if entry is None:
        return ()
    names = [a.arg for a in entry.args.args if a.arg not in _NOT_ARGUMENTS]
    written = set(_written(entry, set(names)))
    return tuple((name, _python_role(name, written)) for name in names)


def _python_role(name: str, written: set[str]) -> Role:
    if _SCALARS.fullmatch(name):
        return "scalar"
    if name.startswith("in_out_ptr"):
        return "inout"
    if name.startswith("out_ptr") or name in ("output", "workspace"):
        return "out"
    return "inout" if name in written else "in"


def _written(entry: ast.FunctionDef, names: set[str]) -> Iterator[str]:
    """Parameters that are handed on, themselves or as a view, as something that is written to."""
    meant = {name: name for name in names}  # by variable: the parameter whose memory it is
    for node in ast.walk(entry):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if source := _root(value):
                meant[target] = meant.get(source, source)
            case ast.Call(func=ast.Attribute(value=held, attr=attr)) if attr.endswith("_") and attr[0] != "_":
                yield meant.get(_root(held), "")  # x.copy_(…)
    for node in ast.walk(entry):
        if isinstance(node, ast.keyword) and node.arg in _WRITTEN_BY:
            yield meant.get(_root(node.value), "")


def _root(value: ast.expr) -> str:
    """The variable that an expression is a view of: x of `x.transpose(1, 2)`."""
    while isinstance(value, ast.Call | ast.Attribute | ast.Subscript):
        value = value.func if isinstance(value, ast.Call) else value.value
    return value.id if isinstance(value, ast.Name) else ""


def _exported(kernel: GeneratedKernel) -> Signature:
    """The C function of a library that is called with addresses: `int {name}(const T* X, …, stream)`."""
    name = re.escape(kernel.name)
    found = re.search(rf"\b(?:int|void)\s+{name}\s*\((?P<params>[^)]*)\)", kernel.source)
    return cpp_parameters(found["params"], kernel.source) if found else ()


def _halide(kernel: GeneratedKernel) -> Signature:
    """The list of `HalideInputSpec(ctype=…, name=…, alias_of=…)` in the maker's first argument."""
    found: list[tuple[str, Role]] = []
    for node in ast.walk(parsed(kernel.about)):
        if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "HalideInputSpec"):
            continue
        given = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
        given |= {
            name: arg.value
            for name, arg in zip(("ctype", "name"), node.args, strict=False)
            if isinstance(arg, ast.Constant)
        }
        if given.get("alias_of") is not None:  # the same memory under another shape: it is not passed
            continue
        name = str(given.get("name", ""))
        is_pointer = str(given.get("ctype", "")).endswith("*")
        found.append((name, _python_role(name, set()) if is_pointer else "scalar"))
    return tuple(found)


def _metal(kernel: GeneratedKernel) -> Signature:
    """The parameters of `kernel void {name}(device T* out_ptr0, constant T* in_ptr0, …)`."""
    found = _METAL.search(kernel.source)
    if found is None:
        return ()
    params = [" ".join(p.split()) for p in found["params"].split(",")]
    return tuple(_metal_argument(p) for p in params if p and "[[" not in p)


def _metal_argument(param: str) -> tuple[str, Role]:
    name = re.split(r"[\s*&]+", param)[-1]
    if "*" not in param:
        return name, "scalar"
    if param.startswith(("constant ", "const ")):
        return name, "in"
    return name, "inout" if name.startswith("in_out_ptr") else "out"


READERS: dict[str, Callable[[GeneratedKernel], Signature]] = {
    "cpp": lambda kernel: cpp_arguments(kernel.source),
    "cpp_pybinding": lambda kernel: cpp_arguments(kernel.source),
    "cutlass": _exported,
    "cuda": _exported,
    "xpu": _exported,
    "rocm": _exported,
    "halide": _halide,
    "cutedsl": _python_main,
    "flydsl": _python_main,
    "pallas": _python_main,
    "nv_universal_gemm": _python_main,
    "metal": _metal,
}
