"""Generated C++ wrappers as text: each launch in them is made to report itself. Pure; needs no torch.

The text is changed after everything about fusion is decided, and only where a statement launches something:
`kernel(a, b)` becomes `kernelscope::launch(meta, …, [&](auto&&... p) { return kernel(p...); }, a, b)`. So
every argument is evaluated exactly once, as before: some are handles that can be taken only once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from .cpp_text import after_includes, arguments, input_names, nodes_before, parameters_end, wrapper_name

VIEW = "view"  # the kind of what only views memory in another way
OPERATOR = "torch.ops."  # before the name of an operator, `aten.mm.default`
HEADER = Path(__file__).with_name("launch_log.h")

_BODY = re.compile(
    r"^void (?:AOTInductorModel::)?(?P<name>run_impl|_const_run_impl|inductor_entry_impl)\((?P<rest>.*?)"
    r"^\} // (?:AOTInductorModel::)?(?P=name)",
    re.DOTALL | re.MULTILINE,
)
_CALL = re.compile(
    r"(?P<start>^[ \t]*(?:AOTI_TORCH_ERROR_CODE_CHECK\()?)"
    r"(?P<name>(?:kernels\.)?(?:cpp_\w+|call_\w+|aoti_torch_\w+))\(",
    re.MULTILINE,
)
# Shims that compute nothing.
_NO_KERNEL = re.compile(
    r"aoti_torch_(empty_strided|get_|new_|delete_|create_|_reinterpret|_alloc_from_pool|assign_|as_strided|"
    r"grad_mode|device_|dtype_|layout_|item_|check|is_|memory_format|print_|save_|warn|library_|stream_|"
    r"str|abi_|cuda_caching|cuda_guard|tensor_to_|scalar_to_tensor|call_dispatcher)"
)
_BIRTHS = re.compile(r"aoti_torch_empty_strided(_pinned)?$")
_POINTER = re.compile(r"\(\s*(?:const\s+)?[\w:<>\s]+\*\s*\)\(\s*(\w+)\.data_ptr\(\)")
_BLOCK = re.compile(
    r"^(?P<indent>[ \t]+)\{\n(?P<inside>(?:(?!(?P=indent)[{}]).*\n)*?)(?P=indent)\}\n", re.MULTILINE
)
_LOOKED_UP = re.compile(
    r'PyUnicode_FromString\("torch\.ops\.([\w.]+)"\)'
    r'|(?:aoti_torch_call_dispatcher|findSchemaOrThrow)\("([\w:]+)", "(\w*)"'
)
_BLOCK_VIEW = re.compile(
    r"^[ \t]*auto (\w+) = ((?:wrap_with_raii_handle_if_needed|RAIIAten)\w*\(.*\));\n", re.MULTILINE
)
_BLOCK_INPUT = re.compile(
    r"aoti_torch_new_tensor_handle\((\w+), &|tensor_handle_to_tensor_pointer\((\w+)\)"
    r"|reinterpret_cast<void\*>\((\w+)\.get\(\)\)|auto (\w+) = (?:wrap_with|RAIIAten)"
)
_KEPT = re.compile(r"^[ \t]*kernelscope::Kept .*\n", re.MULTILINE)
_BLOCK_OUTPUT = re.compile(
    r"^\s*(\w+) = (?:torch::stable::detail::to<AtenTensorHandle>|torch::aot_inductor::new_tensor_handle"
    r"|reinterpret_cast<AtenTensorHandle>)\(",
    re.MULTILINE,
)
Roles = Sequence[tuple[str, str, str]]  # of each argument: name, role ("in", …), and how the C++ passes it


@dataclass(frozen=True, slots=True)
class Described:
    """What is known of something that can be launched."""

    kind: str
    args: Roles
    aliases: tuple[str, ...] = ()
    name: str = ""  # where it is not what the code calls
    source: str = ""


Describe = Callable[[str, Sequence[str]], "Described | None"]  # of a name, called with these arguments


@dataclass(slots=True)
class Instrumented:
    code: str
    launches: int = 0
    unseen: list[str] = field(default_factory=list)  # calls that it could not make anything of


def instrument(code: str, describe: Describe, about: dict[str, Any]) -> Instrumented:
    """The wrapper, telling of its launches; as it was, if it has none of the functions that launch."""
    result = Instrumented(code)
    bodies = list(_BODY.finditer(code))
    if not bodies:
        return result
    metas: list[str] = []
    pieces, end = [], 0
    for body in bodies:
        start = code.index("{", parameters_end(code, body.end("name"))) + 1
        pieces += [code[end:start]]
        if body["name"] != "_const_run_impl":
            graph = {"inputs": input_names(body[0]), "name": body["name"], **about}
            pieces.append(f"\n    kernelscope::Execution kernelscope_execution({_meta(metas, [''], graph)});")
        pieces.append(_instrument_body(code[start : body.end()], describe, metas, result))
        end = body.end()
    position = after_includes(code, bodies[0].start())
    text = "".join([*pieces, code[end:]])
    declared = "".join(f"static const char kernelscope_meta_{i}[] =\n{m};\n" for i, m in enumerate(metas))
    result.code = f"{text[:position]}\n{header()}\n{declared}\n{text[position:]}"
    return result


@cache
def header() -> str:
    return HEADER.read_text(encoding="utf-8")


def _instrument_body(code: str, describe: Describe, metas: list[str], result: Instrumented) -> str:
    code = _instrument_blocks(code, describe, metas, result)
    unmade = set(re.findall(r"aoti_torch_new_uninitialized_tensor\(&(\w+?)_handle\)", code))
    pieces, end = [], 0
    for call in _CALL.finditer(code):
        name = call["name"].removeprefix("kernels.")
        is_birth = _BIRTHS.match(name) is not None
        if call.start() < end or (_NO_KERNEL.match(name) and not is_birth):
            continue
        given, close = arguments(code, call.end())
        run = f"[&](auto&&... p) {{ return {call['name']}(static_cast<decltype(p)&&>(p)...); }}"
        if is_birth:
            made = f"kernelscope::birth({run}, {', '.join([*given[:-1], _returns(given[-1])])})"
        else:
            described = describe(name, given)
            if described is None:
                result.unseen.append(name)
                continue
            if described.kind == VIEW:
                continue
            nodes = nodes_before(code, call.start())
            elements = _elements(given, described, describe, unmade)
            made = _launch(name, run, given, described, metas, nodes, elements)
            result.launches += 1
        pieces += [code[end : call.end("start")], made]
        end = close + 1
    return "".join([*pieces, code[end:]])


def _instrument_blocks(code: str, describe: Describe, metas: list[str], result: Instrumented) -> str:
    """Operators that are looked up at run time are called in a block of their own, which makes outputs."""
    pieces, end = [], 0
    for block in _BLOCK.finditer(code):
        named = _LOOKED_UP.search(block["inside"])
        if named is None:
            continue
        name = named[1] or ".".join([named[2].replace("::", "."), named[3] or "default"])
        inside, inputs, tensors = _block_inputs(block["inside"])
        outputs = _BLOCK_OUTPUT.findall(inside)
        described = describe(OPERATOR + name, inputs)
        if described is None or described.kind == VIEW:
            continue
        roles = [*described.args, *((f"result{i}", "out", "") for i in range(len(outputs)))]
        args = [[n, role, each] for (n, role, _), each in zip(roles, [*inputs, *outputs], strict=True)]
        meta = {"kind": described.kind, "args": args, "nodes": nodes_before(code, block.start())}
        label = _meta(metas, [name, name.split(".")[-2]], meta)
        passed = "".join(f", {each}" for each in [*tensors, *outputs])
        before = _bits(i for i in range(len(inputs)))
        after = _bits(i for i, (_, role, _) in enumerate(roles) if role != "in")
        calls = [
            f"{block['indent']}    kernelscope::around({when}, {label}, {bits}ull{passed});\n"
            for when, bits in enumerate((before, after))
        ]
        views = list(_KEPT.finditer(inside))
        start = views[-1].end() if views else 0
        pieces += [code[end : block.start("inside")], inside[:start], calls[0], inside[start:], calls[1]]
        end = block.end("inside")
        result.launches += 1
    return "".join([*pieces, code[end:]])


def _block_inputs(inside: str) -> tuple[str, list[str], list[str]]:
    """The block with its views kept, as the call consumes them; its tensors by name and in C++."""
    views = {name: wrapper_name(made) for name, made in _BLOCK_VIEW.findall(inside)}
    taken = {name for name in views if f"{name}.release()" in inside}
    names = [
        given or made
        for *forms, made in _BLOCK_INPUT.findall(inside)
        if (given := "".join(forms)) or made in taken  # others are passed on by their name, too
    ]
    kept = {name: f"kernelscope_{name}" for name in views}
    inside = _BLOCK_VIEW.sub(
        lambda made: f"{made[0]}        kernelscope::Kept {kept[made[1]]}({made[1]});\n", inside
    )
    return inside, [views.get(name, name) for name in names], [kept.get(name, name) for name in names]


def _bits(bits: Iterable[int]) -> int:
    """A word with these bits; the last of them stands for all that follow."""
    return sum({1 << min(i, 63) for i in bits})


def _launch(
    name: str,
    run: str,
    given: list[str],
    described: Described,
    metas: list[str],
    nodes: str,
    elements: list[list[str]],
) -> str:
    args: list[list[Any]] = []
    passed: list[str] = []
    before: list[int] = []  # whose values are wanted
    after: list[int] = []
    for i, text in enumerate(given):
        arg, role, form = described.args[i] if i < len(described.args) else (f"arg{i}", "in", "value")
        following = given[i + 1] if i + 1 < len(given) else ""
        args.append([arg, role, elements if form == "list" else wrapper_name(text)])
        passed.append(_passed(text, form, following if form == "list" else "", given))
        if form != "returns":
            before.append(i)
        if form == "list" or role in ("out", "inout"):
            after.append(i)
    meta = {"kind": described.kind, "args": args, "source": described.source}
    if nodes:
        meta["nodes"] = nodes
    label = _meta(metas, [described.name or name, *described.aliases], meta)
    wanted = [f"{_bits(bits)}ull" for bits in (before, after)]
    return f"kernelscope::launch({', '.join([label, *wanted, run, *passed])})"


def _passed(text: str, form: str, following: str, given: Sequence[str]) -> str:
    if text in ("nullptr", "0", "0L") and form != "value":
        return "nullptr"  # a plain 0 would not be passed on as a pointer
    if pointer := _POINTER.match(text):
        return f"kernelscope::into({text}, {pointer[1]})"
    if form == "returns":
        return _returns(text)
    if form == "optional":
        return f"kernelscope::optional({text})"
    if form == "list":
        counts = [word for word in (following, *given) if re.fullmatch(r"\d+L?", word)]
        inside = re.match(r"std::array<AtenTensorHandle, (\d+)>", text)
        count = inside[1] if inside else counts[0] if counts else "0"
        return f"kernelscope::listed({text}, {count})"
    return text


def _returns(text: str) -> str:
    return f"kernelscope::returns({text})" if text != "nullptr" else text


def _elements(
    given: Sequence[str], described: Described, describe: Describe, unmade: set[str]
) -> list[list[str]]:
    """Argument, role and variable of each tensor in a call's list; the call makes those that are `unmade`."""
    of = [(text, *arg) for text, arg in zip(given, described.args, strict=False) if arg[2] == "list"]
    if not of or "{" not in of[0][0]:
        return []
    text, name, role, _ = of[0]
    names = [wrapper_name(each) for each in arguments(text, text.find("{") + 1)[0]]
    inputs = [each for each in names if each not in unmade]
    known = describe(OPERATOR + described.name, inputs) if described.name else None
    if known is None:
        known = Described("", [(f"{name}[{i}]", role, "") for i in range(len(inputs))])
    rows, results = iter(known.args), 0
    found = []
    for each in names:
        if each in unmade:
            unmade.discard(each)
            found.append([f"result{results}", "out", each])
            results += 1
        else:
            arg, role, _ = next(rows)
            found.append([arg, role, each])
    return found


def _meta(metas: list[str], names: Sequence[str], meta: dict[str, Any]) -> str:
    metas.append("\n".join(_literals("\t".join(names) + "\n" + json.dumps(meta))))
    return f"kernelscope_meta_{len(metas) - 1}"


def _literals(text: str) -> Iterator[str]:
    for i in range(0, len(text), 1000):
        piece = text[i : i + 1000].replace("\\", "\\\\").replace('"', '\\"')
        yield '"' + piece.replace("\n", "\\n").replace("\t", "\\t").replace("?", "\\?") + '"'
