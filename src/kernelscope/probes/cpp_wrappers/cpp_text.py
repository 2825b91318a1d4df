"""Reading generated C++: arguments of calls, names of tensors, comments. Pure text; needs no torch."""

from __future__ import annotations

import re

_NAMED = [
    re.compile(pattern)
    for pattern in (
        r"reinterpret_tensor_wrapper\(\s*(?:tmp_)?(\w+?)(?:_handle)?\s*,",
        r"RAIIAtenTensorHandle\(tmp_(\w+)_\d+\)",
        r"^\(.*?\*\)\((\w+)\.data_ptr",
        r"^&?(\w+?)(?:_handle)?$",
        r"(\b(?:buf|arg|primals_|tangents_)\d\w*)",
    )
]
_TEMPLATE = re.compile(r"<[\w:\s,*&]*>")
_INCLUDE = re.compile(r"^#(include|if|ifdef|ifndef|endif)\b.*$", re.MULTILINE)
_NODES = re.compile(r"// Topologically Sorted Source Nodes: (\[.*?\])")


def input_names(code: str) -> list[str]:
    """What a C++ wrapper calls its inputs, in their order."""
    found = re.findall(r"^\s*auto (\w+) = std::move\(inputs\[(\d+)\]\);", code, re.MULTILINE)
    names = {int(index): name for name, index in found}
    found = re.findall(r"aoti_torch_item_\w+\(inputs\[(\d+)\], &(\w+)\)", code)
    names |= {int(index): name for index, name in found}
    return [names.get(i, f"input{i}") for i in range(max(names, default=-1) + 1)]


def arguments(code: str, start: int) -> tuple[list[str], int]:
    """The arguments of a call whose parenthesis opens before `start`, and where that closes."""
    found, depth, begin, i = [], 0, start, start
    while i < len(code):
        letter = code[i]
        if letter in "\"'":
            i = _string_end(code, i)
        elif letter == "<" and (template := _TEMPLATE.match(code, i)):
            i = template.end() - 1
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            if depth == 0:
                break
            depth -= 1
        elif letter == "," and depth == 0:
            found.append(code[begin:i].strip())
            begin = i + 1
        i += 1
    else:
        raise ValueError(f"a call does not end: {code[start : start + 80]!r}")
    last = code[begin:i].strip()
    return [*found, last] if found or last else [], i


def wrapper_name(text: str) -> str:
    """What the generated code calls a tensor that it passes: buf3, also of a view of it."""
    for pattern in _NAMED:
        if (found := pattern.search(text)) and found[1] != "nullptr" and not found[1][0].isdigit():
            return found[1]
    return ""


def nodes_before(code: str, position: int) -> str:
    """Inductor names a kernel's nodes in a comment above its launch."""
    lines = code[:position].rstrip().rsplit("\n", 6)[-6:]
    for line in reversed(lines):
        if found := _NODES.search(line):
            return found[1]
        if "AOTI_TORCH_ERROR_CODE_CHECK" in line or line.strip().startswith("cpp_"):
            break
    return ""


def parameters_end(code: str, start: int) -> int:
    return arguments(code, code.index("(", start) + 1)[1]


def after_includes(code: str, before: int) -> int:
    """After the last #include that no condition guards."""
    position, depth = 0, 0
    for line in _INCLUDE.finditer(code, 0, before):
        if line[1] == "include":
            position = line.end() if depth == 0 else position
        else:
            depth += -1 if line[1] == "endif" else 1
    return position


def _string_end(code: str, start: int) -> int:
    quote, i = code[start], start + 1
    while code[i] != quote:
        i += 2 if code[i] == "\\" else 1
    return i
