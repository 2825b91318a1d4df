"""What the C++ compiler says of a program, as sentences about its `.co` file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .call_words import of_call

_ERROR = re.compile(
    r"^(?P<file>[^\n:]+):(?P<line>\d+):(?P<column>\d+): (?:fatal )?error: (?P<text>.*)$", re.MULTILINE
)
_MISSING = re.compile(r"^(?P<name>\S+): No such file|'(?P<clang>[^']+)' file not found")
MOST_PLACES = 3
# Headers and names that only the compiler of an accelerator has.
_VENDOR_HEADER = re.compile(
    r"(?:tcle|acore|libra|tops|krt|dtu|sip\d+|cute|cutlass|cooperative_groups|hip)(?:[/_.].*)?"
    r"|(?:cuda|curand|cublas)\w*[/.].*|choreo_\w+\.h|mma\.h"
)
_VENDOR = re.compile(
    r"\b(?:__dtu_\w+|tcle(?:::\w+)?|tops(?:::\w+)?|acore(?:::\w+)?|__vector|threadIdx|blockIdx|blockDim|gridDim"
    r"|__sync(?:threads|warp)|__shfl\w*|__ldg|__shared__|__constant__|cuda[A-Z]\w*|cute|cutlass|wmma|nvcuda"
    r"|v[a]?\d+[fiu]\d+(?:x\d)?|smr_t|tar_t|vcc_t|vbool\d+_t|generic_ptr|__TCLE_AS__|TCLE_\w+|hip[A-Z]\w*"
    r"|atomicAdd|__nv_\w+|__builtin_amdgcn_\w+|__tops_\w+|uint4|float4|int4|half2|__half2|dim3)\b"
)
# What GCC and Clang say of a name that nothing declares.
_UNKNOWN = re.compile(
    r"[‘'`](?P<name>[^’'`]+)[’'](?: in namespace .*)?"
    r" (?:was not declared|has not been declared|does not name a|is not a namespace)"
    r"|(?:undeclared identifier|unknown type name) '(?P<clang>[^']+)'"
)
_ONLY_THERE = "so this kernel runs on that hardware only; for the CPU, write it in plain C++"


@dataclass(frozen=True)
class _Place:
    line: int
    column: int
    text: str

    def sentence(self, file: str, source: str) -> str:
        lines = source.splitlines()
        shown = f"\n    {lines[self.line - 1].strip()}" if 0 < self.line <= len(lines) else ""
        return f"{file}:{self.line}:{self.column}: error: {self.text}{shown}"


def in_words(message: str, source: str, file: str) -> str:
    """The errors of a program's own C++ at its lines; the whole message where they are elsewhere."""
    found = [m for m in _ERROR.finditer(message) if m["file"] == file]
    if not found:
        return message
    ends = [m.start() for m in _ERROR.finditer(message)] + [len(message)]
    places = [_place(m, message[m.end() : min(e for e in ends if e > m.start())], source) for m in found]
    special = next((s for p in places if (s := _special(p, source)) is not None), None)
    if special is not None:
        return special.sentence(file, source)
    text = "\n".join(p.sentence(file, source) for p in places[:MOST_PLACES])
    more = len(places) - MOST_PLACES
    if more > 0:
        text += f"\n{more} more error{'s' if more > 1 else ''} in the C++ of {file}"
    return text


def _place(error: re.Match[str], notes: str, source: str) -> _Place:
    line, column = int(error["line"]), int(error["column"])
    words = of_call(error["text"], notes)
    if words is None:
        return _Place(line, column, error["text"])
    lines = source.splitlines()
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    call = re.search(rf"\bcall\s+{re.escape(words.name)}" if words.name else r"\bcall\b", text)
    return _Place(line, call.start() + 1 if call else column, words.text)


def _special(place: _Place, source: str) -> _Place | None:
    """A sentence for what is missing because it belongs to real hardware, or to another file."""
    missing = _MISSING.search(place.text)
    if missing is not None:
        name = missing["name"] or missing["clang"]
        if _VENDOR_HEADER.fullmatch(name):
            text = f"`{name}` comes with an accelerator, {_ONLY_THERE}"
        else:
            text = f"the header `{name}` is neither beside this file nor on the compiler's path"
        return _Place(place.line, place.column, text)
    unknown = _UNKNOWN.search(place.text)
    named = _VENDOR.search(unknown["name"] or unknown["clang"]) if unknown is not None else None
    if named is None:
        return None
    text = f"`{named.group()}` belongs to an accelerator, {_ONLY_THERE}"
    return _Place(place.line, place.column, text)
