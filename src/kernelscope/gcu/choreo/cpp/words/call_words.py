"""What the C++ compiler says of a call's arguments, as a sentence about data and numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass

_QUOTED = r"[‘'`](?P<{}>[^’']+)[’']"
_NOTE = re.compile(r"^[^\n:]+:\d+:\d+: note: +(.*)$", re.MULTILINE)
_COUNT = re.compile(rf"too (?P<how>few|many) arguments to function {_QUOTED.format('signature')}")
_WRONG = re.compile(
    r"(?:cannot convert|could not convert|invalid conversion|invalid initialization|cannot bind)"
    rf".*?(?:from (?:type |expression of type )?)?{_QUOTED.format('given')}"
)
_FROM = re.compile(rf"from (?:type |expression of type )?{_QUOTED.format('given')}")
_AKA = re.compile(rf"\{{aka {_QUOTED.format('real')}\}}")
_ARGUMENT = re.compile(
    rf"(?:initializing|in passing) argument (?P<number>\d+) of {_QUOTED.format('signature')}"
)
_NO_MATCH = re.compile(rf"no matching function for call to {_QUOTED.format('call')}")
_CANDIDATE = re.compile(rf"^candidate(?: function)?(?: \d+)?: {_QUOTED.format('signature')}")
_VOID = re.compile(
    r"[‘']const void \w+[’'] has incomplete type|variable has incomplete type 'const void'"
    r"|invalid use of void|void value not ignored|invalid [‘']static_cast[’'] from type [‘']void[’']"
)
_NOT_CONSTANT = re.compile(rf"{_QUOTED.format('name')} is not a constant expression")
_CONFLICT = re.compile(
    r"deduced conflicting types for parameter [‘'](?P<name>\w+)[’'] "
    r"\([‘'](?P<a>[^’']+)[’'] and [‘'](?P<b>[^’']+)[’']\)"
)
_NOT_DEDUCED = re.compile(r"couldn[’']t deduce template parameter [‘'](?P<name>\w+)[’']")
_EXPECTS = re.compile(
    r"candidate expects (?P<takes>\d+) arguments?, (?P<given>\d+) provided"
    r"|requires (?P<clang>\d+) arguments?, but (?P<clangs>\d+) (?:was|were) provided"
)
_CLANG = re.compile(
    r"no known conversion from '(?P<given>[^']+)' to '(?P<wants>[^']+)' for (?P<number>\d+)\w+ argument"
)
_BEFORE = "so it must be a number that is known before the program runs"
_ELEMENTS = {
    "float": "f32", "double": "f64", "bool": "bool", "int": "s32", "unsigned int": "u32", "short int": "s16",
    "short": "s16", "short unsigned int": "u16", "signed char": "s8", "unsigned char": "u8",
    "long int": "s64", "long": "s64", "long unsigned int": "u64", "int64_t": "s64",
    "f16": "f16", "bf16": "bf16",
}  # fmt: skip


@dataclass(frozen=True)
class CallWords:
    """A sentence, and the function that is called, where that is known."""

    text: str
    name: str = ""


def of_call(error: str, notes: str) -> CallWords | None:
    """The sentence for an error about a call; None when it is about something else."""
    told = [note.strip() for note in _NOTE.findall(notes)]
    if found := _COUNT.search(error):
        name, takes = _split(found["signature"])
        how = "fewer" if found["how"] == "few" else "more"
        return CallWords(f"`{name}` takes {_listed(takes)}; this call gives it {how}", name)
    if found := _WRONG.search(error):
        argument = next((a for each in told if (a := _ARGUMENT.search(each)) is not None), None)
        return None if argument is None else _of_argument(error, found["given"], argument)
    if found := _NO_MATCH.search(error):
        return _of_no_match(found["call"], told)
    if found := _NOT_CONSTANT.search(error):
        return CallWords(f"`{found['name']}` stands between < and >, {_BEFORE}")
    if found := _VOID.search(error):
        advice = "it returns nothing; write the call as a statement of its own: `call …;`"
        return CallWords(f"the result of this call is used, but {advice}")
    return None


def _of_argument(error: str, given: str, argument: re.Match[str]) -> CallWords:
    name, takes = _split(argument["signature"])
    number = int(argument["number"])
    source = _FROM.search(error)
    have = source["given"] if source else given
    real = _AKA.search(error)
    if real is not None and error.find(have) < real.start() <= error.find(have) + len(have) + 3:
        have = real["real"]
    wants = _plain(takes[number - 1]) if number <= len(takes) else "something else"
    return CallWords(_must_be(number, name, wants, _plain(have)), name)


def _must_be(number: int, name: str, wants: str, have: str) -> str:
    advice = "give it data of that type, or change the function"
    if wants.startswith("a number"):
        advice = "give it one element: data.at(…)"
    elif not have.endswith("data") and "data of rank" not in have:
        advice = "give it data"
    return f"argument {number} of `{name}` must be {wants}, not {have}; {advice}"


def _of_no_match(call: str, told: list[str]) -> CallWords:
    name, given = _split(call)
    name = name.partition("<")[0]
    signatures = [found["signature"] for each in told if (found := _CANDIDATE.search(each))]
    wrong = f"`{name}` cannot be called with {_listed(given, counted=False) if given else 'these arguments'}"
    for each in told if len(signatures) < 2 else ():
        if found := _CLANG.search(each):
            wants, have = (_plain(found[which]) for which in ("wants", "given"))
            return CallWords(_must_be(int(found["number"]), name, wants, have), name)
        if found := _NOT_CONSTANT.search(each):
            return CallWords(f"`{found['name']}` stands between < and >, {_BEFORE}", name)
        if found := _CONFLICT.search(each):
            both = " and ".join(_ELEMENTS.get(found[x], found[x]) for x in "ab")
            return CallWords(f"{wrong}: `{found['name']}` would be {both}; give both one type", name)
        if found := _NOT_DEDUCED.search(each):
            advice = f"give it: `call {name}<…>(…)`"
            return CallWords(f"the arguments do not determine `{found['name']}` of `{name}`; {advice}", name)
        if found := _EXPECTS.search(each):
            count = _number(int(found["takes"] or found["clang"]), "argument")
            given_count = found["given"] or found["clangs"]
            return CallWords(f"`{name}` takes {count}; this call gives it {given_count}", name)
    there = ", ".join(f"`{each.partition(' [with')[0]}`" for each in dict.fromkeys(signatures))
    return CallWords(f"{wrong}; there is {there}" if there else wrong, name)


def _split(signature: str) -> tuple[str, list[str]]:
    """The name of a function and the types of its arguments: `void a::k<int>(int*, float)`."""
    signature, _, known = signature.partition(" [with ")
    head, _, rest = signature.rpartition("(")
    name = head.split()[-1].lstrip("*&") if head.split() else signature
    depth, types, last = 0, [], ""
    for parameter, value in re.findall(r"(\w+) = ([^;\]]+)", known):
        rest = re.sub(rf"\b{parameter}\b", value, rest)
    for sign in rest.rpartition(")")[0]:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            types.append(last.strip())
            last = ""
        else:
            last += sign
    return name, [*types, last.strip()] if last.strip() else types


def _plain(kind: str) -> str:
    """A C++ type as what a Choreo program gives: data or a number."""
    bare = re.sub(r"\b(?:const|volatile|__restrict__|__restrict)\b|choreo::(?:names::)?|&", "", kind)
    bare = " ".join(bare.split())
    if span := re.fullmatch(r"spanned_(?:view|data)<(.+), (\d+)>", bare):
        return f"{_ELEMENTS.get(span[1], span[1])} data of rank {span[2]}"
    if bare.startswith("char"):
        return "a text"
    element = bare.rstrip("* ")
    known = _ELEMENTS.get(element, element if element in _ELEMENTS.values() else "")
    if not known:
        return f"`{bare}`"
    return f"{known} data" if bare.endswith("*") else f"a number ({known})"


def _listed(kinds: list[str], *, counted: bool = True) -> str:
    shown = ", ".join(map(_plain, kinds))
    if not counted:
        return f"({shown})"
    return _number(len(kinds), "argument") + (f" ({shown})" if kinds else "")


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count or 'no'} {what}s"
