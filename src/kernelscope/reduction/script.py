"""A reduced graph as a script of stock torch."""

from __future__ import annotations

import platform
import re
from typing import Any

import torch
from torch.fx import GraphModule

from kernelscope.probes.compilation.compile_settings import changed_settings
from kernelscope.repro.script_parts import (
    Script,
    docstring,
    draws_by_seed,
    ending,
    laid_out,
    rule,
    settings,
    tables,
)
from kernelscope.store.tensors import SavedTensor
from kernelscope.text.amounts import counted

from .candidates import Candidate, copied
from .reducer import Reduction

_FEW = 64  # elements that are written into the script itself
_FREED = re.compile(r";  [\w\s=]+ = None$")
_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
    torch.bool: "BOOL",
}  # fmt: skip
_OURS = ("aten", "prims", "inductor", "quantized", "mkldnn", "higher_order")


def reduced_script(reduction: Reduction, name: str = "reduced") -> Script:
    candidate, notes = reduction.candidate, list(reduction.notes)
    names = [n.name for n in candidate.module.graph.nodes if n.op == "placeholder"]
    values = dict(zip(names, candidate.inputs, strict=True))
    tensors: dict[str, SavedTensor] = {}
    given = {n: _given(n, v, tensors) for n, v in values.items() if isinstance(v, torch.Tensor)}
    changed = _changed(candidate, names)
    for each in changed:
        given[each]["role"] = "inout"
    others = {n: v for n, v in values.items() if not isinstance(v, torch.Tensor)}
    bodies = {n: v for n, v in others.items() if isinstance(v, GraphModule)}
    leaves = [n for n, v in values.items() if isinstance(v, torch.Tensor) and v.requires_grad]
    foreign = sorted(_foreign(candidate.module))
    if foreign:
        notes.append(f"it needs {', '.join(foreign)}: import what registers it at the top of the script")
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    what = f"The smallest graph that fails: {reduction.nodes} of {counted(reduction.nodes_before, 'node')}.\n"
    blocks = [
        docstring(f"{what}\n{reduction.failure}".replace('"""', "'''").replace("\\", "/"), versions),
        *settings(changed_settings().get("torch._inductor.config", {}), notes),
        rule("the graph"),
        f"def graph({', '.join(names)}):",
        *[f"    {line}" for line in _body(candidate.code)],
        *[_class(f"Body_of_{n}", body) for n, body in bodies.items()],
        f"SIZES = {_dictionary({n: v for n, v in others.items() if n not in bodies}, bodies)}",
        *_running(leaves, changed, dynamic=candidate.dynamic),
        *tables(given, {}, notes),
        *ending("eager", draws=draws_by_seed(candidate.code)),
    ]
    return Script(name, laid_out(blocks), tensors, notes)


def _dictionary(numbers: dict[str, Any], bodies: dict[str, GraphModule]) -> str:
    made = {n: repr(v) for n, v in numbers.items()} | {n: f"Body_of_{n}()" for n in bodies}
    return "{" + ", ".join(f"{n!r}: {text}" for n, text in made.items()) + "}"


def _class(name: str, module: GraphModule) -> str:
    """A branch or the body of a loop, with its own bodies and constants."""
    nodes = module.graph.nodes
    own = {str(n.target): getattr(module, str(n.target)) for n in nodes if n.op == "get_attr"}
    inner = {n: _class(f"Body_of_{n}", v) for n, v in own.items() if isinstance(v, GraphModule)}
    held = [f"self.{n} = {f'Body_of_{n}()' if n in inner else _constant(v)}" for n, v in own.items()]
    lines = [
        *[line for text in inner.values() for line in text.splitlines()],
        f"class {name}(torch.nn.Module):",
        *(["    def __init__(self):", "        super().__init__()"] if held else []),
        *[f"        {line}" for line in held],
        *[f"    {_FREED.sub('', line)}" for line in str(module.code).strip().splitlines() if line.strip()],
    ]
    return "\n".join(lines)


def _constant(value: torch.Tensor) -> str:
    return f"torch.tensor({value.tolist()!r}, dtype={value.dtype}, device={str(value.device)!r})"


def _body(code: str) -> list[str]:
    lines = [_FREED.sub("", line.strip()) for line in code.splitlines()[1:] if line.strip()]
    result = lines[-1].removeprefix("return ")
    return [*lines[:-1], f"return {{f'result_{{i}}': value for i, value in enumerate({result})}}"]


def _running(leaves: list[str], changed: list[str], *, dynamic: bool) -> list[str]:
    """How it is run; what it leaves in inputs that it writes to is a result too."""
    how = ", dynamic=True" if dynamic else ""
    after = f" | {{f'{{n}} after': given[n].detach() for n in {changed!r}}}" if changed else ""
    if not leaves:
        return [
            f"compiled = torch.compile(graph{how})",
            *(
                f"def {name}(**given):\n    with torch.no_grad():\n"
                f"        return {function}(**given, **SIZES){after}"
                for name, function in (("eager", "graph"), ("launch", "compiled"))
            ),
        ]
    return [
        f"LEAVES = {leaves!r}",
        "def differentiated(function, given):\n"
        "    given = {n: v.detach().requires_grad_() if n in LEAVES else v for n, v in given.items()}\n"
        "    made = function(**given, **SIZES)\n"
        "    wanted = [v for v in made.values() if v.requires_grad]\n"
        "    leaves = [given[n] for n in LEAVES]\n"
        "    ones = [torch.ones_like(v) for v in wanted]\n"
        "    found = torch.autograd.grad(wanted, leaves, ones, allow_unused=True)\n"
        "    gradients = {f'gradient of {n}': g for n, g in zip(LEAVES, found) if g is not None}\n"
        f"    return {{n: v.detach() for n, v in made.items()}} | gradients{after}",
        f"compiled = torch.compile(graph{how})",
        "def eager(**given):\n    return differentiated(graph, given)",
        "def launch(**given):\n    return differentiated(compiled, given)",
    ]


def _changed(candidate: Candidate, names: list[str]) -> list[str]:
    """The inputs that the graph writes to: a part of a graph may begin after a buffer was created."""
    inputs = [copied(v) for v in candidate.inputs]
    try:
        with torch.no_grad():
            candidate.module.forward(*inputs)
    except Exception:  # it fails in the script, too
        return []
    pairs = zip(names, candidate.inputs, inputs, strict=True)
    return [n for n, a, b in pairs if isinstance(a, torch.Tensor) and not _same_bits(a, b)]


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    one, other = (t.detach().cpu().contiguous().flatten().view(torch.uint8) for t in (a, b))
    return torch.equal(one, other)


def _given(name: str, value: torch.Tensor, tensors: dict[str, SavedTensor]) -> dict[str, Any]:
    dtype = str(value.dtype).removeprefix("torch.")
    made: dict[str, Any] = {
        "role": "in", "dtype": dtype, "shape": tuple(value.shape), "stride": tuple(value.stride()),
    }  # fmt: skip
    if value.device.type != "cpu":
        made["device"] = str(value.device)
    plain = value.detach().cpu().contiguous()
    if value.numel() <= _FEW and value.dtype in _NAMES:
        return made | {"values": plain.flatten().tolist()}
    data = plain.flatten().view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    tensors[name] = SavedTensor(_NAMES.get(value.dtype, "U8"), tuple(value.shape), data)
    return made | {"saved": name}


def _foreign(module: Any) -> set[str]:
    spaces = ((n, getattr(n.target, "namespace", "aten")) for n in module.graph.nodes)
    return {f"torch.ops.{n.target!s}" for n, space in spaces if space not in _OURS}
