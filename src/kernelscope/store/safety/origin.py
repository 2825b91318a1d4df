"""Where a run was made. What can be executed out of it is signed with a key that never leaves its user.

The key is in the user's own state folder. A run holds a keyed sum over everything that commands may execute:
the code of kernels and graphs, how they are launched, the compiler's settings, and the recorded command. A
copy of a run is signed as well as the run, and so is one that was packed and unpacked; one that was changed,
made by somebody else or by a version without signatures is not.
"""

from __future__ import annotations

import getpass
import hmac
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from kernelscope.config import state_folder
from kernelscope.errors import RunError
from kernelscope.private_files import FILE, make_folder

ORIGIN = "origin"  # key in the table `info`
_KEY, _KEY_BYTES = "key", 32
_MODULUS = 1 << 256
# What scripts and commands are made of. Columns but automatic numbers; the first ones identify a row.
SIGNED = {
    "kernels": ("id, name, kind, producer, source, source_hash", 1),
    "graphs": ("id, direction, name, compile_id, cache_key, source, path", 1),
    "sites": ("id, kernel, file, line, grid, config, origin, device, collective, dead, bytes", 1),
    "arguments": (
        "site, position, name, role, dtype, shape, stride, device, type, unread, wrapper_name, value, "
        "varies, returned", 2,
    ),
    "compilations": (
        "id, compile_id, direction, frame, name, cache_key, made, start_ns, duration_ns, origin", 1,
    ),
    "stages": ("compilation, name, language, text, start_ns, duration_ns", 0),
    "provenance": ("compilation, kernel, handle, buffers, nodes", 0),
    "incidents": ("kind, compilation, compile_id, reason, origin, detail, source, stage", 0),
    "info": ("key, value", 1),
}  # fmt: skip
SIGNED_INFO = "compiler_settings"


@cache
def _key_in(folder: Path, *, make: bool) -> bytes:
    """The key; b"" where there is none."""
    path = folder / _KEY
    if make and not path.exists():
        make_folder(folder, exist_ok=True)
        fresh = folder / f".{_KEY}-{os.getpid()}-{secrets.token_hex(4)}"
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE)
        try:
            os.write(file, secrets.token_bytes(_KEY_BYTES))
            os.fsync(file)
            with suppress(FileExistsError):  # another process was faster, and its key is the key
                os.link(fresh, path)
        finally:
            os.close(file)
            os.unlink(fresh)
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
            raise PermissionError(1, "the key belongs to another user", str(path))
        if found.st_mode & 0o077:
            os.fchmod(file, FILE)
        key = os.read(file, _KEY_BYTES + 1)
    finally:
        os.close(file)
    if len(key) != _KEY_BYTES:
        raise OSError(5, f"the key is damaged; remove {path}", str(path))
    return key


def _key(*, make: bool) -> tuple[bytes, str]:
    """The key of this user, or why there is none."""
    try:
        return _key_in(state_folder(), make=make), ""
    except OSError as error:
        return b"", f"{error.filename or 'the key'}: {error.strerror}"


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # an id without an entry, as in a container
        return str(os.getuid())


def signed_text(text: str) -> str:
    """The signature of a text; "" where this user has no key."""
    key, _ = _key(make=True)
    return hmac.digest(key, b"text:" + text.encode("utf-8", "surrogateescape"), "sha256").hex() if key else ""


def is_signed(text: str, signature: object) -> bool:
    """Whether this user has signed the text."""
    key, _ = _key(make=False)
    if not key or not isinstance(signature, str):
        return False
    right = hmac.digest(key, b"text:" + text.encode("utf-8", "surrogateescape"), "sha256").hex()
    return hmac.compare_digest(right.encode(), signature.encode("utf-8", "replace"))


class RunSignature:
    """A keyed sum over rows: their order does not matter, and one that is replaced leaves the sum."""

    def __init__(self, uuid: str, key: bytes) -> None:
        self._uuid, self._key = uuid, key
        self._sum = 0
        self._replaceable: dict[tuple[Any, ...], int] = {}
        self.has_changed = True

    def add(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        if not self._key:
            return
        identifying = SIGNED[table][1]
        for given in map(_plain, rows):
            text = json.dumps([self._uuid, table, given], ensure_ascii=True)
            number = int.from_bytes(hmac.digest(self._key, b"row:" + text.encode(), "sha256"), "big")
            if identifying:
                place = (table, *given[:identifying])
                self._sum -= self._replaceable.get(place, 0)
                self._replaceable[place] = number
            self._sum = (self._sum + number) % _MODULUS
            self.has_changed = True

    def text(self) -> str:
        """What a run holds of it; the sum itself would tell how rows contribute."""
        whole = f"run:{self._uuid}:{self._sum:x}".encode("utf-8", "surrogateescape")
        return hmac.digest(self._key, whole, "sha256").hex() if self._key else ""


def _plain(row: Sequence[Any]) -> Sequence[Any]:
    """As it comes back from SQLite."""
    if all(cell is None or type(cell) is int or (type(cell) is str and cell.isascii()) for cell in row):
        return row
    return [
        int(cell) if isinstance(cell, bool)
        else cell.encode("utf-8", "replace").decode() if isinstance(cell, str) else cell
        for cell in row
    ]  # fmt: skip


def begin_signature(uuid: str, *, signs: bool = True) -> tuple[RunSignature, dict[str, str]]:
    """For a run that begins: its signature, and what the run says of its origin beside that."""
    key, why = _key(make=True) if signs else (b"", "it was copied from a run that is not signed")
    return RunSignature(uuid, key), {"user": user_name(), **({"unsigned": why} if why else {})}


def why_not_made_here(
    rows: Callable[[str, Sequence[Any]], list[tuple[Any, ...]]], info: dict[str, str]
) -> str:
    """Why a run is not known to be this user's own; "" where it is. `rows` answers queries of its run.db."""
    origin, uuid = (json.loads(info.get(name, "null")) for name in (ORIGIN, "uuid"))
    if not isinstance(origin, dict) or not origin.get("signature"):
        why = origin.get("unsigned") if isinstance(origin, dict) else ""
        return f"it is not signed: {why}" if why else "it is not signed, as runs of older versions are not"
    key, _ = _key(make=False)
    signature = RunSignature(str(uuid), key)
    for table, (columns, _) in SIGNED.items():
        rest = " WHERE key = ?" if table == "info" else ""
        signature.add(table, rows(f"SELECT {columns} FROM {table}{rest}", (SIGNED_INFO,) if rest else ()))
    given = str(origin["signature"]).encode("utf-8", "replace")
    if key and hmac.compare_digest(signature.text().encode(), given):
        return ""
    user = origin.get("user", "another user")
    return f"its signature is not yours: it was made by {user!s:.40}, or changed since"


def refuse_untrusted(where: Path, why: str, executes: str) -> None:
    """RunError that says what would be executed; nothing where `why` is empty."""
    if why:
        raise RunError(
            f"{where} was not made here ({why}), and this would execute code of it:\n{executes}\n"
            "Read it first; --trust executes it"
        )
