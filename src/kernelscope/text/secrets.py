"""Secrets in command lines, variables and messages, recognised by name and by form, and replaced.

By name: `--api-key X`, `HF_TOKEN=X`, `{"password": X}`. By form: tokens of well-known services, private keys,
addresses with a password. The values of variables with such a name are replaced wherever they occur.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kernelscope.config import all_variables

SECRET = "[secret]"
_LEAST, _ENOUGH = 6, 12  # characters of a value that is looked for in other texts, with a digit and without

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_ALONE = frozenset((
    "apikey", "auth", "authorization", "authtoken", "bearer", "cookie", "credential", "credentials", "jwt",
    "passphrase", "passwd", "password", "passwords", "pwd", "secret", "secrets", "token", "sas", "dsn",
    "webhook",
))  # fmt: skip
_KINDS_OF_KEY = frozenset((
    "access", "account", "api", "app", "client", "deploy", "encryption", "license", "master", "openai",
    "priv", "private", "secret", "service", "shared", "signing", "ssh", "storage", "subscription", "wandb",
    "write",
))  # fmt: skip
# Tokens of a language model, not of a service.
_KINDS_OF_TOKEN = frozenset((
    "audio", "begin", "bos", "class", "cls", "context", "decoder", "dist", "distill", "distillation",
    "draft", "end", "eos", "first", "image", "last", "latent", "learned", "mask", "max", "min", "new",
    "next", "num", "pad", "padding", "per", "prefix", "prev", "previous", "query", "reg", "sep", "sos",
    "special", "speech", "start", "stop", "suffix", "text", "unk", "video", "vision",
))  # fmt: skip
_OF_A_TOKEN = frozenset((
    "budget", "count", "dim", "embedding", "id", "ids", "index", "length", "merging", "mixing", "pooling",
    "position", "positions", "shift", "size", "type",
))  # fmt: skip

# By what each begins with, so that a text without it is not searched.
_FORMS = [
    (mark, re.compile(form))
    for mark, form in (
        ("hf_", r"\bhf_(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{16,}"),
        ("api_", r"\bapi_org_[A-Za-z0-9]{16,}"),
        ("sk-", r"\bsk-((proj|ant|svcacct|admin|or)-[\w-]{16,}|[A-Za-z0-9]{20,})"),  # not sk-learn-…
        ("sk_", r"\bsk_(live|test)_[A-Za-z0-9]{16,}"),
        ("rk_", r"\brk_(live|test)_[A-Za-z0-9]{16,}"),
        ("gh", r"\bgh[opsur]_[A-Za-z0-9]{20,}"),
        ("github_pat_", r"\bgithub_pat_\w{20,}"),
        ("gl", r"\bgl(pat|ptt|dt|rt)-[\w-]{16,}"),
        ("xox", r"\bxox[abeoprs]-[\w-]{10,}"),
        ("AKIA", r"\bAKIA[0-9A-Z]{16}\b"),
        ("ASIA", r"\bASIA[0-9A-Z]{16}\b"),
        ("AIza", r"\bAIza[\w-]{30,}"),
        ("ya29.", r"\bya29\.[\w-]{16,}"),
        ("npm_", r"\bnpm_[A-Za-z0-9]{30,}"),
        ("pypi-", r"\bpypi-Ag[\w-]{30,}"),
        ("dop_v1_", r"\bdop_v1_[0-9a-f]{32,}"),
        ("nvapi-", r"\bnvapi-[\w-]{20,}"),
        ("r8_", r"\br8_[A-Za-z0-9]{30,}"),
        ("gsk_", r"\bgsk_[A-Za-z0-9]{30,}"),
        ("eyJ", r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
        ("PRIVATE KEY", r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)"),
    )
]
_IN_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)(?!git@)([^\s/@:'\"]*:)?[^\s/@'\"]+@")
# "basic" and "token" are words of other texts as well.
_AUTHORIZATION = re.compile(
    r"(?i)\b(bearer|(?:(?<=authorization: )|(?<=authorization:)|(?<=authorization=))(?:basic|token))(\s+)"
    r"(?=[\w.~+/=-]*\d)[\w.~+/=-]{16,}"
)
# name=value, "name": "value", --name value; a value in quotes may have spaces.
_NAMED = re.compile(r"(?P<name>[A-Za-z_][\w.-]{1,60})(?P<is>[\"']?\s*(?:=|:)\s*|[\"']?\s*=>\s*)(?!//)")
_VALUE = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|[^\s,;&'\"(){}\[\]<>]+")
_NAMES = re.compile(
    r"(?i)key|token|secret|passw|passphrase|pwd|auth|credential|cookie|jwt|sas|dsn|webhook|sig"
)
_PLAIN = re.compile(r"(?i)true|false|none|null|yes|no|on|off|\d{1,5}|torch\.\w+|<[\w|/]+>|\[[A-Z]+\]|")


def is_secret_name(name: str) -> bool:
    """Whether what has this name is a secret: a variable, an option, a key."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or not _NAMES.search(name):
        return False
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        after = words[place + 1] if place + 1 < len(words) else ""
        if word == "token" and (before in _KINDS_OF_TOKEN or after in _OF_A_TOKEN):
            continue
        if word == "auth" and after in ("method", "type", "mode"):
            continue
        if word in _ALONE or (word in ("key", "keys") and before in _KINDS_OF_KEY):
            return True
        if word in ("sig", "signature") and len(words) == 1:
            return True
    return False


def _is_value(text: str) -> bool:
    """Whether it could be a secret; numbers, switches and files (`PWD`, `SSH_AUTH_SOCK`) are not."""
    bare = text.strip("\"'")  # a folder's own name may end with a quote
    return not _PLAIN.fullmatch(bare) and not any(
        os.path.isabs(t) and os.path.lexists(t) for t in (text, bare)
    )


def _is_folder(name: str, value: str) -> bool:
    """Of the shell: the folder it is in, and the one it was in, which may be gone."""
    return name in ("PWD", "OLDPWD") and os.path.isabs(value)


def _is_unlike_a_word(text: str) -> bool:
    """Whether it would not stand in a text by chance, as `offline` would."""
    return len(text) >= _ENOUGH or (len(text) >= _LEAST and any(map(str.isdigit, text)))


class Secrets:
    """What to replace: the forms, and the values of this process's variables whose names say so."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        given = all_variables() if environ is None else environ
        named = (v for k, v in given.items() if is_secret_name(k) and not _is_folder(k, v))
        found = {value for value in named if _is_value(value) and _is_unlike_a_word(value)}
        self._known = sorted(found, key=len, reverse=True)

    def hidden(self, text: str) -> str:
        """Code, or any text, without secrets of a known form or value; names are not looked at."""
        for value in self._known:
            if value in text:
                text = text.replace(value, SECRET)
        for mark, form in _FORMS:
            if mark in text:
                text = form.sub(SECRET, text)
        if "://" in text:
            text = _IN_ADDRESS.sub(lambda m: f"{m[1]}{m[2] or ''}{SECRET}@", text)
        return text

    def hidden_message(self, text: str) -> str:
        """A message or a word of a command without secrets, also those that have a name in it."""
        text = self.hidden(text)
        if ("=" in text or ":" in text) and _NAMES.search(text):
            text = "".join(_without_values(text))
        return _AUTHORIZATION.sub(rf"\1\2{SECRET}", text) if " " in text else text

    def hidden_form(self, value: Any, name: str = "") -> Any:
        """What JSON can hold, without the secrets in it."""
        if isinstance(value, str):
            return SECRET if is_secret_name(name) and _is_value(value) else self.hidden_message(value)
        if isinstance(value, Mapping):
            return {key: self.hidden_form(v, str(key)) for key, v in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self.hidden_form(each, name) for each in value)
        return value

    def hidden_words(self, words: Sequence[str]) -> tuple[list[str], int]:
        """A command without the secrets in it, and how many words that changed."""
        kept: list[str] = []
        for place, word in enumerate(words):
            before = words[place - 1] if place else ""
            is_named = before.startswith("-") and "=" not in before and is_secret_name(before)
            if is_named and _is_value(word) and not re.match(r"--?[A-Za-z]", word):
                kept.append(SECRET)
            else:
                kept.append(self.hidden_message(word))
        return kept, sum(a != b for a, b in zip(kept, words, strict=True))


def _without_values(text: str) -> Iterator[str]:
    """The value of another name is searched too: "error: token=X"."""
    place = 0
    while (found := _NAMED.search(text, place)) is not None:
        yield text[place : found.end()]
        place = found.end()
        value = _VALUE.match(text, place) if is_secret_name(found["name"]) else None
        if value is not None:
            yield _hidden_value(found["is"], value[0])
            place = value.end()
    yield text[place:]


def _hidden_value(sign: str, value: str) -> str:
    if not _is_value(value) or value.startswith((SECRET, "//")):
        return value
    quote = value[0] if value[0] in "\"'" else ""
    if not quote and not _looks_random(value) and sign.strip("\"' ") == ":":
        return value  # prose, or an annotation: "the token: str"
    return f"{quote}{SECRET}{quote}"


def _looks_random(text: str) -> bool:
    return len(text) >= 8 and any(c.isdigit() for c in text) and any(c.isalpha() for c in text)


def hidden_words(words: Iterable[str]) -> tuple[list[str], int]:
    """A command without the secrets in it, and how many words that changed."""
    return Secrets().hidden_words(list(words))
